// SPDX-License-Identifier: Apache-2.0
#include "sim/questions/plan_memory.h"

#include <string>

#include <fmt/format.h>

#include "core/base/error.h"

namespace pipetwin::sim {

namespace {

/// Measured: the peak of 'simulate' with 1f1b on 64 stages and 65,536 micro-batches, 2.87 GB, for
/// each of them, rounded down.
constexpr std::int64_t bytes_per_stage_and_micro_batch = 680;

}  // namespace

Bytes memory_of_plan(const PlanSize& size) {
    return Bytes{bytes_per_stage_and_micro_batch * size.stages * size.micro_batches};
}

Undertaking undertaking_of_plan(const PlanSize& size) {
    return {
        fmt::format("the plan of {} stages and {} micro-batches and its timeline, which take about "
                    "{}",
                    size.stages,
                    size.micro_batches,
                    format_bytes(memory_of_plan(size))),
        "use fewer micro-batches (more only repeat the steady state), or raise the limit of memory "
        "('ulimit -v' shows it)"};
}

void expect_memory_for(const PlanSize& size, std::string_view key, std::optional<Bytes> left) {
    const Bytes needed = memory_of_plan(size);
    if (!left || needed <= *left) {
        return;
    }
    const std::int64_t fit = left->count / (bytes_per_stage_and_micro_batch * size.stages);
    throw Error(
        ErrorKind::Infeasible,
        KeyValue{std::string(key), fmt::to_string(size.micro_batches)},
        fmt::format(
            "the plan of {} stages and its timeline take about {}, and {} of memory are left",
            size.stages,
            format_bytes(needed),
            format_bytes(*left)),
        fit > 0
            ? fmt::format("use at most {} micro-batches (more only repeat the steady state), or "
                          "raise the limit of memory ('ulimit -v' shows it)",
                          fit)
            : std::string("use fewer stages, or raise the limit of memory ('ulimit -v' shows it)"));
}

}  // namespace pipetwin::sim

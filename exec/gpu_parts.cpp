#include "exec/gpu_parts.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/error.h"
#include "core/footprint.h"
#include "exec/cuda_module.h"
#include "exec/profiler.h"

namespace pipetwin::exec {
namespace {

constexpr std::int64_t mebibyte = std::int64_t{1} << 20;
/// What the pool is larger than the plan's peak, per rank: for what kernels work in, and for blocks
/// that wait for a tensor of their size.
constexpr Bytes beside_in_pool{64 * mebibyte};
/// What a rank has beside the pool: cuBLAS's workspace, its stream, its green context.
constexpr Bytes beside_pool{64 * mebibyte};

struct Wanted {
    std::vector<MemoryUse> peaks;  ///< [rank]; where stashes leave the GPU, the least
    Bytes pool;
    Bytes all;
};

Wanted wanted_by(const Plan& plan) {
    Wanted wanted{.peaks = peak_memory(plan), .pool = {}, .all = {}};
    for (int rank = 0; plan->host_link && rank < plan.rank_count(); ++rank) {
        // How many stashes are on their way depends on the times: memory grows as they need it.
        wanted.peaks[static_cast<std::size_t>(rank)] = resident_memory(plan, rank);
    }
    for (const MemoryUse& peak : wanted.peaks) {
        wanted.pool += peak.total() + beside_in_pool;
        wanted.all += peak.total() + beside_in_pool + beside_pool;
    }
    return wanted;
}

std::string peaks_table(const std::vector<MemoryUse>& peaks) {
    std::vector<NamedMemory> rows;
    MemoryUse all;
    for (const MemoryUse& peak : peaks) {
        rows.push_back({.name = fmt::to_string(rows.size()), .use = peak});
        for (std::size_t kind = 0; kind < peak.bytes.size(); ++kind) {
            all.bytes[kind] += peak.bytes[kind];
        }
    }
    if (peaks.size() > 1) {
        rows.push_back({.name = "all", .use = all});
    }
    return memory_table("rank", rows);
}

constexpr const char* usual_hint =
    "more micro-batches, recompute = \"always\" or a smaller model need less";

Error does_not_fit(const Wanted& wanted, const CudaMemory& memory, const std::string& hint) {
    return {ErrorKind::Infeasible,
            "memory",
            fmt::format("the {} rank{} need{} {} of the GPU, {} beside the peaks included, but it "
                        "has {} free of {}\n{}",
                        wanted.peaks.size(),
                        wanted.peaks.size() == 1 ? "" : "s",
                        wanted.peaks.size() == 1 ? "s" : "",
                        format_bytes(wanted.all),
                        format_bytes(
                            Bytes{std::ssize(wanted.peaks) * (beside_in_pool + beside_pool).count}),
                        format_bytes(memory.free),
                        format_bytes(memory.total),
                        peaks_table(wanted.peaks)),
            hint.empty() ? usual_hint : hint};
}

/// Everything of the costs that is known without measuring, so the bytes.
Plan unmeasured_plan(const Scenario& scenario, const Model& model) {
    return make_plan(scenario, model, unmeasured_profile(model, profiler_options(scenario)));
}

/// The first of these that fits: recompute everywhere, then ever more micro-batches.
std::string what_fits(const Scenario& scenario, const Model& model, Bytes free) {
    const int samples = replica_batch(scenario);
    const auto fits = [&](const Scenario& other) -> std::optional<Bytes> {
        try {
            const Bytes wanted = wanted_by(unmeasured_plan(other, model)).all;
            return wanted <= free ? std::optional(wanted) : std::nullopt;
        } catch (const Error&) {  // a schedule does not take every number of micro-batches
            return std::nullopt;
        }
    };
    const int now = *scenario.pipeline.micro_batches;
    for (int micro_batches = now; micro_batches <= samples; micro_batches *= 2) {
        for (const bool recomputes : {false, true}) {
            Scenario other = scenario;
            other.pipeline.micro_batches = micro_batches;
            std::string keys;
            if (micro_batches != now) {
                keys = fmt::format("pipeline.micro_batches = {}", micro_batches);
            }
            if (recomputes) {
                other.pipeline.recompute = Recompute::Always;
                keys +=
                    fmt::format("{}pipeline.recompute = \"always\"", keys.empty() ? "" : " with ");
            }
            if (const auto wanted = keys.empty() ? std::nullopt : fits(other)) {
                return fmt::format("{} needs {}, which fits", keys, format_bytes(*wanted));
            }
        }
    }
    return "neither recompute = \"always\" nor more micro-batches make it fit: take a smaller "
           "model or a smaller batch";
}

}  // namespace

std::vector<std::unique_ptr<Device>> make_gpu_parts(const Plan& plan,
                                                    GpuShares shares,
                                                    const std::vector<int>& units) {
    check_gpu_memory(plan);
    const Wanted wanted = wanted_by(plan);
    const auto ranks = static_cast<std::size_t>(plan.rank_count());
    try {
        return make_cuda_devices(
            {.ranks = plan.rank_count(),
             .own_multiprocessors = shares == GpuShares::Own && ranks > 1,
             .units = units.size() == ranks && ranks > 1 ? units : std::vector<int>{},
             .memory = wanted.pool});
    } catch (const Error& error) {
        if (error.kind() != ErrorKind::Infeasible || error.place() != "memory") {
            throw;
        }
        throw Error(
            error.kind(),
            error.place(),
            fmt::format("{}, for these peaks:\n{}", error.text(), peaks_table(wanted.peaks)),
            error.hint());
    }
}

void check_gpu_memory(const Plan& plan, const std::string& hint) {
    const Wanted wanted = wanted_by(plan);
    const CudaMemory memory = cuda_memory();
    if (wanted.all > memory.free) {
        throw does_not_fit(wanted, memory, hint);
    }
}

void check_gpu_memory(const Scenario& scenario, const Model& model) {
    if (scenario.pipeline.offload != Offload::None) {
        return;  // what is needed depends on times, and so on what is not measured yet
    }
    const Wanted wanted = wanted_by(unmeasured_plan(scenario, model));
    const CudaMemory memory = cuda_memory();
    if (wanted.all > memory.free) {
        throw does_not_fit(wanted, memory, what_fits(scenario, model, memory.free));
    }
}

}  // namespace pipetwin::exec

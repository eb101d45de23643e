// SPDX-License-Identifier: Apache-2.0
#include "exec/gpu/gpu_parts.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/scenario/choices.h"
#include "core/scenario/scenario.h"
#include "core/scenario/settled_scenario.h"
#include "core/timeline/footprint.h"
#include "core/timeline/memory_limits.h"
#include "exec/gpu/attention_workspace.h"
#include "exec/gpu/cuda_module.h"

namespace pipetwin::exec {
namespace {

constexpr std::int64_t mebibyte = std::int64_t{1} << 20;
/// Bytes by which the pool is larger than the plan's peak, per rank: for what kernels work in, and
/// for blocks that wait for a tensor of their size.
constexpr Bytes beside_in_pool{64 * mebibyte};
/// At most 1 / lost_share of a step's memory is lost between tensors
/// (exec/memory_plan/arena_layout.h).
constexpr std::int64_t lost_share = 10;
/// Bytes of a rank outside the pool: cuBLAS's workspace, its stream, its green context.
constexpr Bytes beside_pool{64 * mebibyte};

/// Neighbouring ranks on one GPU.
struct Group {
    int gpu = 0;
    int first = 0;
    int ranks = 0;
};

/// Spreads ranks over GPUs: each GPU has as many as the others, or one more.
std::vector<Group> spread(int ranks, int gpus) {
    const int used = std::clamp(gpus, 1, ranks);
    std::vector<Group> groups;
    for (int gpu = 0; gpu < used; ++gpu) {
        const int first = ranks * gpu / used;
        groups.push_back({.gpu = gpu, .first = first, .ranks = ranks * (gpu + 1) / used - first});
    }
    return groups;
}

int gpu_count() {
    return static_cast<int>(probe_cuda().devices.size());
}

/// Memory that a group needs of its GPU.
struct Wanted {
    Group group;
    std::vector<MemoryUse> peaks;  ///< [rank of the group]; where stashes leave the GPU, the least
    Bytes pool;
    Bytes all;
    Bytes attention;  ///< part of `all`: what cuDNN's attention works in
    Bytes between;    ///< in the pool, if there is so much: what may be lost between tensors
};

/// `attention`: [rank] of the plan; empty where it is not known.
Wanted wanted_by(const Plan& plan, const Group& group, const std::vector<Bytes>& attention = {}) {
    const std::vector<MemoryUse> peaks = peak_memory(plan);
    Wanted wanted{
        .group = group, .peaks = {}, .pool = {}, .all = {}, .attention = {}, .between = {}};
    for (int rank = group.first; rank < group.first + group.ranks; ++rank) {
        // How many stashes are on their way depends on the times: memory grows as they need it.
        const MemoryUse peak =
            plan->host_link ? resident_memory(plan, rank) : peaks[as_index(rank)];
        wanted.peaks.push_back(peak);
        wanted.pool += peak.total() + beside_in_pool;
        wanted.all += peak.total() + beside_in_pool + beside_pool;
        if (!attention.empty()) {
            wanted.all += attention[as_index(rank)];
            wanted.attention += attention[as_index(rank)];
        }
        const Bytes of_step = peak.total() - resident_memory(plan, rank).total();
        wanted.between += Bytes{of_step.count / lost_share};
    }
    return wanted;
}

std::string peaks_table(const Wanted& wanted) {
    std::vector<NamedMemory> rows;
    MemoryUse all;
    for (const MemoryUse& peak : wanted.peaks) {
        rows.push_back(
            {.name = fmt::to_string(wanted.group.first + std::ssize(rows)), .use = peak});
        for (std::size_t kind = 0; kind < peak.bytes.size(); ++kind) {
            all.bytes[kind] += peak.bytes[kind];
        }
    }
    if (wanted.peaks.size() > 1) {
        rows.push_back({.name = "all", .use = all});
    }
    return memory_table("rank", rows);
}

constexpr const char* usual_hint =
    "more micro-batches, recompute = \"always\" or a smaller model need less";

Error does_not_fit(const Wanted& wanted, const CudaMemory& memory, const std::string& hint) {
    return Error(
               ErrorKind::Infeasible,
               "memory",
               fmt::format("the {} rank{} need{} {} of GPU {}, {} beside the peaks{} included, but "
                           "it has {} free of {}\n{}",
                           wanted.peaks.size(),
                           wanted.peaks.size() == 1 ? "" : "s",
                           wanted.peaks.size() == 1 ? "s" : "",
                           format_bytes(wanted.all),
                           wanted.group.gpu,
                           format_bytes(Bytes{std::ssize(wanted.peaks) *
                                              (beside_in_pool + beside_pool).count}),
                           wanted.attention > Bytes{}
                               ? fmt::format(" and {} in which cuDNN's attention works",
                                             format_bytes(wanted.attention))
                               : "",
                           format_bytes(memory.free),
                           format_bytes(memory.total),
                           peaks_table(wanted)),
               hint.empty() ? usual_hint : hint)
        .because(ErrorReason::Memory);
}

/// [rank] What cuDNN's attention works in, where a scenario has any.
std::vector<Bytes> attention_of(const SettledScenario& scenario, const Plan& plan, int gpu) {
    return scenario.training.precision == Precision::Bf16
               ? attention_workspaces(plan, scenario_model(scenario), gpu)
               : std::vector<Bytes>{};
}

/// The first of these that fits: our own attention, recompute everywhere, then ever more
/// micro-batches.
std::string what_fits(const SettledScenario& scenario,
                      const PlanOf& plan_of,
                      const Wanted& refused,
                      Bytes free,
                      int gpus) {
    if (refused.attention > Bytes{} && refused.all - refused.attention <= free) {
        return fmt::format(
            "with PIPETWIN_OWN_ATTENTION=1 in the environment attention runs on our "
            "own, slower kernels, and {} are needed, which fits",
            format_bytes(refused.all - refused.attention));
    }
    const int samples = replica_batch(scenario);
    const auto fits = [&](const SettledScenario& other) -> std::optional<Bytes> {
        try {
            const Plan plan = plan_of(other);
            const std::vector<Bytes> attention = attention_of(other, plan, refused.group.gpu);
            Bytes most;
            for (const Group& group : spread(plan.rank_count(), gpus)) {
                most = std::max(most, wanted_by(plan, group, attention).all);
            }
            return most <= free ? std::optional(most) : std::nullopt;
        } catch (const Error&) {  // a schedule does not take every number of micro-batches
            return std::nullopt;
        }
    };
    const int now = scenario.pipeline.micro_batches;
    for (int micro_batches = now; micro_batches <= samples; micro_batches *= 2) {
        for (const bool recomputes : {false, true}) {
            SettledScenario other = scenario;
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

namespace {

void check_memory(const Plan& plan, const std::vector<Group>& groups, const std::string& hint) {
    for (const Group& group : groups) {
        const Wanted wanted = wanted_by(plan, group);
        const CudaMemory memory = cuda_memory(group.gpu);
        if (wanted.all > memory.free) {
            throw does_not_fit(wanted, memory, hint);
        }
    }
}

void check_memory(const SettledScenario& scenario,
                  const PlanOf& plan_of,
                  const auto& groups_of,
                  int gpus) {
    if (scenario.pipeline.offload != Offload::None) {
        return;  // what is needed depends on times, and so on what is not measured yet
    }
    const Plan plan = plan_of(scenario);
    for (const Group& group : groups_of(plan)) {
        const Wanted wanted = wanted_by(plan, group, attention_of(scenario, plan, group.gpu));
        const CudaMemory memory = cuda_memory(group.gpu);
        if (wanted.all > memory.free) {
            throw does_not_fit(
                wanted, memory, what_fits(scenario, plan_of, wanted, memory.free, gpus));
        }
    }
}

/// Makes the devices of a group's ranks. `request.gpus` is the number of GPUs that the plan uses.
std::vector<std::unique_ptr<Device>> make_group(const Plan& plan,
                                                const Group& group,
                                                CudaRequest request) {
    const Wanted wanted = wanted_by(plan, group);
    const Bytes spare = cuda_memory(group.gpu).free - wanted.all;
    request.device = group.gpu;
    request.ranks = group.ranks;
    request.memory = wanted.pool + std::clamp(spare, Bytes{}, wanted.between);
    try {
        return make_cuda_devices(request);
    } catch (const Error& error) {
        if (error.reason() != ErrorReason::Memory) {
            throw;
        }
        throw error.with_text(
            fmt::format("{}, for these peaks:\n{}", error.text(), peaks_table(wanted)));
    }
}

}  // namespace

std::vector<std::unique_ptr<Device>> make_gpu_parts(const Plan& plan,
                                                    GpuShares shares,
                                                    const std::vector<int>& units) {
    require_cuda();
    check_gpu_memory(plan);
    const auto ranks = static_cast<std::size_t>(plan.rank_count());
    const std::vector<Group> groups = spread(plan.rank_count(), gpu_count());
    std::vector<std::unique_ptr<Device>> devices;
    for (const Group& group : groups) {
        CudaRequest request{.gpus = static_cast<int>(groups.size()),
                            .own_multiprocessors = shares == GpuShares::Own && group.ranks > 1};
        if (units.size() == ranks && group.ranks > 1) {
            request.units.assign(units.begin() + group.first,
                                 units.begin() + group.first + group.ranks);
        }
        std::ranges::move(make_group(plan, group, std::move(request)), std::back_inserter(devices));
    }
    return devices;
}

std::vector<int> gpus_shared_by(int ranks) {
    const int gpus = gpu_count();
    std::vector<int> gpu_of_rank;
    for (const Group& group : gpus < ranks ? spread(ranks, gpus) : std::vector<Group>{}) {
        gpu_of_rank.insert(gpu_of_rank.end(), as_index(group.ranks), group.gpu);
    }
    return gpu_of_rank;
}

std::unique_ptr<Device> make_whole_gpu(const Plan& plan, int rank, int gpu) {
    require_cuda(gpu);
    const Group group{.gpu = gpu, .first = rank, .ranks = 1};
    check_memory(plan, {group}, {});
    // The group's messages go by links, and not by copies to other GPUs.
    return std::move(make_group(plan, group, {.gpus = 1, .own_multiprocessors = false}).front());
}

void check_gpu_memory(const Plan& plan, const std::string& hint) {
    check_memory(plan, spread(plan.rank_count(), gpu_count()), hint);
}

void check_gpu_memory(const SettledScenario& scenario, const PlanOf& plan_of) {
    const int gpus = gpu_count();
    check_memory(
        scenario,
        plan_of,
        [gpus](const Plan& plan) { return spread(plan.rank_count(), gpus); },
        gpus);
}

void check_gpu_memory(const SettledScenario& scenario,
                      const PlanOf& plan_of,
                      const RankOnGpu& own) {
    const auto groups = [&own](const Plan&) {
        return std::vector<Group>{{.gpu = own.gpu, .first = own.rank, .ranks = 1}};
    };
    const int everywhere = scenario.pipeline.stages;  // the other processes have one each, too
    check_memory(scenario, plan_of, groups, everywhere);
}

}  // namespace pipetwin::exec

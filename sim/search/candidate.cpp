#include "sim/search/candidate.h"

#include <algorithm>
#include <array>
#include <bit>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "core/base/error.h"

namespace pipetwin::sim {

namespace {

std::vector<int> divisors(int number) {
    std::vector<int> result;
    for (int divisor = 1; divisor <= number; ++divisor) {
        if (number % divisor == 0) {
            result.push_back(divisor);
        }
    }
    return result;
}

int device_count(const Scenario& scenario) {
    const Scenario::PipelinePart& pipeline = scenario.pipeline;
    if (scenario.cluster.count > 0) {
        return scenario.cluster.count;
    }
    if (!pipeline.stages || !pipeline.data_parallel || !pipeline.tensor_parallel) {
        throw Error(ErrorKind::BadInput,
                    scenario.file.string(),
                    "nothing says how many devices there are to plan for",
                    "set cluster.count, as in --set cluster.count=8");
    }
    return *pipeline.stages * *pipeline.data_parallel * *pipeline.tensor_parallel;
}

std::vector<int> stage_counts(const Scenario& scenario, int devices, int layers) {
    if (scenario.pipeline.stages) {
        return {*scenario.pipeline.stages};
    }
    std::vector<int> result;
    for (int stages = 1; stages <= std::min(devices, layers); ++stages) {
        result.push_back(stages);
    }
    return result;
}

std::vector<int> tensor_counts(const Scenario& scenario, int devices) {
    if (scenario.pipeline.tensor_parallel) {
        return {*scenario.pipeline.tensor_parallel};
    }
    std::vector<int> result;
    for (const int divisor : divisors(std::max(1, scenario.cluster.per_node))) {
        if (divisor <= devices && std::has_single_bit(static_cast<unsigned>(divisor))) {
            result.push_back(divisor);
        }
    }
    return result;
}

std::vector<int> replica_counts(const Scenario& scenario, int most) {
    if (scenario.pipeline.data_parallel) {
        return {*scenario.pipeline.data_parallel};
    }
    std::vector<int> result = divisors(scenario.training.batch);
    std::erase_if(result, [most](int replicas) { return replicas > most; });
    return result;
}

std::vector<int> micro_batch_counts(const Scenario& scenario, int replicas) {
    if (scenario.pipeline.micro_batches) {
        return {*scenario.pipeline.micro_batches};
    }
    constexpr int most = 65536;
    std::vector<int> result = divisors(replica_batch(scenario, replicas));
    std::erase_if(result, [](int count) { return count > most; });
    return result;
}

/// Which numbers of chunks a schedule can have.
enum class Chunks { One, Two, Several };

struct SearchedSchedule {
    std::string_view name;
    Chunks chunks;
};

constexpr std::array<SearchedSchedule, 11> searched{{{"1f1b", Chunks::One},
                                                     {"gpipe", Chunks::One},
                                                     {"zb-h1", Chunks::One},
                                                     {"zb-h2", Chunks::One},
                                                     {"chimera", Chunks::One},
                                                     {"zb-v", Chunks::Two},
                                                     {"dualpipe-v", Chunks::Two},
                                                     {"hanayo", Chunks::Two},
                                                     {"interleaved-1f1b", Chunks::Several},
                                                     {"looped-bfs", Chunks::Several},
                                                     {"interleaved-zb", Chunks::Several}}};

/// More than eight chunks of one rank are never seen in practice.
constexpr std::array several_chunks{2, 3, 4, 6, 8};

std::vector<int> chunk_counts(const Scenario& scenario, Chunks chunks, int most) {
    const std::optional<int> fixed = scenario.pipeline.chunks;
    std::vector<int> result;
    switch (chunks) {
        case Chunks::One:
            result = {1};
            break;
        case Chunks::Two:
            result = {2};
            break;
        case Chunks::Several:
            result.assign(several_chunks.begin(), several_chunks.end());
            if (fixed && *fixed > 1) {
                result = {*fixed};
            }
            break;
    }
    std::erase_if(result, [&](int count) { return count > most || (fixed && *fixed != count); });
    return result;
}

std::vector<Recompute> recomputes_of(const Scenario& scenario, const Shape& shape) {
    if (!scenario.pipeline.recompute_auto) {
        const RecomputeRules written = scenario.pipeline.recompute.value_or(Recompute::None);
        return written.everywhere() ? std::vector{*written.everywhere()} : std::vector<Recompute>{};
    }
    if (shape.micro_batches == 1) {
        return {Recompute::None, Recompute::Always};
    }
    return {Recompute::None, Recompute::ExceptLast, Recompute::Always};
}

/// A written list does. Else, on one rank that is one of the three; chimera's ranks share their
/// weights with another one; and where stashes are copied away, what fits depends on times.
bool may_recompute_by_rank(const Scenario& scenario, const Style& style, const Shape& shape) {
    if (!scenario.pipeline.recompute_auto) {
        return scenario.pipeline.recompute && !scenario.pipeline.recompute->everywhere();
    }
    return shape.stages > 1 && style.schedule != "chimera" &&
           scenario.pipeline.offload == Offload::None &&
           std::ranges::find(searched, style.schedule, &SearchedSchedule::name) != searched.end();
}

/// Schedules with their chunks.
std::vector<Style> orders_of(const Scenario& scenario, const Model& model, const Shape& shape) {
    const Scenario::PipelinePart& pipeline = scenario.pipeline;
    const int most_chunks = std::max(1, model.layer_count() / shape.stages);
    std::vector<Style> orders;
    if (pipeline.schedule) {
        const auto* const known =
            std::ranges::find(searched, *pipeline.schedule, &SearchedSchedule::name);
        if (pipeline.chunks || known == searched.end()) {
            return {{.schedule = *pipeline.schedule, .chunks = pipeline.chunks.value_or(1)}};
        }
        for (const int chunks : chunk_counts(scenario, known->chunks, most_chunks)) {
            orders.push_back({.schedule = *pipeline.schedule, .chunks = chunks});
        }
        return orders;
    }
    for (const SearchedSchedule& schedule : searched) {
        const bool alone = shape.stages == 1 && schedule.name != searched.front().name;
        const bool two_pipelines = schedule.name == "chimera" && shape.data_parallel > 1;
        if (alone || two_pipelines) {
            continue;
        }
        for (const int chunks : chunk_counts(scenario, schedule.chunks, most_chunks)) {
            orders.push_back({.schedule = std::string(schedule.name), .chunks = chunks});
        }
    }
    return orders;
}

}  // namespace

SettledScenario with_candidate(const Scenario& scenario, const Candidate& candidate) {
    SettledScenario settled;
    static_cast<ScenarioParts&>(settled) = scenario;
    SettledScenario::PipelinePart& pipeline = settled.pipeline;
    static_cast<PipelineSettings&>(pipeline) = scenario.pipeline;
    pipeline.stages = candidate.shape.stages;
    pipeline.data_parallel = candidate.shape.data_parallel;
    pipeline.tensor_parallel = candidate.shape.tensor_parallel;
    pipeline.micro_batches = candidate.shape.micro_batches;
    pipeline.schedule = candidate.style.schedule;
    pipeline.chunks = candidate.style.chunks;
    pipeline.recompute = candidate.style.recompute;
    if (candidate.style.recompute_by_rank) {
        pipeline.recompute = scenario.pipeline.recompute.value_or(Recompute::None);
    }
    return settled;
}

std::vector<Shape> shapes_of(const Scenario& scenario, const Model& model) {
    const int devices = device_count(scenario);
    std::vector<Shape> shapes;
    for (const int stages : stage_counts(scenario, devices, model.layer_count())) {
        for (const int tensor : tensor_counts(scenario, devices)) {
            if (std::int64_t{stages} * tensor > devices) {
                continue;
            }
            for (const int replicas : replica_counts(scenario, devices / (stages * tensor))) {
                for (const int micro_batches : micro_batch_counts(scenario, replicas)) {
                    shapes.push_back({.stages = stages,
                                      .data_parallel = replicas,
                                      .tensor_parallel = tensor,
                                      .micro_batches = micro_batches});
                }
            }
        }
    }
    std::ranges::sort(shapes);
    return shapes;
}

std::vector<int> telling_stage_counts(const std::vector<Shape>& shapes, int layers) {
    constexpr std::size_t few = 40;
    std::set<int> counts;
    int devices = 1;
    for (const Shape& shape : shapes) {
        counts.insert(shape.stages);
        devices = std::max(devices, shape.devices());
    }
    const auto largest = [layers](int stages) { return (layers + stages - 1) / stages; };
    if (counts.size() > few) {
        std::erase_if(counts, [&](int stages) {
            return devices % stages != 0 && largest(stages) == largest(stages - 1);
        });
    }
    return {counts.begin(), counts.end()};
}

std::vector<Style> styles_of(const Scenario& scenario, const Model& model, const Shape& shape) {
    std::vector<Style> styles;
    for (Style order : orders_of(scenario, model, shape)) {
        for (const Recompute recompute : recomputes_of(scenario, shape)) {
            order.recompute = recompute;
            styles.push_back(order);
        }
        if (may_recompute_by_rank(scenario, order, shape)) {
            order.recompute = Recompute::None;
            order.recompute_by_rank = true;
            styles.push_back(order);
        }
    }
    return styles;
}

}  // namespace pipetwin::sim

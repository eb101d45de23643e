// SPDX-License-Identifier: Apache-2.0
#include "sim/questions/first_changes.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/model/model.h"
#include "core/partition/model_blocks.h"
#include "core/scenario/scenario.h"
#include "core/scenario/scenario_tables.h"
#include "core/scenario/settled_scenario.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/generators/schedule_traits.h"

namespace pipetwin::sim {

namespace {

/// Changes that gain less are not worth a run.
constexpr double least_gain = 0.01;
/// Plans with more forwards are not simulated as changes.
constexpr std::int64_t most_forwards = 400'000;

Override number_key(std::string_view key, int value) {
    return {.key = fmt::format("pipeline.{}", key), .value = std::to_string(value)};
}

Override word_key(std::string_view key, std::string_view value) {
    return {.key = fmt::format("pipeline.{}", key), .value = fmt::format("\"{}\"", value)};
}

Override flag_key(std::string_view key) {
    return {.key = fmt::format("pipeline.{}", key), .value = "true"};
}

/// The number of whole blocks of a model; 0: its layers have no numbers.
int blocks_of(const Model& model) {
    const std::optional<ModelBlocks> blocks = model_blocks(model.layer_names());
    return blocks ? blocks->count() : 0;
}

/// Blocks of each of so many pieces: what is left over goes to pieces in the middle, as the ends
/// have embedding and head.
std::vector<int> even_blocks(int blocks, int pieces) {
    std::vector<int> counts(static_cast<std::size_t>(pieces), blocks / pieces);
    const int rest = blocks % pieces;
    const int first = std::max(0, (pieces - rest) / 2);
    for (int piece = first; piece < first + rest; ++piece) {
        ++counts[static_cast<std::size_t>(piece)];
    }
    return counts;
}

/// Numbers of stages on a rank that are tried.
std::span<const int> chunks_of(ChunkCounts counts) {
    static constexpr std::array all{1, 2, 3, 4, 5, 6, 8};
    const std::span<const int> tried(all);
    return counts == ChunkCounts::One   ? tried.first(1)
           : counts == ChunkCounts::Two ? tried.subspan(1, 1)
                                        : tried.subspan(1);
}

/// Tries the changes of one scenario; one object for each.
class ChangesOfRun {
  public:
    ChangesOfRun(const Scenario& scenario,
                 const Model& model,
                 const Profile& profile,
                 const RunAbilities& abilities)
        : scenario_(scenario),
          now_(settle(scenario)),
          model_(model),
          profile_(profile),
          abilities_(abilities),
          blocks_(blocks_of(model)) {}

    FirstChanges found() {
        const std::string place = scenario_.file.string();
        found_.now = predicted_run(place, now_, model_, profile_);
        if (now_.pipeline.partition.is_auto()) {  // what follows is not to look for it again
            scenario_.pipeline.partition = found_.now.partition;
        }
        try_micro_batches();
        try_recompute();
        try_schedules();
        try_shards();
        try_devices();
        try_overlap();
        try_last_stage();
        const auto by_step = [](std::vector<PlanChange>& changes) {
            std::ranges::stable_sort(changes, {}, &PlanChange::step);
        };
        by_step(found_.faster);
        by_step(found_.too_large);
        return std::move(found_);
    }

  private:
    const SettledScenario::PipelinePart& pipeline() const { return now_.pipeline; }

    /// Simulates a change. One that the scenario does not allow is none.
    void attempt(std::string what, std::vector<Override> keys) {
        try {
            Scenario changed = scenario_;
            read_pipeline(keys, changed);
            const SettledScenario settled = settle(changed);
            const std::int64_t forwards = std::int64_t{settled.pipeline.stages} *
                                          settled.pipeline.chunks * settled.pipeline.micro_batches;
            if (settled == now_ || forwards > most_forwards) {
                return;
            }
            const PredictedRun run = predicted_run("", settled, model_, profile_);
            ++found_.tried;
            if (run.step > found_.now.step * (1 - least_gain)) {
                return;
            }
            const bool fits = run.fits || run.peak <= found_.now.peak;
            (fits ? found_.faster : found_.too_large)
                .push_back({.what = std::move(what),
                            .keys = std::move(keys),
                            .step = run.step,
                            .peak = run.peak});
        } catch (const Error& error) {
            if (error.kind() != ErrorKind::BadInput && error.kind() != ErrorKind::Infeasible) {
                throw;
            }
        }
    }

    /// Samples of a micro-batch; 0: they are not all of one size.
    int size_of_micro_batch() const {
        const int samples = now_.training.batch / pipeline().data_parallel;
        return samples % pipeline().micro_batches == 0 ? samples / pipeline().micro_batches : 0;
    }

    void try_micro_batches() {
        const int size = size_of_micro_batch();
        for (const int factor : {2, 4}) {
            if (size > 0 && pipeline().micro_batches % factor == 0) {
                attempt(fmt::format("micro-batches of {}", counted(size * factor, "sample")),
                        {number_key("micro_batches", pipeline().micro_batches / factor)});
            }
            if (size > 0 && size % factor == 0) {
                attempt(fmt::format("micro-batches of {}", counted(size / factor, "sample")),
                        {number_key("micro_batches", pipeline().micro_batches * factor)});
            }
        }
    }

    bool recomputes_blocks() const {
        return pipeline().layer_recompute == LayerRecompute::Block ||
               pipeline().recompute != RecomputeRules(Recompute::None);
    }

    void try_recompute() {
        const bool is_selective = pipeline().layer_recompute == LayerRecompute::Selective;
        if (!recomputes_blocks() && !is_selective) {
            return;
        }
        if (recomputes_blocks() && abilities_.selective) {
            attempt("recompute of core attention alone", {word_key("recompute", "selective")});
        }
        attempt("no recompute", {word_key("recompute", "none")});
        const int size = size_of_micro_batch();
        for (const int factor : {2, 4}) {
            if (size > 0 && size % factor == 0) {
                attempt(fmt::format("no recompute, with micro-batches of {}",
                                    counted(size / factor, "sample")),
                        {word_key("recompute", "none"),
                         number_key("micro_batches", pipeline().micro_batches * factor)});
            }
        }
    }

    /// Keys of another cut of the model; none: its blocks cannot be cut so.
    std::optional<std::vector<Override>> cut(int stages, int chunks) const {
        if (blocks_ == 0 || stages * chunks > blocks_) {
            return std::nullopt;
        }
        std::vector<Override> keys;
        if (stages != pipeline().stages) {
            keys.push_back(number_key("stages", stages));
        }
        if (chunks != pipeline().chunks) {
            keys.push_back(number_key("chunks", chunks));
        }
        const std::vector<int> counts = even_blocks(blocks_, stages * chunks);
        keys.push_back(
            {.key = "pipeline.partition", .value = fmt::format("[{}]", fmt::join(counts, ", "))});
        return keys;
    }

    void try_schedules() {
        if (pipeline().stages == 1) {
            return;
        }
        for (const std::string_view name : abilities_.schedules) {
            for (const int chunks : chunks_of(schedule_traits(name).chunks)) {
                const bool is_same = chunks == pipeline().chunks;
                if (name == pipeline().schedule && is_same) {
                    continue;
                }
                if (is_same) {
                    attempt(std::string(name), {word_key("schedule", name)});
                    continue;
                }
                std::optional<std::vector<Override>> keys = cut(pipeline().stages, chunks);
                if (!keys) {
                    continue;
                }
                if (name != pipeline().schedule) {
                    keys->insert(keys->begin(), word_key("schedule", name));
                }
                attempt(
                    chunks == 1
                        ? std::string(name)
                        : fmt::format("{} with {} on each rank", name, counted(chunks, "stage")),
                    *std::move(keys));
            }
        }
    }

    void try_shards() {
        const bool is_weights = pipeline().shard == Shard::Weights;
        if (is_weights) {
            attempt("replicas divide gradients, and no weights", {word_key("shard", "gradients")});
        }
        if (is_weights || pipeline().shard == Shard::Gradients) {
            attempt("replicas divide the optimizer's state alone",
                    {word_key("shard", "optimizer")});
        }
    }

    /// Devices that go from one use to another: stages, replicas and tensor parallelism in turn.
    void try_devices() {
        struct Degrees {
            int stages, replicas, tensor;
        };
        const Degrees now{.stages = pipeline().stages,
                          .replicas = pipeline().data_parallel,
                          .tensor = pipeline().tensor_parallel};
        const std::array<int Degrees::*, 3> kinds{
            &Degrees::stages, &Degrees::replicas, &Degrees::tensor};
        for (const auto less : kinds) {
            for (const auto more : kinds) {
                for (const int factor : {2, 4}) {
                    if (less == more || now.*less % factor != 0) {
                        continue;
                    }
                    Degrees next = now;
                    next.*less /= factor;
                    next.*more *= factor;
                    try_degrees(next.stages, next.replicas, next.tensor);
                }
            }
        }
    }

    void try_degrees(int stages, int replicas, int tensor) {
        const int size = size_of_micro_batch();
        if (size == 0 || now_.training.batch % (replicas * size) != 0 ||
            (tensor > pipeline().tensor_parallel && !abilities_.tensor) ||
            (stages > 1 && abilities_.schedules.empty())) {
            return;
        }
        std::vector<Override> keys;
        if (stages != pipeline().stages) {
            // The chunks of one stage are no choice of anybody's.
            const int chunks = stages == 1 ? 1 : pipeline().chunks;
            std::optional<std::vector<Override>> cut_keys = cut(stages, chunks);
            if (!cut_keys) {
                return;
            }
            keys = *std::move(cut_keys);
            const bool had_one = pipeline().stages == 1;
            if (chunks != pipeline().chunks || had_one) {
                keys.push_back(word_key("schedule", to_string(ScheduleKind::OneFOneB)));
            }
        }
        if (replicas != pipeline().data_parallel) {
            keys.push_back(number_key("data_parallel", replicas));
            keys.push_back(number_key("micro_batches", now_.training.batch / replicas / size));
            if (pipeline().data_parallel == 1 && pipeline().shard == Shard::None) {
                keys.push_back(word_key("shard", "optimizer"));
            }
        }
        if (tensor != pipeline().tensor_parallel) {
            keys.push_back(number_key("tensor_parallel", tensor));
            if (tensor == 1 && pipeline().sequence_parallel) {
                keys.push_back({.key = "pipeline.sequence_parallel", .value = "false"});
            } else if (pipeline().tensor_parallel == 1 && tensor > 1) {
                keys.push_back(flag_key("sequence_parallel"));
            }
        }
        attempt(fmt::format("{}, {}, tensor parallelism {}",
                            counted(stages, "rank"),
                            counted(replicas, "replica"),
                            tensor),
                std::move(keys));
    }

    void try_overlap() {
        if (pipeline().tensor_parallel > 1 && !pipeline().sequence_parallel) {
            attempt("sequence parallelism", {flag_key("sequence_parallel")});
        }
        if (!abilities_.overlaps) {
            return;
        }
        if (pipeline().tensor_parallel > 1 && pipeline().sequence_parallel) {
            attempt("messages of tensor parallelism beside products", {flag_key("tensor_overlap")});
        }
        if (pipeline().data_parallel > 1 && !pipeline().overlap_reduction) {
            attempt("sums of gradients beside the backwards", {flag_key("overlap_reduction")});
        }
    }

    /// Blocks that the last stage gives to others, as it has the head.
    void try_last_stage() {
        const int pieces = pipeline().pieces();
        if (pieces < 2 || blocks_ < 2 * pieces || pipeline().chunks > 1) {
            return;
        }
        const std::vector<int> even = even_blocks(blocks_, pieces);
        for (const int fewer : {0, 1, 2}) {
            const int last = blocks_ / pieces - fewer;
            std::vector<int> counts = even_blocks(blocks_ - last, pieces - 1);
            counts.push_back(last);
            if (fewer > 0 ? last > 0 : counts == even) {
                attempt(fewer == 0 ? std::string("equal stages")
                                   : fmt::format("{} on the last rank", counted(last, "block")),
                        {{.key = "pipeline.partition",
                          .value = fmt::format("[{}]", fmt::join(counts, ", "))}});
            }
        }
    }

    Scenario scenario_;
    SettledScenario now_;
    const Model& model_;
    const Profile& profile_;
    const RunAbilities& abilities_;
    int blocks_ = 0;
    FirstChanges found_{};
};

}  // namespace

FirstChanges first_changes(const Scenario& scenario,
                           const Model& model,
                           const Profile& profile,
                           const RunAbilities& abilities) {
    return ChangesOfRun(scenario, model, profile, abilities).found();
}

}  // namespace pipetwin::sim

#include <algorithm>
#include <array>
#include <functional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/plan/plan.h"
#include "core/timeline/footprint.h"
#include "exec/executor/backend.h"
#include "exec/layers/layer.h"
#include "exec/stage/stage.h"
#include "tests/exec/stage/stage_pipeline.h"
#include "tests/support/small_training.h"

/// What the arenas of stages hold, beside what the plan says of every action.
namespace pipetwin::exec {
namespace stage_memory_test {

using test_stages::gpt_batch;
using test_stages::options;
using test_stages::Pipeline;
using test_stages::small_gpt;

/// A profile whose bytes are those that the layers tell; times do not matter.
Profile byte_profile(const Model& model, const std::vector<int>& sizes, Precision precision) {
    Profile profile;
    profile.precision = std::string(to_string(precision));
    for (int i = 0; i < model.layer_count(); ++i) {
        const Layer& layer = model.layer(i);
        LayerCost cost;
        cost.name = layer.spec.name;
        cost.kind = to_string(layer.spec.type);
        cost.parameter_count = layer.parameter_count;
        cost.parameter_bytes = {
            layer.parameter_count *
            static_cast<std::int64_t>(size_of(number_format(precision, Backend::Cpu).real))};
        for (const int size : sizes) {
            const LayerBytes bytes =
                layer_bytes(layer, size, number_format(precision, Backend::Cpu));
            LayerSample sample;
            sample.micro_batch_size = size;
            sample.input = bytes.input;
            sample.output = bytes.output;
            sample.saved = bytes.saved;
            sample.workspace = bytes.workspace;
            cost.samples.push_back(sample);
        }
        profile.layers.push_back(cost);
    }
    profile.links.push_back({});
    return profile;
}

Plan plan_of(const Model& model,
             const std::vector<int>& partition,
             const RecomputeRules& recompute,
             Precision precision) {
    SettledScenario scenario;
    scenario.training.batch = 7;
    scenario.training.precision = precision;
    scenario.pipeline.stages = static_cast<int>(partition.size());
    scenario.pipeline.micro_batches = 3;
    scenario.pipeline.schedule = "gpipe";
    scenario.pipeline.recompute = recompute;
    scenario.pipeline.partition = partition;
    return make_plan(scenario, model, byte_profile(model, {2, 3}, precision));
}

/// Walks the plan's rows in one thread, an action as soon as what it needs is there, and holds
/// every arena to the plan after and during every compute action.
class ByteWalk {
  public:
    ByteWalk(const Model& model, const Plan& plan, const StageOptions& stage_options)
        : plan_(plan),
          pipeline_(model, plan->partition->layers_per_stage(), stage_options),
          batch_(gpt_batch(7)),
          slices_(split(batch_, plan->micro_batch_sizes)) {
        for (int rank = 0; rank < plan.rank_count(); ++rank) {
            EXPECT_EQ(live(rank), resident_memory(plan, rank)) << "rank " << rank << " at rest";
            pipeline_.arenas[static_cast<std::size_t>(rank)].reset_peak();
        }
    }

    void run() {
        // GPipe: all forwards, stage by stage, then all backwards, from the last stage on.
        for (int rank = 0; rank < plan_.rank_count(); ++rank) {
            walk(rank, [](Op op) {
                return op == Op::Forward || op == Op::RecvForward || op == Op::SendForward;
            });
        }
        for (int rank = plan_.rank_count() - 1; rank >= 0; --rank) {
            walk(rank, [](Op op) {
                return op == Op::Backward || op == Op::Recompute || op == Op::RecvBackward ||
                       op == Op::SendBackward;
            });
        }
        const std::vector<MemoryUse> peaks = peak_memory(plan_);
        for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
            EXPECT_EQ(highest_[rank], peaks[rank].total()) << "peak of rank " << rank;
        }
    }

  private:
    const MemoryUse& live(int rank) const {
        return pipeline_.arenas[static_cast<std::size_t>(rank)].live();
    }

    void walk(int rank, const std::function<bool(Op)>& chosen) {
        Arena& arena = pipeline_.arenas[static_cast<std::size_t>(rank)];
        for (const Action& action : plan_->schedule.ranks[static_cast<std::size_t>(rank)]) {
            if (!chosen(action.op)) {
                continue;
            }
            const MemoryUse before = arena.live();
            const MemoryChange change = memory_change(plan_, action);
            arena.reset_peak();
            perform(action);
            const auto sum = [](MemoryUse a, const MemoryUse& b) {
                for (std::size_t kind = 0; kind < a.bytes.size(); ++kind) {
                    a.bytes[kind] += b.bytes[kind];
                }
                return a;
            };
            EXPECT_EQ(arena.live(), sum(before, change.after)) << to_string(action);
            if (is_compute(action.op)) {
                EXPECT_EQ(arena.peak().total(), sum(before, change.during).total())
                    << "during " << to_string(action);
            }
            highest_[static_cast<std::size_t>(rank)] =
                std::max(highest_[static_cast<std::size_t>(rank)], arena.peak().total());
        }
    }

    void perform(const Action& action) {
        const auto s = static_cast<std::size_t>(action.stage);
        const auto m = static_cast<std::size_t>(action.micro_batch);
        Stage& stage = *pipeline_.stages[s];
        switch (action.op) {
            case Op::RecvForward:
                held_[s] = std::move(forward_[s - 1][m]);
                held_[s].attach(pipeline_.arenas[s], MemoryKind::Boundary);
                break;
            case Op::Forward:
                held_[s] = stage.forward(
                    action.micro_batch, std::move(held_[s]), slices_[m], !recomputed(action));
                break;
            case Op::SendForward:
                held_[s].detach();
                forward_[s][m] = std::move(held_[s]);
                break;
            case Op::RecvBackward:
                held_[s] = std::move(backward_[s + 1][m]);
                held_[s].attach(pipeline_.arenas[s], MemoryKind::Boundary);
                break;
            case Op::Recompute:
                stage.recompute(action.micro_batch, slices_[m]);
                break;
            case Op::Backward:
                held_[s] = stage.backward(action.micro_batch, std::move(held_[s]));
                break;
            case Op::SendBackward:
                held_[s].detach();
                backward_[s][m] = std::move(held_[s]);
                break;
            default:
                FAIL() << to_string(action);
        }
    }

    bool recomputed(const Action& action) const {
        const Action recompute{
            .op = Op::Recompute, .stage = action.stage, .micro_batch = action.micro_batch};
        const auto& row = plan_->schedule.ranks[static_cast<std::size_t>(action.stage)];
        return std::ranges::find(row, recompute) != row.end();
    }

    static constexpr std::size_t stage_limit = 6;
    using Messages = std::array<std::array<Tensor, 3>, stage_limit>;

    const Plan& plan_;
    Pipeline pipeline_;
    Batch batch_;
    std::vector<MicroBatch> slices_;
    std::array<Tensor, stage_limit> held_;
    Messages forward_;
    Messages backward_;
    std::array<Bytes, stage_limit> highest_{};
};

TEST(Stage, HoldsTheBytesThatThePlanTellsAfterAndDuringEveryAction) {
    const Model model = small_gpt();
    for (const Precision precision : {Precision::Fp32, Precision::Fp64, Precision::Bf16}) {
        for (const std::vector<int>& partition :
             {std::vector{6}, {3, 3}, {1, 4, 1}, {1, 1, 1, 1, 1, 1}}) {
            const int stages = static_cast<int>(partition.size());
            for (const RecomputeRules& recompute : test::every_recompute(stages)) {
                SCOPED_TRACE(::testing::Message()
                             << "stages " << partition.size() << ", recompute "
                             << to_string(recompute) << ", " << to_string(precision));
                const Plan plan = plan_of(model, partition, recompute, precision);
                ByteWalk(model, plan, options(precision)).run();
            }
        }
    }
}

}  // namespace stage_memory_test
}  // namespace pipetwin::exec

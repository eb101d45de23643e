// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "core/artifacts/plan_json.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/estimate.h"
#include "core/costs/profile_json.h"
#include "core/interop/hf_config.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/scenario/planner.h"
#include "core/schedule/schedule.h"
#include "core/timeline/footprint.h"
#include "tests/support/error_of.h"
#include "tests/support/hf_texts.h"
#include "tests/support/scenario_plans.h"

/// Models that are known by their costs alone, whose first and last layer share weights.
namespace pipetwin {
namespace tied_profile_test {

using testing::all_partitions;
using testing::chain_profile;
using ::testing::Contains;
using ::testing::Each;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::partitioned;
using testing::plan_error_of;
using testing::plan_of;
using testing::scenario_of;

/// Five layers of 100 bytes of weights in bf16, of which the ends share 40.
Profile tied_profile() {
    Profile profile = chain_profile();
    profile.precision = "bf16";
    profile.tied_bytes = Bytes{40};
    for (LayerCost& layer : profile.layers) {
        layer.parameter_bytes = Bytes{100};
        layer.optimizer = Duration{1000};
    }
    return profile;
}

SettledScenario with_adam(SettledScenario scenario) {
    scenario.training.optimizer = OptimizerKind::AdamW;
    scenario.pipeline.schedule = "1f1b";
    scenario.pipeline.recompute = Recompute::None;
    return scenario;
}

bool sums_gradients(const Plan& plan) {
    for (const auto& row : plan->schedule.ranks) {
        for (const Action& action : row) {
            if (action.op == Op::ReduceGradient) {
                return true;
            }
        }
    }
    return false;
}

/// Weights of two bytes have gradients of four, and twelve bytes of state with AdamW.
TEST(TiedProfile, EachEndHoldsTheSharedWeightsAndTheirGradientsAreSummed) {
    const Plan plan = plan_of(with_adam(partitioned({2, 3})), tied_profile());
    EXPECT_EQ(plan->states[0].weights, Bytes{200});
    EXPECT_EQ(plan->states[1].weights, Bytes{300});
    EXPECT_EQ(plan->states[1].gradients, Bytes{600});
    EXPECT_EQ(plan->states[1].optimizer_state, Bytes{1800});
    EXPECT_EQ(plan->states[1].optimizer, Duration{3000});
    EXPECT_EQ(plan.handed_over(0), Bytes{80});
    EXPECT_TRUE(sums_gradients(plan));
    EXPECT_THAT(
        plan->notes,
        Contains(HasSubstr("share 40 B of weights: the last stage holds them again, 360 B")));
}

TEST(TiedProfile, OneStageHasTheSharedWeightsOnce) {
    const Plan plan = plan_of(with_adam(scenario_of(1, 2, 2)), tied_profile());
    EXPECT_EQ(plan->states[0].weights, Bytes{460});
    EXPECT_EQ(plan->states[0].gradients, Bytes{920});
    EXPECT_EQ(plan->states[0].optimizer_state, Bytes{2760});
    EXPECT_EQ(plan->states[0].optimizer, Duration{5000 - 400});
    EXPECT_FALSE(sums_gradients(plan));
    EXPECT_THAT(plan->notes, Each(Not(HasSubstr("share"))));
}

/// The first and the last of four stages lie on rank 0.
TEST(TiedProfile, ARankWithBothEndsHasTheSharedWeightsOnce) {
    SettledScenario scenario = with_adam(scenario_of(2, 4, 4));
    scenario.pipeline.schedule = "zb-v";
    scenario.pipeline.chunks = 2;
    const Plan plan = plan_of(scenario, tied_profile());
    Bytes weights;
    for (const StageState& state : plan->states) {
        weights += state.weights;
    }
    EXPECT_EQ(weights, Bytes{460});
    EXPECT_FALSE(sums_gradients(plan));
    EXPECT_THAT(plan->notes, Each(Not(HasSubstr("share"))));
}

TEST(TiedProfile, TwoPipelinesOfOneModelAreRefusedWithTheKey) {
    SettledScenario scenario = with_adam(scenario_of(2, 2, 2));
    scenario.pipeline.schedule = "chimera";
    const Error error = plan_error_of(scenario, tied_profile());
    EXPECT_THAT(error.text(), HasSubstr("tied_bytes"));
    EXPECT_THAT(error.hint(), Not(HasSubstr("tied = false")));
}

TEST(TiedProfile, ItsFileSaysWhatTheEndsShare) {
    const Profile profile = tied_profile();
    EXPECT_EQ(parse_profile(print_profile(profile), "x"), profile);
    EXPECT_THAT(print_profile(chain_profile()), Not(HasSubstr("tied_bytes")));
    for (const std::size_t end : {std::size_t{0}, profile.layers.size() - 1}) {
        Profile small = profile;
        small.layers[end].parameter_bytes = Bytes{39};
        const Error error = error_of([&] { check_profile(small, "x"); });
        EXPECT_EQ(error.place(), "x: /tied_bytes");
        EXPECT_THAT(error.text(), HasSubstr("expected no more than either"));
    }
    Profile alone = profile;
    alone.layers.resize(1);
    EXPECT_EQ(error_of([&] { check_profile(alone, "x"); }).place(), "x: /tied_bytes");
}

/// Llama 3.2 1B: 128,256 x 2,048 numbers of 18 bytes.
TEST(TiedProfile, ThePublishedModelTakesTheTableOnceMore) {
    const DecoderModel model = parse_hf_config(testing::with(testing::llama_config(),
                                                             {{"hidden_size", 2048},
                                                              {"num_hidden_layers", 16},
                                                              {"intermediate_size", 8192},
                                                              {"head_dim", 64},
                                                              {"tie_word_embeddings", true}})
                                                   .dump(),
                                               "config.json");
    Profile tied =
        estimated_profile(model, find_device("h100-sxm"), {.sequence = 4096, .precision = "bf16"});
    tied.device.clear();
    Profile alone = tied;
    alone.tied_bytes = {};
    alone.layers.back().parameter_bytes -= tied.tied_bytes;
    SettledScenario scenario = with_adam(scenario_of(2, 8, 8));
    scenario.training.precision = Precision::Bf16;
    const std::vector<MemoryUse> with = peak_memory(plan_of(scenario, tied));
    const std::vector<MemoryUse> without = peak_memory(plan_of(scenario, alone));
    EXPECT_EQ(with[0].total(), without[0].total());
    EXPECT_EQ(with[1].total() - without[1].total(), Bytes{18LL * 128'256 * 2'048});
}

/// zb-v has both ends on one rank, which holds the shared weights once.
TEST(TiedProfile, CostsThatPartitionsHaveInCommonGiveThePlanOfEachAlone) {
    const Profile profile = tied_profile();
    for (const std::string schedule : {"1f1b", "gpipe", "zb-v"}) {
        SettledScenario scenario = with_adam(scenario_of(2, 4, 4));
        scenario.pipeline.schedule = schedule;
        scenario.pipeline.chunks = schedule == "zb-v" ? 2 : 1;
        const int pieces = scenario.pipeline.pieces();
        const Model model = scenario_model(scenario, &profile);
        const SettledScenario open = scenario;
        const Planner planner(open, model, profile);
        const Plan first = planner.plan(RowsFrom::Generator);
        EXPECT_EQ(planner.layer_costs().counted_once.has_value(), schedule == "zb-v");
        for (const std::vector<int>& sizes : all_partitions(5, pieces)) {
            scenario.pipeline.partition = sizes;
            const Plan alone = make_plan(scenario, model, profile, RowsFrom::Generator);
            const Plan shared = planner.plan_with_rows_of(first, sizes);
            PlanParts named = shared.parts();
            named.layer_names = alone->layer_names;
            named.notes = alone->notes;
            EXPECT_EQ(print_plan(Plan::make(named)), print_plan(alone)) << schedule;
            EXPECT_EQ(shared->schedule, alone->schedule) << schedule;
        }
    }
}

}  // namespace tied_profile_test
}  // namespace pipetwin

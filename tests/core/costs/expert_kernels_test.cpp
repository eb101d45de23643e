// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack.h"
#include "core/costs/layer_estimator.h"
#include "core/costs/layer_work.h"
#include "core/interop/hf_config.h"

/// What the host does for kernels of experts, and which kernels there are.
namespace pipetwin {
namespace expert_kernels_test {

using std::chrono::microseconds;

/// A shipped stack, with the launches that `change` makes.
template <class Change>
EstimateOptions with_launches_of(const Change& change, const std::string& precision = "bf16") {
    auto stack = std::make_shared<Stack>(*find_stack("megatron-bridge-2026"));
    stack->launch = {.gap = {.value = Duration{}}, .host = {.value = microseconds(1)}};
    for (Stack::Casts& row : stack->casts) {
        row.bytes.value.grouped_kernels = row.bytes.value.grouped_bytes = 0;
    }
    change(*stack);
    EstimateOptions options;
    options.precision = precision;
    take_stack(stack, options);
    return options;
}

constexpr int matrices = 16;

LayerWork grouped(const EstimateOptions& options, bool waits) {
    static const DeviceProfile device = find_device("b200");
    LayerWork work(device, options);
    work.product(4096, 2048, 4096);
    work.begin_experts(waits);
    work.product({.rows = 32768, .inputs = 2048, .outputs = 1536, .matrices = matrices});
    work.end_experts();
    return work;
}

void graphs_with_waiting_host(Stack& stack) {
    stack.launch.graphs = true;
    stack.launch.expert_host = Fact<Stack::Launch::ExpertHost>{
        .value = {.kernel = microseconds(3), .matrix = microseconds(7)}};
}

TEST(ExpertKernels, AreInNoGraphWhereTheHostWaitsForTheirRows) {
    const LayerSample sample = grouped(with_launches_of(graphs_with_waiting_host), true).sample();
    // One kernel of 3 us and 16 matrices of 7 us each, in launches of 1 us; all else is in a graph.
    constexpr int of_pass = 3 + matrices * 7;
    EXPECT_EQ(sample.forward_kernels, of_pass);
    EXPECT_EQ(sample.backward_input_kernels + sample.backward_weight_kernels, 2 * of_pass);
    const double share = static_cast<double>(sample.backward_input.count()) /
                         static_cast<double>(sample.backward().count());
    EXPECT_NEAR(sample.backward_input_kernels, 2 * of_pass * share, 1);
}

TEST(ExpertKernels, AreInTheGraphWhereRowsAreKnown) {
    const LayerSample sample = grouped(with_launches_of(graphs_with_waiting_host), false).sample();
    EXPECT_EQ(sample.forward_kernels, 0);
    EXPECT_EQ(sample.backward_input_kernels + sample.backward_weight_kernels, 0);
}

TEST(ExpertKernels, CountAsAllOthersWhereAStackSaysNothingOfThem) {
    const EstimateOptions options = with_launches_of([](Stack&) {});
    EXPECT_EQ(grouped(options, true).sample().forward_kernels, 2);
    EXPECT_EQ(grouped(options, false).sample().forward_kernels, 2);
}

TEST(ExpertKernels, HaveTheirOwnGap) {
    const LayerSample without = grouped(with_launches_of([](Stack&) {}), true).sample();
    const LayerSample sample = grouped(with_launches_of([](Stack& stack) {
                                           stack.launch.experts_gap =
                                               Fact<Duration>{.value = microseconds(20)};
                                       }),
                                       true)
                                   .sample();
    EXPECT_EQ(sample.forward - without.forward, microseconds(20));
    EXPECT_EQ(sample.backward_input - without.backward_input, microseconds(20));
    EXPECT_EQ(sample.backward_weight - without.backward_weight, microseconds(20));
}

/// An operand of many matrices is cast one by one: kernels of each, and its largest number is
/// looked for in a pass of its own.
TEST(ExpertKernels, CastTheOperandsOfEachMatrixOnItsOwn) {
    const auto with_gap = [](Stack& stack) { stack.launch.gap.value = microseconds(2); };
    const LayerSample without = grouped(with_launches_of(with_gap, "fp8"), true).sample();
    const EstimateOptions options = with_launches_of(
        [&with_gap](Stack& stack) {
            with_gap(stack);
            for (Stack::Casts& row : stack.casts) {
                row.bytes.value.grouped_kernels = 4;
                row.bytes.value.grouped_bytes = 2;
            }
        },
        "fp8");
    const LayerSample sample = grouped(options, true).sample();
    const DeviceProfile device = find_device("b200");
    const CastBytes& casts = *options.stack->casts_of("b200", "fp8");
    const double rate = device.memory_rate.value * casts.memory_share;
    const double kernels = 4.0 * matrices * 2000;
    EXPECT_NEAR(static_cast<double>((sample.forward - without.forward).count()),
                kernels + 2e9 * 32768 * 2048 / rate,
                2);
    EXPECT_NEAR(static_cast<double>((sample.backward_input - without.backward_input).count()),
                kernels + 2e9 * 32768 * 1536 / rate,
                2);
    EXPECT_EQ(sample.backward_weight, without.backward_weight);
}

LayerSample layer_of_experts(ExpertDispatch dispatch) {
    static const DeviceProfile device = find_device("b200");
    static const DecoderModel model = parse_hf_config(
        R"({"model_type": "mixtral", "num_hidden_layers": 2, "hidden_size": 1024,
            "intermediate_size": 512, "num_attention_heads": 8, "num_key_value_heads": 8,
            "vocab_size": 32000, "num_local_experts": 16, "num_experts_per_tok": 4})",
        "config.json");
    static const EstimateOptions options = [] {
        EstimateOptions all =
            with_launches_of([](Stack& stack) { stack.passes.rows = stack.passes.copies; });
        all.sequence = 4096;
        return all;
    }();
    const LayerDivision division{.expert = 4, .dispatch = dispatch};
    return LayerEstimator(model, device, options, 1, division).feed_forward(0).sample;
}

/// An all-to-all sends rows that were copied for each expert of a token, and sorts what it receives
/// once more; DeepEP and HybridEP send tokens, and copy what they receive to its experts, once.
TEST(ExpertKernels, RowsAreSortedOnceWhereTokensAreSent) {
    const LayerSample all_to_all = layer_of_experts(ExpertDispatch::Nccl);
    const LayerSample hybrid = layer_of_experts(ExpertDispatch::HybridEp);
    EXPECT_EQ(layer_of_experts(ExpertDispatch::DeepEp).forward, hybrid.forward);
    constexpr double rows = 4096.0 * 4;  // sent, and in the mean received
    // There: rows copied, and sorted; back: sorted, and summed over 4 experts to 4,096 tokens.
    const double more = (2 * rows + 2 * rows + 2 * rows + rows + 4096 - 4 * rows) * 1024 * 2;
    const double rate = find_device("b200").memory_rate.value *
                        find_stack("megatron-bridge-2026")->passes.copies.value;
    EXPECT_NEAR(
        static_cast<double>((all_to_all.forward - hybrid.forward).count()), more / rate * 1e9, 4);
}

}  // namespace expert_kernels_test
}  // namespace pipetwin

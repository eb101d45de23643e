// SPDX-License-Identifier: Apache-2.0
#include "core/costs/devices/stack.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "core/costs/devices/number_type.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack_choice.h"
#include "core/costs/devices/stack_toml.h"
#include "core/costs/estimate.h"
#include "core/costs/layer_work.h"
#include "core/costs/profile_json.h"
#include "core/interop/hf_config.h"
#include "core/text/json_text.h"
#include "tests/support/error_of.h"
#include "tests/support/scenario_plans.h"
#include "tests/support/scratch_folder.h"

namespace pipetwin {
namespace stack_test {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

/// A stack of one device, in bf16 and fp8.
constexpr std::string_view small_stack = R"(schema_version = 1
name = "small"
description = "a stack for tests"
year = 2024
frameworks = ["megatron"]
[kernels]
blocks = "fused"
loss = "fused"
attention = "flash"
[passes]
copies = { value = 0.5, kind = "measured", source = "a" }
activations = { value = 0.5, kind = "measured", source = "a" }
norms_forward = { value = 0.5, kind = "measured", source = "a" }
norms_backward = { value = 0.25, kind = "measured", source = "a" }
loss_forward_bytes = { value = 10, kind = "counted", source = "b" }
loss_backward_bytes = { value = 20, kind = "counted", source = "b" }
[[products]]
devices = ["h100-sxm"]
precision = "bf16"
large = 0.8
half_size = 0
kind = "measured"
source = "a, b"
[[products]]
devices = ["h100-sxm"]
precision = "fp8"
large = 0.9
half_size = 0
kind = "measured"
source = "a"
[[sustained]]
devices = ["h100-sxm"]
share = 0.5
kind = "fitted"
source = "b"
fitted_to = "two rows"
leave_one_out_percent = 4.5
[[attention]]
devices = ["h100-sxm"]
implementation = "one"
head_size = 128
forward = 0.6
half_forward = 1000
half_work_forward = 20000
backward = 0.5
half_backward = 2000
half_work_backward = 0
kind = "measured"
source = "a"
[[attention]]
devices = ["h100-sxm"]
implementation = "one"
head_size = 64
forward = 0.3
half_forward = 1000
half_work_forward = 20000
backward = 0.2
half_backward = 2000
half_work_backward = 0
kind = "measured"
source = "a"
[[casts]]
precision = "fp8"
input_bytes = 3
gradient_bytes = 6
weight_bytes = 6
weights = "once a step"
memory_share = 0.6
kept_weight_bytes = 2
kind = "counted"
source = "b"
[overlap]
tensor = { hidden = true, kind = "counted", source = "b" }
tensor_gather = { multiprocessors = 1, chunks = 4, in_8_bits = true, kind = "counted", source = "b" }
tensor_sum = { multiprocessors = 20, chunks = 4, kind = "counted", source = "b" }
tensor_bulk = { multiprocessors = 4, kind = "counted", source = "b" }
gradients = { hidden = true, multiprocessors = 16, kind = "counted", source = "b" }
weights = { hidden = true, multiprocessors = 16, kind = "counted", source = "b" }
[collectives]
latency_us = { value = 22, kind = "measured", source = "a" }
per_device_us = { value = 2.5, kind = "measured", source = "a" }
per_node_us = { value = 10, kind = "measured", source = "a" }
bucket_numbers = { least = 40000000, per_replica = 1000000, kind = "counted", source = "b" }
straggler = { sigma = 0.012, kind = "estimated", source = "a" }
zero1 = "bucketed"
[launch]
gap_ns = { value = 2500, kind = "estimated", source = "a" }
kernel_ns = { value = 5000, kind = "estimated", source = "a" }
graphs = false
[stored]
gradients = "fp32"
inputs_in_8_bits = { value = true, kind = "counted", source = "b" }
reshard_after_forward = "last-micro-batch"
offload_blocks = "none"
[memory]
products_workspace_bytes = { value = 1000, kind = "datasheet", source = "a" }
communicator_bytes = { value = 2000, kind = "measured", source = "a" }
tensor_buffers = { count = 4, kind = "counted", source = "b" }
allocator_reserve = { value = 0.03, kind = "estimated", source = "a" }
[sources]
a = "a table"
b = "its code"
)";

/// The text with the first `before` replaced.
std::string changed(std::string_view before, std::string_view after) {
    std::string text(small_stack);
    const std::size_t at = text.find(before);
    EXPECT_NE(at, text.npos) << before;
    return text.replace(at, before.size(), after);
}

Error refusal(std::string_view before, std::string_view after) {
    return error_of([&] { parse_stack(changed(before, after), "x.toml"); });
}

// --- The reader. ---

TEST(StackToml, IsReadWithKindsAndSources) {
    const Stack stack = parse_stack(small_stack, "x.toml");
    EXPECT_EQ(stack.name, "small");
    EXPECT_EQ(stack.products[0].reached.source, "a, b");
    EXPECT_EQ(stack.sustained[0].share.kind, FactKind::Fitted);
    EXPECT_EQ(stack.sustained[0].share.fitted_to, "two rows");
    EXPECT_EQ(stack.sustained[0].share.leave_one_out_percent, 4.5);
    EXPECT_EQ(stack.overlap.tensor_sum.value.multiprocessors, 20);
    EXPECT_EQ(stack.overlap.tensor_bulk.value.chunks, 0);
    EXPECT_TRUE(stack.overlap.tensor_gather.value.in_8_bits);
    EXPECT_EQ(stack.stored.reshard, Reshard::LastMicroBatch);
    EXPECT_TRUE(stack.stored.fp32_gradients);
    EXPECT_TRUE(stack.casts_of("h100-sxm", "fp8")->once_a_step);
    EXPECT_EQ(stack.casts_of("h100-sxm", "fp8")->kept_of_weights, 2);
    EXPECT_EQ(stack.casts_of("h100-sxm", "mxfp8"), nullptr);
    EXPECT_EQ(stack.products_of("h100-sxm", "bf16")->large, 0.8 * 0.5);
    EXPECT_FALSE(stack.products_of("h100-sxm", "fp32"));
    EXPECT_EQ(stack.products_of("h100-sxm", "fp16"), stack.products_of("h100-sxm", "bf16"));
    EXPECT_FALSE(stack.products_of("h200-sxm", "bf16"));
}

/// Files of before the keys lack them.
TEST(StackToml, SomeOfMemoryMayBeLeftOut) {
    const Stack without = parse_stack(small_stack, "x.toml");
    EXPECT_EQ(without.stored.beside_sums, GradientsBesideSums::None);
    EXPECT_FALSE(without.memory.runtime);
    EXPECT_FALSE(without.stored.gate_activations);
    EXPECT_FALSE(without.stored.gate_products);
    EXPECT_FALSE(without.stored.beside_logits);
    EXPECT_FALSE(without.memory.process_groups);
    EXPECT_FALSE(without.memory.kept_messages);
    const Stack with = parse_stack(
        changed("[memory]\n",
                "gradients_beside_sums = \"buckets\"\n"
                "gate_activations = { value = true, kind = \"counted\", source = \"b\" }\n"
                "gate_products = { value = false, kind = \"counted\", source = \"b\" }\n"
                "beside_logits_bytes = { value = 4, kind = \"counted\", source = \"b\" }\n"
                "[memory]\n"
                "kept_messages = { tensor_sums = 1, gathered_weights = 2, kind = \"counted\", "
                "source = \"b\" }\n"
                "runtime_bytes = { value = 700, kind = \"measured\", source = \"a\" }\n"
                "process_groups = { always = 1, stages = 3, replicas = 2, tensor = 4, kind = "
                "\"counted\", source = \"b\" }\n"),
        "x.toml");
    EXPECT_EQ(with.stored.beside_sums, GradientsBesideSums::Buckets);
    EXPECT_TRUE(with.stored.gate_activations->value);
    EXPECT_FALSE(with.stored.gate_products->value);
    EXPECT_EQ(with.stored.beside_logits->value, 4);
    EXPECT_EQ(with.memory.kept_messages->value,
              (Stack::Memory::Kept{.tensor_sums = 1, .gathered_weights = 2}));
    EXPECT_EQ(with.memory.runtime->value, Bytes{700});
    EXPECT_EQ(with.memory.process_groups->value,
              (Stack::Memory::ProcessGroups{.always = 1, .stages = 3, .replicas = 2, .tensor = 4}));
    EXPECT_THAT(refusal("[memory]", "gradients_beside_sums = \"all\"\n[memory]").what(),
                HasSubstr("buckets"));
    EXPECT_THAT(refusal("[memory]\n",
                        "[memory]\nprocess_groups = { always = 1, kind = \"counted\", "
                        "source = \"b\" }\n")
                    .what(),
                HasSubstr("stages is missing"));
}

TEST(StackToml, SaysHowPartsOfSamplesAttendWhereTheyDoInSteps) {
    EXPECT_FALSE(parse_stack(small_stack, "x.toml").context);
    const std::string steps =
        "[context]\noutput_bytes = 10\nquery_bytes = 9\nkey_bytes = 8\nmessage_bytes = 4\n"
        "gradient_bytes = 4\nrepeats_keys = true\nkind = \"counted\"\nsource = \"b\"\n";
    const Stack with = parse_stack(changed("[memory]\n", steps + "[memory]\n"), "x.toml");
    EXPECT_EQ(with.context->value,
              (Stack::Context{.output_bytes = 10,
                              .query_bytes = 9,
                              .key_bytes = 8,
                              .message_bytes = 4,
                              .gradient_bytes = 4,
                              .repeats_keys = true}));
    EXPECT_THAT(refusal("[memory]\n", "[context]\noutput_bytes = 10\n[memory]\n").what(),
                HasSubstr("is missing"));
}

TEST(StackToml, RefusesWhatItDoesNotKnowWithLineAndColumn) {
    const Error unknown = refusal("half_size = 0", "half_size = 0\nhalf_sise = 1");
    EXPECT_EQ(unknown.kind(), ErrorKind::BadInput);
    EXPECT_EQ(unknown.place(), "x.toml:22:1");
    EXPECT_THAT(unknown.what(), AllOf(HasSubstr("'half_sise'"), HasSubstr("'half_size'")));
    EXPECT_THAT(refusal("[sources]", "[fonts]\n[sources]").what(), HasSubstr("'fonts'"));
    EXPECT_THAT(refusal("tensor_bulk = {", "tensor_bulk = { chunks = 4,").what(),
                HasSubstr("'chunks'"));
}

TEST(StackToml, RefusesANumberWithoutItsGround) {
    const Error kind = refusal("value = 0.25, kind = \"measured\"", "value = 0.25");
    EXPECT_THAT(kind.what(), HasSubstr("passes.norms_backward.kind is missing"));
    EXPECT_THAT(kind.hint(), HasSubstr("docs/devices.md"));
    EXPECT_THAT(refusal("kind = \"fitted\"", "kind = \"guessed\"").what(), HasSubstr("fitted"));
    const Error source = refusal("source = \"a, b\"", "source = \"a, c\"");
    EXPECT_EQ(source.place(), "x.toml:23:10");
    EXPECT_THAT(source.hint(), HasSubstr("'c'"));
    EXPECT_THAT(refusal("fitted_to = \"two rows\"\n", "").what(), HasSubstr("fitted_to"));
    EXPECT_THAT(refusal("kind = \"fitted\"", "kind = \"measured\"").what(),
                HasSubstr("\"fitted\""));
}

TEST(StackToml, RefusesValuesThatCannotBe) {
    EXPECT_THAT(refusal("large = 0.8", "large = 1.2").what(), HasSubstr("up to 1"));
    EXPECT_THAT(refusal("large = 0.8", "large = 0").what(), HasSubstr("above 0"));
    EXPECT_THAT(refusal("large = 0.8\n", "").what(), HasSubstr("large is missing"));
    EXPECT_THAT(refusal("half_forward = 1000", "half_forward = -1").what(), HasSubstr("-1"));
    EXPECT_THAT(refusal("precision = \"fp8\"", "precision = \"fp9\"").what(), HasSubstr("fp9"));
    EXPECT_THAT(refusal("schema_version = 1", "schema_version = 2").what(), HasSubstr("2"));
    EXPECT_THAT(refusal("weights = \"once a step\"", "weights = \"daily\"").what(),
                HasSubstr("every micro-batch"));
    EXPECT_THAT(refusal("precision = \"fp8\"", "precision = \"bf16\"").what(),
                HasSubstr("once for each precision"));
}

TEST(StackToml, RefusesADeviceOfWhichSomethingIsMissing) {
    EXPECT_THAT(refusal("devices = [\"h100-sxm\"]", "devices = [\"h100-sxm\", \"b200\"]").what(),
                AllOf(HasSubstr("sustained"), HasSubstr("'b200'")));
    EXPECT_THAT(refusal("precision = \"fp8\"", "precision = \"mxfp8\"").what(),
                AllOf(HasSubstr("casts"), HasSubstr("mxfp8")));
    EXPECT_THAT(refusal("precision = \"bf16\"", "precision = \"fp16\"").what(),
                AllOf(HasSubstr("products"), HasSubstr("bf16")));
}

TEST(Stack, TakesTheNearestSizeOfHeads) {
    const Stack stack = parse_stack(small_stack, "x.toml");
    EXPECT_EQ(stack.attention_of("h100-sxm", 192)->head_size, 128);
    EXPECT_EQ(stack.attention_of("h100-sxm", 80)->head_size, 64);
    EXPECT_EQ(stack.attention_of("b200", 128), nullptr);
}

// --- What it makes of an estimate. ---

EstimateOptions with_small_stack(std::string precision = "bf16") {
    EstimateOptions options{.sequence = 1000, .precision = std::move(precision)};
    options.stack = std::make_shared<const Stack>(parse_stack(small_stack, "x.toml"));
    return options;
}

/// 100 TFLOP/s in bf16, 200 in fp8, 1 TB/s.
DeviceProfile round_device() {
    DeviceProfile device{.name = "h100-sxm"};
    device.matrix_rates["bf16"].value = 100e12;
    device.matrix_rates["fp8"].value = 200e12;
    device.memory_rate.value = 1e12;
    return device;
}

/// Nanoseconds.
double expected(double operations, double rate) {
    return operations / rate * 1e9;
}

TEST(StackEstimate, ProductsHaveTheirSustainedRate) {
    const DeviceProfile device = round_device();
    LayerWork work(device, with_small_stack());
    work.product(8192, 8192, 8192);
    const double operations = 2 * 8192.0 * 8192 * 8192;
    constexpr double gap = 2500;
    EXPECT_NEAR(static_cast<double>(work.sample().forward.count()),
                expected(operations, 100e12 * 0.4) + gap,
                2);
}

TEST(StackToml, CastsOfADeviceGoBeforeThoseOfAllOthers) {
    const Stack stack = parse_stack(changed("[[casts]]\n",
                                            "[[casts]]\ndevices = [\"gb200\"]\n"
                                            "precision = \"fp8\"\n"
                                            "input_bytes = 3\n"
                                            "gradient_bytes = 2\n"
                                            "weight_bytes = 5\n"
                                            "weights = \"once a step\"\n"
                                            "memory_share = 0.6\n"
                                            "kept_weight_bytes = 0\n"
                                            "kind = \"counted\"\n"
                                            "source = \"b\"\n"
                                            "[[casts]]\n"),
                                    "x.toml");
    EXPECT_EQ(stack.casts_of("gb200", "fp8")->of_gradients, 2);
    EXPECT_EQ(stack.casts_of("h100-sxm", "fp8")->of_gradients, 6);
    EXPECT_EQ(stack.casts_of("gb200", "mxfp8"), nullptr);
}

/// Products of Blackwell take operands in 8 bits of either layout, so no transpose is written: of a
/// weight, of a gradient, and of its product's input, which is read for that, too.
TEST(ShippedStacks, NothingIsTransposedInEightBitsOnBlackwell) {
    for (const char* name : {"megatron-bridge-2025", "megatron-bridge-2026"}) {
        const auto stack = find_stack(name);
        const CastBytes& hopper = *stack->casts_of("h100-sxm", "fp8");
        for (const char* device : {"b200", "gb200", "b300", "gb300"}) {
            const CastBytes& blackwell = *stack->casts_of(device, "fp8");
            EXPECT_EQ(blackwell.of_inputs, hopper.of_inputs);
            EXPECT_EQ(blackwell.of_gradients, hopper.of_gradients - 3);
            EXPECT_EQ(blackwell.of_weights, hopper.of_weights - 1);
        }
    }
}

/// A row that lists a precision goes before the one for all others.
TEST(StackEstimate, PrecisionsMayHaveASustainedRateOfTheirOwn) {
    Stack stack = *with_small_stack().stack;
    const double of_all = stack.products_of("h100-sxm", "fp8")->large;
    Stack::Sustained row = stack.sustained.front();
    row.precisions = {"bf16"};
    row.share.value = 0.25;
    stack.sustained.push_back(row);
    EXPECT_EQ(stack.products_of("h100-sxm", "bf16")->large, 0.8 * 0.25);
    EXPECT_EQ(stack.products_of("h100-sxm", "fp16")->large, 0.8 * 0.25);
    EXPECT_EQ(stack.products_of("h100-sxm", "fp8")->large, of_all);
}

TEST(StackEstimate, AttentionHasARateForEachDirection) {
    const DeviceProfile device = round_device();
    LayerWork work(device, with_small_stack());
    work.flash_attention({.samples = 1,
                          .sequence = 1000,
                          .seen = 500,
                          .heads = 20,
                          .key_value_heads = 20,
                          .key_width = 128,
                          .value_width = 128});
    const double forward = 1000.0 * 500 * 20 * 2 * 256;
    const LayerSample sample = work.sample();
    EXPECT_NEAR(static_cast<double>(sample.forward.count()),
                expected(forward, 100e12 * 0.6 / 2 / 2) + 2500,
                2);
    EXPECT_NEAR(static_cast<double>(sample.backward_input.count()),
                expected(2.5 * forward, 100e12 * 0.5 / 3) + 2500,
                2);
}

TEST(StackEstimate, WeightsAreCastOnceAStep) {
    const DeviceProfile device = round_device();
    EstimateOptions options = with_small_stack("fp8");
    LayerWork once(device, options);
    once.product(64, 8192, 8192);
    const double cast = 8192.0 * 8192 * 6 / (1e12 * 0.6);
    EXPECT_DOUBLE_EQ(once.weight_cast(), cast);
    options.stack = std::make_shared<const Stack>(
        parse_stack(changed("\"once a step\"", "\"every micro-batch\""), "x.toml"));
    LayerWork each(device, options);
    each.product(64, 8192, 8192);
    EXPECT_EQ(each.weight_cast(), 0);
    EXPECT_NEAR(static_cast<double>((each.sample().forward - once.sample().forward).count()),
                cast * 1e9,
                2);
    EXPECT_NEAR(
        static_cast<double>((each.sample().backward_input - once.sample().backward_input).count()),
        cast / 2 * 1e9,
        2);
}

/// Eight inner numbers a token in two bytes: the two halves of a gated feed-forward and their
/// product, 6 bytes of each, and 2 more where the gate's activation stays; of 16 logits 4 bytes,
/// and beside them 2, or 4 of exponentials. No time follows from that. Where a backward makes the
/// product again 4 bytes stay, and the backward has the other 2 while it runs.
TEST(StackEstimate, KeepsWhatItsKernelsDoNotFuse) {
    DecoderModel model;
    model.width = 4;
    model.feed_forward = 8;
    model.gated = true;
    model.blocks = 1;
    model.vocabulary = 16;
    model.attention = {.heads = 1, .key_value_heads = 1, .key_width = 4, .value_width = 4};
    EstimateOptions options = with_small_stack();
    options.sequence = 10;
    options.loss = LossKernels::Fused;
    Stack stack = *options.stack;
    stack.kernels.loss = LossKernels::Fused;
    options.stack = std::make_shared<const Stack>(stack);
    const Profile fused = estimated_profile(model, round_device(), options);
    stack.stored.gate_activations = {.value = true};
    stack.stored.beside_logits = {.value = 4};
    options.stack = std::make_shared<const Stack>(stack);
    const Profile kept = estimated_profile(model, round_device(), options);
    const auto samples = [](const Profile& of) {
        return std::pair(of.layers.at(2).samples.front(), of.layers.back().samples.front());
    };
    const auto [inner, head] = samples(fused);
    const auto [kept_inner, kept_head] = samples(kept);
    EXPECT_EQ(kept_inner.saved - inner.saved, Bytes{10 * 8 * 2});
    EXPECT_EQ(kept_inner.forward, inner.forward);
    EXPECT_EQ(head.workspace, Bytes{10 * 16 * 2});
    EXPECT_EQ(kept_head.workspace, Bytes{10 * 16 * 4});
    EXPECT_EQ(kept_head.forward, head.forward);
    stack.stored.gate_activations.reset();
    stack.stored.gate_products = {.value = false};
    options.stack = std::make_shared<const Stack>(stack);
    const LayerSample again = samples(estimated_profile(model, round_device(), options)).first;
    EXPECT_EQ(inner.saved - again.saved, Bytes{10 * 8 * 2});
    EXPECT_EQ(again.saved + again.workspace, inner.saved + inner.workspace);
    EXPECT_EQ(again.forward, inner.forward);
    EXPECT_GE(again.backward(), inner.backward());
}

TEST(StackEstimate, PassesAndLossMoveTheirBytes) {
    const DeviceProfile device = round_device();
    LayerWork norm(device, with_small_stack());
    norm.norm(1e6, 1000);
    EXPECT_NEAR(static_cast<double>(norm.sample().forward.count()), 4e9 / 0.5e12 * 1e9 + 2500, 2);
    EXPECT_NEAR(
        static_cast<double>(norm.sample().backward_input.count()), 6e9 / 0.25e12 * 1e9 + 2500, 2);
    LayerWork loss(device, with_small_stack());
    loss.loss(1e9, LossKernels::Fused);
    EXPECT_NEAR(static_cast<double>(loss.sample().forward.count()), 10e9 / 0.5e12 * 1e9 + 2500, 2);
    EstimateOptions other = with_small_stack();
    other.loss = LossKernels::Standard;  // not the stack's
    LayerWork standard(device, other);
    standard.loss(1e9, LossKernels::Standard);
    EXPECT_GT(standard.sample().forward, loss.sample().forward);
}

TEST(StackEstimate, RowsOfExpertsHaveAShareOfTheirOwn) {
    const DeviceProfile device = round_device();
    EstimateOptions options = with_small_stack();
    LayerWork as_copies(device, options);
    as_copies.sort_rows(1e9, 2e9);
    EXPECT_NEAR(
        static_cast<double>(as_copies.sample().forward.count()), 2e9 / 0.5e12 * 1e9 + 2500, 2);
    options.stack = std::make_shared<const Stack>(parse_stack(
        changed("[passes]\n",
                "[passes]\nrows = { value = 0.25, kind = \"measured\", source = \"a\" }\n"),
        "x.toml"));
    LayerWork rows(device, options);
    rows.sort_rows(1e9, 2e9);
    EXPECT_NEAR(static_cast<double>(rows.sample().forward.count()), 2e9 / 0.25e12 * 1e9 + 2500, 2);
    EXPECT_NEAR(
        static_cast<double>(rows.sample().backward_input.count()), 4e9 / 0.25e12 * 1e9 + 2500, 2);
}

TEST(StackEstimate, GroupedProductsMoveTheirBytesAndThenMultiply) {
    const DeviceProfile device = round_device();
    LayerWork grouped(device, with_small_stack());
    grouped.product({.rows = 8192, .inputs = 4096, .outputs = 4096, .matrices = 16});
    const double moved = 2.0 * (8192 * 4096 + 16.0 * 4096 * 4096 + 8192 * 4096) / 0.5e12 * 1e9;
    EXPECT_NEAR(static_cast<double>(grouped.sample().forward.count()),
                expected(2 * 8192.0 * 4096 * 4096, 40e12) + moved + 2500,
                3);
}

TEST(StackEstimate, UpdatesMoveTheBytesOfTheStack) {
    EstimateOptions options = with_small_stack();
    const DeviceProfile device = round_device();
    const Duration usual = adamw_time(1000000, device, options);
    options.stack = std::make_shared<const Stack>(parse_stack(
        changed("[passes]\n",
                "[passes]\nupdate_bytes = { value = 56, kind = \"counted\", source = \"b\" }\n"),
        "x.toml"));
    EXPECT_EQ(adamw_time(1000000, device, options), 2 * usual);
}

TEST(StackEstimate, EfficienciesOfTheOptionsWin) {
    const DeviceProfile device = round_device();
    EstimateOptions options = with_small_stack();
    options.efficiency = 1;
    options.memory_efficiency = 1;
    LayerWork work(device, options);
    work.product(8192, 8192, 8192);
    EXPECT_NEAR(static_cast<double>(work.sample().forward.count()),
                expected(2 * 8192.0 * 8192 * 8192, 100e12) + 2500,
                2);
}

TEST(StackEstimate, GraphsAreOneLaunch) {
    const DeviceProfile device = round_device();
    EstimateOptions options = with_small_stack();
    LayerWork single(device, options);
    single.product(8, 8, 8);
    EXPECT_GT(single.sample().forward_kernels, 0);
    options.stack =
        std::make_shared<const Stack>(parse_stack(changed("graphs = false", "graphs = true"), "x"));
    LayerWork graph(device, options);
    graph.product(8, 8, 8);
    EXPECT_EQ(graph.sample().forward_kernels, 0);
    EXPECT_EQ(graph.sample().forward, single.sample().forward);
}

/// Time of all layers in nanoseconds, those of experts on one of 32 devices, and of the casts of a
/// step.
struct Times {
    double compute = 0;
    double casts = 0;
};

Times times_of(std::string_view model, std::string_view device, EstimateOptions options) {
    const std::filesystem::path file = find_model(model);
    const DecoderModel decoder =
        parse_hf_config(read_file(file, JsonLimits{}.max_bytes), file.string());
    const LayerDivision division{.expert = decoder.experts.count > 0 ? 32 : 1};
    const Profile profile = estimated_profile(decoder, find_device(device), options, division);
    Times times;
    for (const LayerCost& layer : profile.layers) {
        const LayerSample sample = cost_at(layer, options.micro_batch_size);
        times.compute += static_cast<double>((sample.forward + sample.backward()).count());
        times.casts += static_cast<double>(layer.weight_cast.count());
    }
    return times;
}

/// A step of 16 micro-batches in 8 bits takes no longer than the same step in bf16. Casts of few
/// rows for each of many experts can: hence experts on one of several devices, as they are trained.
TEST(StackEstimate, EightBitsAreNeverSlowerWhereWeightsAreCastOnceAStep) {
    for (const std::string& name : stack_names()) {
        const auto stack = find_stack(name);
        for (const std::string& device : stack->devices()) {
            for (const std::string& precision : stack->precisions_of(device)) {
                const CastBytes* const casts = stack->casts_of(device, precision);
                if (casts == nullptr || !casts->once_a_step) {
                    continue;
                }
                for (const char* model : {"llama-3-70b", "llama-3-8b", "deepseek-v3"}) {
                    SCOPED_TRACE(fmt::format("{} {} {} {}", name, device, precision, model));
                    EstimateOptions options{.sequence = 4096, .precision = precision};
                    options.stack = stack;
                    const Times narrow = times_of(model, device, options);
                    options.precision = "bf16";
                    const Times wide = times_of(model, device, options);
                    constexpr int micro_batches = 16;
                    EXPECT_LE(micro_batches * narrow.compute + narrow.casts,
                              micro_batches * wide.compute);
                    EXPECT_GT(narrow.casts, 0);
                }
            }
        }
    }
}

/// What a block keeps in 8 bits, counted from Transformer Engine's linear layers: the two norms'
/// outputs (width each) and the product with the gate (14,336) are inputs of products alone, one
/// byte each; attention's output (4,096) stays in bf16 for attention's backward, and its product
/// keeps a byte beside it.
TEST(StackEstimate, NarrowProductsKeepNarrowInputs) {
    const std::filesystem::path file = find_model("llama-3-8b");
    const DecoderModel config =
        parse_hf_config(read_file(file, JsonLimits{}.max_bytes), file.string());
    EstimateOptions options{.sequence = 1024, .precision = "bf16"};
    options.stack = find_stack("nemo-2024");
    const auto kept = [&](const char* precision) {
        options.precision = precision;
        const Profile profile = estimated_profile(config, find_device("h100-sxm"), options);
        return std::array{cost_at(profile.layers[1], 1).saved, cost_at(profile.layers[2], 1).saved};
    };
    const auto [attention, feed_forward] = kept("bf16");
    const auto [attention8, feed_forward8] = kept("fp8");
    EXPECT_EQ((attention - attention8).count, 1024 * (4096 - 4096));
    EXPECT_EQ((feed_forward - feed_forward8).count, 1024 * (4096 + 14336));
}

/// Two bytes, one for each way round, of every weight of a block's products; the head and the
/// embedding are in bf16.
/// Megatron-Bridge keeps 8-bit weights in place of those in bf16, and 4-bit ones both ways round,
/// with a scale for 16 numbers, beside them (9/16 of a byte each).
TEST(StackEstimate, NarrowCopiesOfWeightsStay) {
    const std::filesystem::path file = find_model("llama-3-8b");
    EstimateOptions options{.sequence = 1024, .precision = "nvfp4"};
    options.stack = find_stack("megatron-bridge-2026");
    const auto estimated = [&] {
        return estimated_profile(
            parse_hf_config(read_file(file, JsonLimits{}.max_bytes), file.string()),
            find_device("gb300"),
            options);
    };
    const Profile profile = estimated();
    EXPECT_EQ(profile.layers[1].weight_copies.count, 4096 * (4096 + 2 * 1024 + 4096) * 9 / 8);
    EXPECT_EQ(profile.layers[2].weight_copies.count, 3 * 4096 * 14336 / 8 * 9);
    EXPECT_EQ(profile.layers.front().weight_copies, Bytes{});
    EXPECT_EQ(profile.layers.back().weight_copies, Bytes{});
    EXPECT_EQ(parse_profile(print_profile(profile), "x.json").layers[1].weight_copies,
              profile.layers[1].weight_copies);
    options.precision = "fp8";
    EXPECT_EQ(estimated().layers[1].weight_copies, Bytes{});
}

TEST(StackEstimate, MoreTokensNeverTakeLessTime) {
    for (const char* precision : {"bf16", "mxfp8", "nvfp4"}) {
        EstimateOptions options{.sequence = 2048, .precision = precision};
        options.stack = find_stack("megatron-bridge-2026");
        double before = 0;
        for (const int size : {1, 2, 4, 8}) {
            options.micro_batch_size = size;
            const double now = times_of("llama-3-8b", "gb200", options).compute;
            EXPECT_GT(now, before) << precision << size;
            EXPECT_LE(now, before == 0 ? now : 2 * before) << precision << size;
            before = now;
        }
    }
}

/// Messages take their part of the device's multiprocessors.
TEST(StackEstimate, MessagesTakeMultiprocessors) {
    const Stack stack = parse_stack(small_stack, "x.toml");
    DeviceProfile device = round_device();
    device.multiprocessors = {.value = 200};
    EXPECT_DOUBLE_EQ(stack.lanes(device).tensor_sum.share, 20.0 / 200);
    EXPECT_EQ(stack.lanes(device).tensor_sum.chunks, stack.overlap.tensor_sum.value.chunks);
    EXPECT_EQ(stack.lanes(device).tensor_bulk.chunks, 0);
    EXPECT_EQ(stack.lanes(device).hides_tensor, stack.overlap.tensor.value);
    device.multiprocessors.reset();  // as H100
    EXPECT_DOUBLE_EQ(stack.lanes(device).tensor_sum.share, 20.0 / 132);
}

/// Layers that devices share say their products, with those of a block's halves in them.
TEST(StackEstimate, SharedLayersSayTheProductsOfTheirEnds) {
    EstimateOptions options{.sequence = 2048, .most_devices = 4};
    const auto profile = [&] {
        const std::filesystem::path file = find_model("llama-3-8b");
        return estimated_profile(
            parse_hf_config(read_file(file, JsonLimits{}.max_bytes), file.string()),
            find_device("h100-sxm"),
            options);
    };
    const auto ends = [](const LayerSample& of) {
        return std::vector<Duration>{
            of.first_forward, of.first_input, of.first_weight, of.last_forward, of.last_input};
    };
    const std::vector<Duration> nothing(5);
    for (const LayerCost& layer : profile().layers) {
        EXPECT_EQ(ends(cost_at(layer, 1, 4)), nothing) << layer.name;
    }
    options.stack = find_stack("nemo-2024");
    const Profile known = profile();
    for (const LayerCost& layer : known.layers) {
        const bool is_half = layer.name.starts_with("block");
        EXPECT_EQ(ends(cost_at(layer, 1)), nothing) << layer.name;
        for (const int devices : {2, 4}) {
            const LayerSample one = cost_at(layer, 1, devices);
            for (const Duration time : ends(one)) {
                EXPECT_EQ(time > Duration{}, is_half) << layer.name;
            }
            EXPECT_LE(one.first_forward + one.last_forward, one.forward) << layer.name;
            EXPECT_LE(one.first_input + one.last_input, one.backward_input) << layer.name;
        }
    }
}

/// The profile says its stack, and no stack leaves everything as it was.
TEST(StackEstimate, IsSaidByTheProfile) {
    EstimateOptions options{.sequence = 2048};
    const auto profile = [&] {
        const std::filesystem::path file = find_model("llama-3-8b");
        return estimated_profile(
            parse_hf_config(read_file(file, JsonLimits{}.max_bytes), file.string()),
            find_device("h100-sxm"),
            options);
    };
    EXPECT_THAT(profile().stack, IsEmpty());
    EXPECT_EQ(profile().launch, Duration{});
    options.stack = find_stack("nemo-2024");
    EXPECT_EQ(profile().stack, "nemo-2024");
    EXPECT_GT(profile().launch, Duration{});
}

// --- What is shipped. ---

TEST(ShippedStacks, AreReadAndExplainTheirNumbers) {
    EXPECT_GE(stack_names().size(), 12U);
    for (const std::string& name : stack_names()) {
        SCOPED_TRACE(name);
        const auto stack = find_stack(name);
        EXPECT_EQ(stack->name, name);
        EXPECT_FALSE(stack->devices().empty());
        for (const std::string& device : stack->devices()) {
            const DeviceProfile profile = find_device(device);
            for (const std::string& precision : stack->precisions_of(device)) {
                EXPECT_TRUE(profile.matrix_rates.contains(rate_precision(precision)))
                    << device << precision;
            }
        }
        for (const Stack::Products& row : stack->products) {
            const bool is_known = row.reached.kind == FactKind::Measured;
            EXPECT_FALSE(is_known && row.reached.source == "guess");
        }
    }
}

/// TFLOP/s in ai-dynamo/aiconfigurator, TensorRT-LLM 1.3.0rc20, gemm_perf, where nothing else runs:
/// rates without the sustained share.
TEST(ShippedStacks, HaveTheProductsOfTheTables) {
    struct Row {
        const char* device;
        double rows;
        double side;
        double teraflops;
    };
    const auto stack = find_stack("megatron-bridge-2026");
    double sum = 0;
    const std::vector<Row> rows{{"h100-sxm", 16384, 12288, 733},
                                {"h100-sxm", 8192, 8192, 783},
                                {"h100-sxm", 4096, 4096, 789},
                                {"gb200", 16384, 12288, 1581},
                                {"gb200", 8192, 8192, 1407},
                                {"gb200", 4096, 4096, 1505}};
    for (const Row& row : rows) {
        const auto alone = std::ranges::find_if(stack->products, [&row](const auto& of) {
            return of.precision == "bf16" && std::ranges::count(of.devices, row.device) > 0;
        });
        const double predicted = find_device(row.device).matrix_rates.at("bf16").value / 1e12 *
                                 alone->reached.value.at(row.rows, row.side, row.side);
        EXPECT_NEAR(predicted, row.teraflops, 0.14 * row.teraflops) << row.device << row.rows;
        sum += predicted / row.teraflops;
    }
    EXPECT_NEAR(sum / static_cast<double>(rows.size()), 1, 0.06);
}

/// TFLOP/s in NVIDIA/cudnn-frontend, benchmark/sdpa_benchmark_training/results, llama3.1: causal,
/// bf16, 64 heads of 128.
TEST(ShippedStacks, HaveTheAttentionOfTheTables) {
    struct Row {
        const char* device;
        double samples;
        double sequence;
        double forward;
        double backward;
    };
    const auto stack = find_stack("megatron-bridge-2026");
    for (const Row& row : {Row{"h200-sxm", 1, 16384, 673, 579},
                           Row{"h200-sxm", 1, 8192, 644, 541},
                           Row{"h200-sxm", 1, 2048, 484, 370},
                           Row{"gb200", 2, 16384, 1708, 1328},
                           Row{"gb300", 2, 16384, 1915, 1507}}) {
        SCOPED_TRACE(fmt::format("{} {}", row.device, row.sequence));
        const AttentionShares shares = stack->attention_of(row.device, 128)->reached.value;
        const double dense = find_device(row.device).matrix_rates.at("bf16").value / 1e12;
        const double work = 64 * row.samples * row.sequence;
        EXPECT_NEAR(dense * shares.forward.at(row.sequence, work), row.forward, 0.05 * row.forward);
        EXPECT_NEAR(
            dense * shares.backward.at(row.sequence, work), row.backward, 0.05 * row.backward);
    }
}

TEST(ShippedStacks, AnUnknownNameListsTheKnown) {
    const Error error = error_of([] { find_stack("nemo-2042", "--stack"); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.place(), "--stack");
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'nemo-2042'"), HasSubstr("megatron-2021")));
    EXPECT_EQ(error.hint(), "did you mean 'nemo-2024'?");
}

TEST(StackFiles, AreFoundByTheirPath) {
    const tests::ScratchFolder folder;
    const std::string file = folder.write("own.toml", small_stack).string();
    const auto stack = find_stack(file);
    EXPECT_EQ(stack->name, file);
    EXPECT_EQ(stack->description, "a stack for tests");
    EXPECT_EQ(find_stack(stack->name), stack);
    EXPECT_EQ(stack_named((folder / "x" / ".." / "own.toml").string()), file);
    EXPECT_EQ(stack_named("nemo-2024"), "nemo-2024");
    EXPECT_TRUE(is_stack_file("own.toml"));
    EXPECT_TRUE(is_stack_file("folder/own"));
    EXPECT_FALSE(is_stack_file("nemo-2024"));
}

TEST(StackFiles, ThatAreNotThereAreRefused) {
    const Error error = error_of([] { find_stack("/nowhere/own.toml", "--stack"); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.place(), "--stack");
    EXPECT_THAT(error.text(), HasSubstr("/nowhere/own.toml"));
    EXPECT_THAT(error.hint(), HasSubstr("megatron-2021"));
    const Error shipped = error_of([] { find_stack("/nowhere/nemo-2024.toml", "--stack"); });
    EXPECT_EQ(shipped.hint(), "did you mean 'nemo-2024'?");
}

/// A profile of costs with a stack's file beside it can be moved together with it.
TEST(StackFiles, OfAProfileStartFromItsFolder) {
    const tests::ScratchFolder folder;
    const auto stack_of_profile = [&](std::string_view word) {
        Profile profile = testing::chain_profile();
        profile.stack = word;
        return read_profile(folder.write("x.profile.json", print_profile(profile))).stack;
    };
    EXPECT_EQ(stack_of_profile("own.toml"), folder / "own.toml");
    EXPECT_EQ(stack_of_profile("/other/own.toml"), "/other/own.toml");
    EXPECT_EQ(stack_of_profile("nemo-2024"), "nemo-2024");
}

TEST(ShippedStacks, TheNewestOfAFrameworkHasTheDevice) {
    EXPECT_EQ(newest_stack("megatron", "gb200"), "megatron-bridge-2026");
    EXPECT_EQ(newest_stack("megatron", "a100-sxm-80"), "megatron-2023");
    EXPECT_EQ(newest_stack("torchtitan", "h100-sxm"), "torchtitan-2026");
    EXPECT_EQ(newest_stack("maxtext", "tpu-v5p"), "maxtext");
    EXPECT_EQ(newest_stack("megatron", "mi300x"), "rocm-megatron");
    EXPECT_THAT(newest_stack("megatron", "p40"), IsEmpty());
    EXPECT_THAT(newest_stack("megatron", "h100-sxm", "nvfp4"), IsEmpty());
}

TEST(ShippedStacks, RefuseWhatTheyDoNotKnowAndNameTheNearest) {
    const auto nemo = find_stack("nemo-2024");
    expect_products(*nemo, "h100-sxm", "fp8", "--stack");
    const Error device = error_of([&] { expect_products(*nemo, "gb200", "bf16", "--stack"); });
    EXPECT_EQ(device.kind(), ErrorKind::BadInput);
    EXPECT_THAT(device.what(), AllOf(StartsWith("--stack"), HasSubstr("'gb200'")));
    EXPECT_THAT(device.hint(), HasSubstr("'megatron-bridge-2026'"));
    const Error precision = error_of([&] { expect_products(*nemo, "h100-sxm", "mxfp8", ""); });
    EXPECT_THAT(precision.what(), AllOf(HasSubstr("mxfp8"), HasSubstr("bf16, fp8")));
    EXPECT_THAT(precision.hint(), Not(HasSubstr("nearest")));
}

}  // namespace stack_test
}  // namespace pipetwin

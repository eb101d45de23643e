// SPDX-License-Identifier: Apache-2.0
#include "core/costs/estimate_source.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack.h"
#include "core/costs/profile_json.h"
#include "core/costs/whole_blocks.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace estimate_source_test {

using testing::error_of;
using ::testing::HasSubstr;

/// h 512, 8 heads and 2 of keys, 64 numbers each, 8 experts of 768 of which a token goes through
/// two, shared ones of 768 together; one dense block and one with experts.
DecoderModel small_model() {
    DecoderModel model{.blocks = 2, .width = 512, .vocabulary = 32000};
    model.attention = {.heads = 8, .key_value_heads = 2, .key_width = 64, .value_width = 64};
    model.feed_forward = 1536;
    model.experts = {.count = 8, .per_token = 2, .width = 768, .shared_width = 768};
    model.has_experts = {false, true};
    return model;
}

constexpr double without_end = 1e40;
constexpr int tokens = 1024;

/// A device of which only operations take time: 1 ns for each thousand.
DeviceProfile counts_operations() {
    DeviceProfile device{.name = "round"};
    device.matrix_rates["bf16"].value = 1e12;
    device.memory_rate.value = without_end;
    return device;
}

EstimateOptions options(int sequence = tokens) {
    return {.sequence = sequence, .precision = "bf16", .efficiency = 1, .memory_efficiency = 1};
}

LayerSample sample(const DecoderModel& model,
                   std::string_view name,
                   const LayerDivision& division,
                   int sequence = tokens) {
    const Profile profile =
        estimated_profile(model, counts_operations(), options(sequence), division);
    const auto found = std::ranges::find(profile.layers, name, &LayerCost::name);
    return cost_at(*found, 1, division.tensor);
}

// --- Experts: the numbers of one layer by hand. ---

TEST(DividedExperts, ADispatchSendsARowForEachExpertOfATokenButThoseThatStay) {
    const LayerSample of_one =
        sample(small_model(), "block1.feed_forward", {.expert = 4, .expert_tensor = 1});
    // 1024 tokens x 2 experts x 512 numbers of 2 bytes, of which 3 of 4 parts leave the device.
    EXPECT_EQ(of_one.traffic.dispatch.count * 3 / 4, 1'572'864);
    EXPECT_EQ(of_one.traffic.combine, of_one.traffic.dispatch);
    EXPECT_EQ(of_one.traffic.expert_rows, Bytes{});
}

TEST(DividedExperts, EveryDeviceComputesAsManyRowsAsItSends) {
    const LayerSample whole = sample(small_model(), "block1.feed_forward", {});
    for (const int parts : {2, 4, 8}) {
        const LayerSample of_one =
            sample(small_model(), "block1.feed_forward", {.expert = parts, .expert_tensor = 1});
        EXPECT_EQ(of_one.forward, whole.forward) << parts;
        EXPECT_EQ(of_one.backward_weight, whole.backward_weight) << parts;
    }
    // Router, routed and shared experts, in operations.
    EXPECT_NEAR(static_cast<double>(whole.forward.count()) * 1e3,
                8'388'608.0 + 4'831'838'208 + 2'415'919'104,
                2e3);
}

TEST(DividedExperts, ADeviceKeepsItsRowsAndNothingOfWhatTheExpertsMade) {
    const LayerSample of_one =
        sample(small_model(), "block1.feed_forward", {.expert = 2, .expert_tensor = 1});
    constexpr std::int64_t row_numbers = 2048;
    constexpr std::int64_t input_and_norm = 2 * (2 * 1024 * 512);
    constexpr std::int64_t scores = 32'768;
    constexpr std::int64_t rows = 2'097'152;
    constexpr std::int64_t inner = 9'437'184;
    constexpr std::int64_t probabilities = 4 * row_numbers;
    constexpr std::int64_t shared = 3 * 2 * 1024 * 768;
    EXPECT_EQ(of_one.saved.count, input_and_norm + scores + rows + inner + probabilities + shared);
}

TEST(DividedExperts, DevicesThatShareAnExpertComputeAPartOfAllRowsThatTheyGet) {
    const LayerSample alone = sample(small_model(), "block1.feed_forward", {.expert = 4});
    const LayerSample shared =
        sample(small_model(), "block1.feed_forward", {.expert = 2, .expert_tensor = 2});
    EXPECT_EQ(shared.forward, alone.forward);
    EXPECT_EQ(shared.traffic.expert_rows.count, 2 * 2 * 1024 * 2 * 512);  // those of both
    EXPECT_EQ(shared.traffic.dispatch, alone.traffic.dispatch);
}

TEST(DividedExperts, TokensThatDevicesDivideAreRoutedOnce) {
    const LayerSample of_two =
        sample(small_model(),
               "block1.feed_forward",
               {.tensor = 2, .sequence_parallel = true, .expert = 4, .expert_tensor = 1});
    EXPECT_EQ(of_two.traffic.dispatch.count, 2 * 512 * 2 * 512);
}

TEST(DividedExperts, TheFullestDeviceHasMoreRowsToSendComputeAndKeep) {
    LayerDivision division{.expert = 4};
    const LayerSample even = sample(small_model(), "block1.feed_forward", division);
    division.load.fullest = 1.5;
    const LayerSample full = sample(small_model(), "block1.feed_forward", division);
    EXPECT_EQ(full.traffic.dispatch.count * 2, even.traffic.dispatch.count * 3);
    // A half of the routed operations more: 4 831 838 208 / 2.
    EXPECT_NEAR(static_cast<double>((full.forward - even.forward).count()), 2'415'919, 2);
    EXPECT_EQ((full.saved - even.saved).count, (2'097'152 + 9'437'184 + 4 * 2048) / 2);
    LayerDivision by_block{.expert = 4};
    by_block.load.of_block = {1, 1.5};
    EXPECT_EQ(sample(small_model(), "block1.feed_forward", by_block), full);
}

TEST(DividedExperts, ACapacityIsCountedForEachDeviceThatSendsAndFilledUp) {
    LayerDivision division{.expert = 4};
    division.load = {.fullest = 3, .capacity = 1.25};
    const LayerSample capped = sample(small_model(), "block1.feed_forward", division);
    // ceil(2048 / 8 x 1.25) = 320 rows of each of 2 experts from each of 4 devices.
    EXPECT_EQ(capped.traffic.dispatch.count, 320 * 2 * 4 * 2 * 512);
}

TEST(DividedExperts, PaddingAddsHalfAMultipleToEachExpertInTheMean) {
    LayerDivision division{.expert = 1, .expert_tensor = 1};
    division.load.padding = 17;
    const LayerSample padded = sample(small_model(), "block1.feed_forward", division);
    EXPECT_EQ(padded.traffic.dispatch.count, (2048 + 8 * 8) * 2 * 512);
}

TEST(DividedExperts, RoutedParametersAreThoseThatNoTokenSharesAll) {
    const DecoderModel model = small_model();
    EXPECT_EQ(routed_parameters(model, 0), 0);
    EXPECT_EQ(routed_parameters(model, 1), 8 * 3 * 512 * 768);
    const Profile profile = estimated_profile(model, counts_operations(), options());
    EXPECT_EQ(profile.layers[4].name, "block1.feed_forward");
    EXPECT_EQ(profile.layers[4].expert_bytes.count, 2 * 8 * 3 * 512 * 768);
    EXPECT_EQ(profile.layers[2].expert_bytes, Bytes{});
}

// --- Context. ---

/// Bytes that a device sends of what all have together, or of its own part.
std::int64_t sent(Bytes bytes, int devices) {
    return bytes.count * (devices - 1) / devices;
}

TEST(DividedContext, ARingSendsKeysAndValuesOfTheOthers) {
    for (const ContextMethod method : {ContextMethod::Ring, ContextMethod::AllGather}) {
        const LayerSample of_one =
            sample(small_model(), "block0.attention", {.context = 2, .context_method = method});
        EXPECT_EQ(sent(of_one.traffic.keys, 2), 262'144);
        EXPECT_EQ(of_one.traffic.heads, Bytes{});
    }
}

TEST(DividedContext, AnExchangeOfHeadsSendsQueriesKeysValuesAndOutputs) {
    const LayerSample of_one = sample(small_model(),
                                      "block0.attention",
                                      {.context = 2, .context_method = ContextMethod::AllToAll});
    EXPECT_EQ(sent(of_one.traffic.heads + of_one.traffic.outputs, 2), 655'360);
    EXPECT_EQ(of_one.traffic.keys, Bytes{});
}

TEST(DividedContext, MessagesOfLlama3With70BParameters) {
    DecoderModel model{.blocks = 1, .width = 8192, .vocabulary = 128256};
    model.attention = {.heads = 64, .key_value_heads = 8, .key_width = 128, .value_width = 128};
    model.feed_forward = 28672;
    LayerDivision division{
        .tensor = 2, .sequence_parallel = true, .context = 4, .expert_tensor = 2};
    constexpr int long_sample = 32768;
    EXPECT_EQ(sent(sample(model, "block0.attention", division, long_sample).traffic.keys, 4),
              50'331'648);
    division.context_method = ContextMethod::AllToAll;
    const LayerTraffic traffic = sample(model, "block0.attention", division, long_sample).traffic;
    EXPECT_EQ(sent(traffic.heads + traffic.outputs, 4), 113'246'208);
}

TEST(DividedContext, EveryMethodLeavesADeviceItsPartOfTheOperations) {
    const DecoderModel model = small_model();
    const LayerSample whole = sample(model, "block0.attention", {});
    for (const ContextMethod method :
         {ContextMethod::Ring, ContextMethod::AllGather, ContextMethod::AllToAll}) {
        const LayerSample part =
            sample(model, "block0.attention", {.context = 2, .context_method = method});
        EXPECT_NEAR(static_cast<double>(part.forward.count()),
                    static_cast<double>(whole.forward.count()) / 2,
                    2);
        EXPECT_NEAR(static_cast<double>(part.backward().count()),
                    static_cast<double>(whole.backward().count()) / 2,
                    3);
        EXPECT_EQ(part.output.count * 2, whole.output.count);
    }
}

TEST(DividedContext, AttentionOfAPartTakesThePairsThatItsChunksSee) {
    // Chunks r and 2c - 1 - r of a sample of 16 tokens, counted pair by pair.
    const auto pairs = [](int parts, int rank) {
        const int chunk = 16 / (2 * parts);
        int count = 0;
        for (int token = 0; token < 16; ++token) {
            const int in = token / chunk;
            count += in == rank || in == 2 * parts - 1 - rank ? token + 1 : 0;
        }
        return count;
    };
    EXPECT_EQ(pairs(2, 0), 68);
    EXPECT_EQ(pairs(2, 1), 68);
    for (int rank = 0; rank < 4; ++rank) {
        EXPECT_EQ(pairs(4, rank), 34);
    }
    DecoderModel model = small_model();
    for (const int parts : {2, 4}) {
        const LayerSample of_one = sample(model, "block0.attention", {.context = parts}, 16);
        // Two products of 64 numbers for each pair and head; a thousand operations take 1 ns.
        EXPECT_NEAR(static_cast<double>(of_one.traffic.attention_forward.count()) * 1e3,
                    pairs(parts, 0) * 8.0 * 2 * (64 + 64),
                    1e3);
    }
}

/// 512 tokens of a device, 8 heads of 64: 262,144 numbers of queries and of outputs, and twice as
/// many of keys and values, where these are there for each head; two steps. A byte takes 1 ps.
TEST(DividedContext, StepsMergeWhatTheyMakeAndSendGradientsInTheirWidth) {
    DeviceProfile counts_bytes = counts_operations();
    counts_bytes.name = "h100-sxm-96";  // one of the stack's
    counts_bytes.matrix_rates["bf16"].value = without_end;
    counts_bytes.memory_rate.value = 1e12;
    const auto attention = [&](bool has_context) {
        auto stack = std::make_shared<Stack>(*find_stack("torchtitan-2024"));
        stack->context.reset();
        if (has_context) {
            stack->context.emplace();
            stack->context->value = {.output_bytes = 10,
                                     .query_bytes = 8,
                                     .key_bytes = 6,
                                     .message_bytes = 5,
                                     .gradient_bytes = 4,
                                     .repeats_keys = true};
        }
        EstimateOptions of = options();
        of.stack = std::move(stack);
        const Profile profile =
            estimated_profile(small_model(),
                              counts_bytes,
                              of,
                              {.context = 2, .context_method = ContextMethod::AllGather});
        return cost_at(
            *std::ranges::find(profile.layers, "block0.attention", &LayerCost::name), 1, 1);
    };
    const LayerSample one_kernel = attention(false);
    const LayerSample in_steps = attention(true);
    constexpr double numbers = 262'144;
    constexpr double gap = 2500;  // the stack's, in front of a kernel
    EXPECT_NEAR(static_cast<double>((in_steps.forward - one_kernel.forward).count()),
                (10 * 1 + 5 * 2) * numbers / 1e3 + gap,
                2);
    EXPECT_NEAR(static_cast<double>((in_steps.backward() - one_kernel.backward()).count()),
                (2 * (8 + 6 * 2) + 5 * 2) * numbers / 1e3 + gap,
                2);
    EXPECT_EQ(one_kernel.traffic.key_gradients, one_kernel.traffic.keys);
    EXPECT_EQ(in_steps.traffic.keys, one_kernel.traffic.keys * 4);  // 8 heads of queries, 2 of keys
    EXPECT_EQ(in_steps.traffic.key_gradients, in_steps.traffic.keys * 2);
}

// --- Modules that are computed again. ---

/// What single modules keep of a layer.
LayerModules modules_of(const DecoderModel& model,
                        std::string_view layer,
                        LayerDivision division = {}) {
    division.by_module = true;
    const LayerSample with = sample(model, layer, division);
    division.by_module = false;
    LayerSample without = sample(model, layer, division);
    without.modules = with.modules;
    EXPECT_EQ(with, without) << "what modules keep is said apart";
    return with.modules;
}

/// The entry of a module; of one that keeps nothing zeros.
ModuleBytes again(const DecoderModel& model,
                  std::string_view layer,
                  RecomputeModule module,
                  const LayerDivision& division = {}) {
    const LayerModules all = modules_of(model, layer, division);
    const auto word = static_cast<std::size_t>(module);
    const auto found = std::ranges::find(all.made, word, &ModuleBytes::module);
    return found == all.made.end() ? ModuleBytes{.module = word} : *found;
}

/// Bytes of a module's inputs.
std::int64_t inputs(std::string_view layer, OffloadModule module, const LayerDivision& division) {
    const LayerModules all = modules_of(small_model(), layer, division);
    const auto word = static_cast<std::size_t>(module);
    const auto found = std::ranges::find(all.inputs, word, &ModuleBytes::module);
    return found == all.inputs.end() ? 0 : found->bytes.count;
}

TEST(RecomputedModules, DropWhatTheirFormulasSay) {
    const DecoderModel model = small_model();
    EXPECT_EQ(again(model, "block0.attention", RecomputeModule::CoreAttention).bytes.count,
              4 * 1024 * 8);
    EXPECT_EQ(again(model, "block0.attention", RecomputeModule::Norms).bytes.count, 2 * 1024 * 512);
    EXPECT_EQ(again(model, "block0.feed_forward", RecomputeModule::FeedForward).bytes.count,
              3 * 2 * 1024 * 1536);
    EXPECT_EQ(again(model, "block1.feed_forward", RecomputeModule::SharedExperts).bytes.count,
              3 * 2 * 1024 * 768);
    constexpr int rows = 2048;
    for (const LayerDivision& division : {LayerDivision{}, LayerDivision{.expert = 4}}) {
        EXPECT_EQ(again(model, "block1.feed_forward", RecomputeModule::ExpertActivation, division)
                      .bytes.count,
                  2 * rows * 768);
    }
    EXPECT_EQ(again(model, "block0.feed_forward", RecomputeModule::Experts).bytes, Bytes{});
}

TEST(RecomputedModules, DividedTokensDropAPart) {
    const LayerDivision both{.tensor = 2, .sequence_parallel = true, .expert_tensor = 2};
    EXPECT_EQ(again(small_model(), "block0.attention", RecomputeModule::Norms, both).bytes.count,
              1024 * 512);
    EXPECT_EQ(
        again(small_model(), "block0.feed_forward", RecomputeModule::FeedForward, both).bytes.count,
        3 * 1024 * 1536);
}

TEST(RecomputedModules, ExpertsAreComputedAgainWithTheirMessagesAndKeepTheLayersInput) {
    const LayerDivision division{.expert = 4};
    const ModuleBytes all =
        again(small_model(), "block1.feed_forward", RecomputeModule::Experts, division);
    const LayerSample whole = sample(small_model(), "block1.feed_forward", division);
    constexpr std::int64_t input_and_norm = 2 * (2 * 1024 * 512);
    EXPECT_EQ((whole.saved - all.bytes).count, input_and_norm);
    EXPECT_EQ(all.forward, whole.forward);
}

TEST(RecomputedModules, UpProjectionsOfLatentAttention) {
    DecoderModel model = small_model();
    model.attention.key_value_heads = 8;
    model.attention.key_width = 96;
    model.attention.latent =
        LatentShape{.query_rank = 128, .key_value_rank = 64, .rotary_width = 32};
    const ModuleBytes up = again(model, "block0.attention", RecomputeModule::LatentUp);
    EXPECT_EQ(up.bytes.count, 2 * 1024 * 8 * (2 * 96 + 64));
    // Products from the narrow rows, in operations.
    EXPECT_NEAR(static_cast<double>(up.forward.count()) * 1e3,
                2.0 * 1024 * (128 * 8 * 96 + 64 * 8 * (96 - 32 + 64)),
                3e3);
}

// --- Inputs that go to host memory. ---

/// 1024 tokens of 512 numbers in bf16, eight heads and key/value heads as wide as 64.
TEST(OffloadedModules, HaveInputsAsWideAsTheirNamesSay) {
    const DecoderModel model = small_model();
    const double heads = model.attention.heads * model.attention.key_width;
    const double keys = model.attention.key_value_heads * model.attention.key_width;
    constexpr std::int64_t row = 2 * 1024 * 512;
    EXPECT_EQ(inputs("block0.attention", OffloadModule::AttentionNorm, {}), row);
    EXPECT_EQ(inputs("block0.attention", OffloadModule::QkvLinear, {}), row);
    EXPECT_EQ(inputs("block0.feed_forward", OffloadModule::FeedForwardNorm, {}), row);
    EXPECT_EQ(static_cast<double>(inputs("block0.attention", OffloadModule::CoreAttention, {})),
              2 * 1024 * (heads + 2 * keys));
    EXPECT_EQ(
        static_cast<double>(inputs("block0.attention", OffloadModule::AttentionProjection, {})),
        2 * 1024 * heads);
    constexpr int rows = 2048;  // two experts a token
    for (const LayerDivision& division : {LayerDivision{}, LayerDivision{.expert = 4}}) {
        EXPECT_EQ(inputs("block1.feed_forward", OffloadModule::ExpertFirst, division),
                  2 * rows * 512);
        EXPECT_EQ(inputs("block1.feed_forward", OffloadModule::ExpertActivation, division),
                  2 * 2 * rows * 768);
    }
    EXPECT_EQ(inputs("block0.feed_forward", OffloadModule::ExpertFirst, {}), 0);
}

TEST(OffloadedModules, DevicesOfALayerHaveParts) {
    const LayerDivision whole{.tensor = 2, .expert_tensor = 2};
    const LayerDivision divided{.tensor = 2, .sequence_parallel = true, .expert_tensor = 2};
    constexpr std::int64_t row = 2 * 1024 * 512;
    EXPECT_EQ(inputs("block0.attention", OffloadModule::AttentionNorm, whole), row);
    EXPECT_EQ(inputs("block0.attention", OffloadModule::AttentionNorm, divided), row / 2);
    EXPECT_EQ(2 * inputs("block0.attention", OffloadModule::CoreAttention, divided),
              inputs("block0.attention", OffloadModule::CoreAttention, {}));
}

// --- The source of a profile. ---

TEST(EstimateSource, AProfileSaysWhatItWasEstimatedFrom) {
    DecoderModel model = small_model();
    model.attention.latent = LatentShape{.query_rank = 96, .key_value_rank = 64};
    model.attention.latent->indexer = IndexerShape{.heads = 4, .width = 32, .keys = 128};
    model.attention.linear = LinearAttentionShape{.key_heads = 2, .key_width = 16};
    model.attention.linear_blocks = {true, false};
    const Profile profile =
        with_whole_blocks(estimated_profile(model, counts_operations(), options()));
    const Profile read = parse_profile(print_profile(profile), "p.json");
    ASSERT_TRUE(read.estimated_from);
    EXPECT_EQ(*read.estimated_from.get(), *profile.estimated_from.get());
    EXPECT_TRUE(read.estimated_from.get()->whole_blocks);
    EXPECT_EQ(read, profile);
}

/// A model of two kinds of attention, one block of which has no feed-forward half.
TEST(EstimateSource, AProfileSaysOfWhichKindsItsBlocksAre) {
    DecoderModel model = small_model();
    AttentionShape other = model.attention;
    other.mamba = MambaShape{.heads = 4, .width = 16, .state = 8, .chunk = 32, .bias = true};
    model.other_attentions = {other};
    other.compressed = CompressedShape{.query_rank = 8, .output_groups = 2, .ratio = 4};
    other.compressed->indexer = IndexerShape{.heads = 2, .width = 4, .keys = 8, .shared = true};
    other.mamba.reset();
    other.indexer = IndexerShape{.heads = 3};
    model.other_attentions.push_back(other);
    model.streams = 2;
    model.attention_kinds = {2, 1};
    model.feed_forward_widths = {no_half, 64};
    model.prediction_attention = 0;
    const Profile profile = estimated_profile(model, counts_operations(), options());
    const Profile read = parse_profile(print_profile(profile), "p.json");
    ASSERT_TRUE(read.estimated_from);
    EXPECT_EQ(*read.estimated_from.get(), *profile.estimated_from.get());
    EXPECT_EQ(read, profile);
    const Profile divided =
        estimated_profile(model, counts_operations(), options(), {.tensor = 2, .context = 2});
    EXPECT_EQ(divided.layers.size(), profile.layers.size());
    std::string text = print_profile(profile);
    const std::string kinds = "\"attention_kinds\"";
    ASSERT_NE(text.find(kinds), std::string::npos);
    const std::size_t two = text.find('2', text.find(kinds));
    text[two] = '9';
    EXPECT_THAT(error_of([&] { parse_profile(text, "p.json"); }).what(),
                HasSubstr("other_attentions"));
}

TEST(EstimateSource, CostsThatWereMeasuredCannotBeDivided) {
    Profile profile = estimated_profile(small_model(), counts_operations(), options());
    profile.estimated_from = {};
    profile.source = CostSource::Measured;
    const Error error = error_of([&] { divided_profile(profile, {.context = 2}); });
    EXPECT_THAT(error.what(), HasSubstr("whole samples and of all experts"));
    EXPECT_THAT(error.hint(), HasSubstr("import hf"));
}

/// A stack whose products are corrected keeps its name, and what it says.
TEST(DividedProfile, HasTheStackThatItWasEstimatedWith) {
    const DeviceProfile device = find_device("h100-sxm");
    const auto forward = [&device](double products) {
        Stack stack = *find_stack("nemo-2024");
        stack.calibrated.push_back({.device = device.name,
                                    .precision = "bf16",
                                    .factors = {.value = {.products = products}}});
        EstimateOptions with = options();
        with.efficiency.reset();
        with.stack = std::make_shared<const Stack>(std::move(stack));
        const Profile whole = estimated_profile(small_model(), device, with);
        return divided_profile(whole, {.context = 2}).layers[1].samples.front().forward;
    };
    EXPECT_GT(forward(4), forward(1));
}

}  // namespace estimate_source_test
}  // namespace pipetwin

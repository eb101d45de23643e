// SPDX-License-Identifier: Apache-2.0
#include "core/plan/tensor_parallel.h"

#include <random>

#include <gtest/gtest.h>

#include "core/model/model.h"
#include "tests/support/scenario_plans.h"
#include "tests/support/soak.h"

namespace pipetwin {
namespace tensor_parallel_test {

Model chain() {
    return Model::opaque({{.name = "a"}, {.name = "b"}, {.name = "c"}});
}

/// Every part of `b` that can be divided is a multiple of 4.
LayerSamples samples() {
    return {
        {.forward = Duration(10), .input = Bytes{80}, .output = Bytes{400}, .saved = Bytes{480}},
        {.forward = Duration(1000),
         .backward_input = Duration(900),
         .backward_weight = Duration(800),
         .output = Bytes{1200},
         .saved = Bytes{2400},
         .workspace = Bytes{120},
         .split = Bytes{160},
         .input_saved = Bytes{1600},
         .core_forward = Duration(200),
         .core_saved = Bytes{320},
         .whole_forward = Duration(400),
         .whole_backward = Duration(80),
         .whole_saved = Bytes{720}},
        {.forward = Duration(50), .backward_input = Duration(60), .saved = Bytes{1200}}};
}

Profile profile() {
    Profile all;
    const LayerSamples of = samples();
    const char* const names[]{"a", "b", "c"};
    for (std::size_t layer = 0; layer < of.size(); ++layer) {
        all.layers.push_back({.name = names[layer], .samples = {of[layer]}});
    }
    return all;
}

/// Links without latency, 1 ns per byte. 4 devices: a ring takes 2 * 3 / 4 of the bytes, and a tree
/// 2 * 2 of them.
TensorParallel four() {
    return {.devices = 4, .link = {.bytes_per_second = 1e9}};
}

constexpr Duration sum_of_400(600);
constexpr Duration sum_of_1200(1800);

TEST(TensorParallel, OneDeviceChangesNothing) {
    for (const SharesKnown known : {SharesKnown::No, SharesKnown::Yes}) {
        EXPECT_EQ(
            with_tensor_parallel(
                chain(), profile(), samples(), {.devices = 1, .sequence_parallel = true}, known),
            samples());
    }
}

/// What the messages of these devices took, as it was measured; no link says anything else, and the
/// second gather of a divided sequence is part of it.
TEST(TensorParallel, MeasuredMessagesTakeWhatTheyTook) {
    LayerSamples measured = samples();
    measured[1].devices_forward = Duration(70);
    measured[1].devices_backward = Duration(90);
    for (const bool sequence : {false, true}) {
        TensorParallel tensor = four();
        tensor.is_measured = true;
        tensor.sequence_parallel = sequence;
        const LayerSample found =
            with_tensor_parallel(chain(), profile(), measured, tensor, SharesKnown::Yes)[1];
        const Duration whole_forward = sequence ? Duration(400 - 100) : Duration{};
        const Duration whole_backward = sequence ? Duration(80 - 20) : Duration{};
        EXPECT_EQ(found.messages.forward_sums, Duration(70));
        EXPECT_EQ(found.messages.backward_sums, Duration(90));
        EXPECT_EQ(found.forward, Duration(1000 + 70) - whole_forward);
        EXPECT_EQ(found.backward_input, Duration(900 + 90) - whole_backward);
        EXPECT_EQ(found.backward_weight, Duration(800));
    }
}

/// A residual stream of four rows passes from layer to layer, but the all-reduce of a layer sums
/// one of them.
TEST(TensorParallel, OneRowOfAResidualOfSeveralIsSummed) {
    Profile of = profile();
    for (LayerCost& layer : of.layers) {
        layer.output_rows = 4;
    }
    LayerSamples wide = samples();
    for (LayerSample& sample : wide) {
        sample.output = sample.output * 4;
    }
    const LayerSample one =
        with_tensor_parallel(chain(), profile(), samples(), four(), SharesKnown::Yes)[1];
    const LayerSample several =
        with_tensor_parallel(chain(), of, std::move(wide), four(), SharesKnown::Yes)[1];
    EXPECT_GT(one.messages.forward_sums, Duration{});
    EXPECT_EQ(several.messages.forward_sums, one.messages.forward_sums);
    EXPECT_EQ(several.messages.backward_sums, one.messages.backward_sums);
    EXPECT_EQ(several.output, one.output * 4);
}

/// Output and gradient of the input are summed, and the rest is as it was.
TEST(TensorParallel, KnownSharesAreNotDividedAgain) {
    LayerSamples expected = samples();
    expected[0].forward += sum_of_400;
    expected[1].forward += sum_of_1200;
    expected[1].backward_input += sum_of_400;
    expected[2].backward_input += sum_of_1200;
    expected[0].messages.forward_sums = sum_of_400;
    expected[1].messages.forward_sums = sum_of_1200;
    expected[1].messages.backward_sums = sum_of_400;
    expected[2].messages.backward_sums = sum_of_1200;
    EXPECT_EQ(with_tensor_parallel(chain(), profile(), samples(), four(), SharesKnown::Yes),
              expected);
}

TEST(TensorParallel, WhatIsNotKnownIsDividedButForTheInput) {
    const LayerSample b = with_tensor_parallel(chain(), profile(), samples(), four())[1];
    EXPECT_EQ(b.saved, Bytes{400 + (2400 - 400) / 4});
    EXPECT_EQ(b.whole_saved, Bytes{400});
    EXPECT_EQ(b.core_saved, Bytes{80});
    EXPECT_EQ(b.split, Bytes{40});
    EXPECT_EQ(b.workspace, Bytes{30});
    EXPECT_EQ(b.input_saved, Bytes{400});
    EXPECT_EQ(b.output, Bytes{1200});
    EXPECT_EQ(b.forward, Duration(1000) + sum_of_1200);
}

/// A whole block of a transformer has two sums each way (Shoeybi et al., section 3); a layer that
/// every device has whole has none.
TEST(TensorParallel, LayersHaveAsManySumsAsTheySay) {
    for (const int sums : {0, 1, 2, 5}) {
        Profile of = profile();
        of.layers[1].tensor_sums = sums;
        const LayerSample b =
            with_tensor_parallel(chain(), of, samples(), four(), SharesKnown::Yes)[1];
        EXPECT_EQ(b.forward, Duration(1000) + sums * sum_of_1200);
        EXPECT_EQ(b.backward_input, Duration(900) + sums * sum_of_400);
        EXPECT_EQ(b.backward_weight, Duration(800));
    }
}

/// A reduce-scatter and an all-gather move as much as the all-reduce that they replace (Korthikanti
/// et al., section 4.2.2).
TEST(TensorParallel, ASequenceDividesWhatIsWholeAndWhatPasses) {
    TensorParallel of = four();
    of.sequence_parallel = true;
    const LayerSamples divided =
        with_tensor_parallel(chain(), profile(), samples(), of, SharesKnown::Yes);
    const LayerSample& b = divided[1];
    EXPECT_EQ(b.forward, Duration(1000 - 400 + 100) + sum_of_1200);
    // The input is gathered again, which takes longer (300 ns) than the 60 ns that are gained.
    EXPECT_EQ(b.backward_input, Duration(900) + sum_of_400);
    EXPECT_EQ(b.backward_weight, Duration(800));
    EXPECT_EQ(b.saved, Bytes{2400 - 720 + 180});
    EXPECT_EQ(b.output, Bytes{300});
    EXPECT_EQ(b.split, Bytes{160});
    EXPECT_EQ(divided[0].output, Bytes{100});
    // W reads 800 bytes, of which those of the input (400) are whole.
    EXPECT_EQ(b.input_saved, b.saved - Bytes{800 - 400 + 100});
    // Shares that are not known: all is divided then.
    EXPECT_EQ(with_tensor_parallel(chain(), profile(), samples(), of)[1].saved, Bytes{2400 / 4});
    EXPECT_EQ(with_tensor_parallel(chain(), profile(), samples(), of)[1].input_saved,
              Bytes{1600 / 4});
}

/// Half of an all-reduce gathers the input once more: 300 ns of the 600 - 150 that are gained.
TEST(TensorParallel, ABackwardGathersTheDividedInputAgain) {
    LayerSamples all = samples();
    all[1].whole_backward = Duration(600);
    TensorParallel of = four();
    of.sequence_parallel = true;
    const LayerSample b = with_tensor_parallel(chain(), profile(), all, of, SharesKnown::Yes)[1];
    EXPECT_EQ(b.backward_input, Duration(900 - 450) + sum_of_400 / 2 + sum_of_400);
    EXPECT_EQ(b.messages.backward_sums, sum_of_400 / 2 + sum_of_400);
    EXPECT_EQ(b.messages.forward_sums, sum_of_1200);
}

/// Parts of what is saved are never more than all of it, whatever is divided.
TEST(TensorParallel, PartsStayPartsOfTheirWholes) {
    for (const bool sequence : {false, true}) {
        for (const SharesKnown known : {SharesKnown::No, SharesKnown::Yes}) {
            TensorParallel of = four();
            of.sequence_parallel = sequence;
            for (const LayerSample& one :
                 with_tensor_parallel(chain(), profile(), samples(), of, known)) {
                EXPECT_LE(one.core_saved, one.saved);
                EXPECT_LE(one.input_saved, one.saved);
                EXPECT_LE(one.core_forward, one.forward);
            }
        }
    }
}

/// A plan search relies on this: no time is longer, no tensor larger, and what waits for its W
/// holds no more.
TEST(TensorParallel, ADividedSequenceNeverTakesMore) {
    std::mt19937_64 random(tests::seed());
    const auto below = [&random](int end) { return testing::below(random, end); };
    for (int round = 0; round < tests::soaked(500); ++round) {
        LayerSamples all = samples();
        for (LayerSample& one : all) {
            one.saved = Bytes{below(1000)};
            one.split = Bytes{below(100)};
            one.input_saved = Bytes{below(1 + static_cast<int>(one.saved.count))};
            one.whole_saved = Bytes{below(1 + static_cast<int>(one.saved.count))};
            one.whole_forward = Duration(below(1 + static_cast<int>(one.forward.count())));
            one.whole_backward = Duration(below(1 + static_cast<int>(one.backward_input.count())));
        }
        TensorParallel of = four();
        of.devices = 2 + below(7);
        const LayerSamples whole =
            with_tensor_parallel(chain(), profile(), all, of, SharesKnown::Yes);
        of.sequence_parallel = true;
        const LayerSamples divided =
            with_tensor_parallel(chain(), profile(), all, of, SharesKnown::Yes);
        for (std::size_t layer = 0; layer < all.size(); ++layer) {
            const LayerSample& with = divided[layer];
            const LayerSample& without = whole[layer];
            for (const auto time : times_of_sample) {
                EXPECT_LE(with.*time, without.*time);
            }
            EXPECT_LE(with.output, without.output);
            EXPECT_LE(with.saved, without.saved);
            EXPECT_LE(with.workspace, without.workspace);
            EXPECT_LE(with.saved - with.input_saved + with.split,
                      without.saved - without.input_saved + without.split);
        }
    }
}

/// Devices that divide the sequence, with 2 parts of a message beside its own product and none
/// beside another; nothing slows the products.
TensorParallel hiding() {
    TensorParallel of = four();
    of.sequence_parallel = true;
    of.lanes = MessageLanes{.hides_tensor = true,
                            .tensor_gather = {.chunks = 2},
                            .tensor_sum = {.chunks = 2},
                            .tensor_bulk = {}};
    return of;
}

/// Layer b with products as long as that.
LayerSample hidden_beside(const LayerSample& products, const Profile& of = profile()) {
    LayerSamples all = samples();
    all[1].first_forward = products.first_forward;
    all[1].first_input = products.first_input;
    all[1].first_weight = products.first_weight;
    all[1].last_forward = products.last_forward;
    all[1].last_input = products.last_input;
    return with_tensor_parallel(chain(), of, all, hiding(), SharesKnown::Yes)[1];
}

/// Halves of sums take 900 ns forward and 300 backward. Beside longer products half of them is
/// waited for, and of the sum of the gradient, beside that of the weights, nothing.
TEST(TensorParallel, MessagesHideBesideLongProducts) {
    const LayerSample b = hidden_beside({.first_forward = Duration(1000),
                                         .first_input = Duration(400),
                                         .first_weight = Duration(800),
                                         .last_forward = Duration(2000),
                                         .last_input = Duration(500)});
    EXPECT_EQ(b.messages.forward_sums, Duration(450 + 450));
    EXPECT_EQ(b.messages.backward_sums, Duration(150));
    EXPECT_EQ(b.forward, Duration(1000 - 300 + 900));
    EXPECT_EQ(b.backward_input, Duration(900 - 60 + 150));
    EXPECT_EQ(b.backward_weight, Duration(800));
}

/// What is longer than the product stays.
TEST(TensorParallel, MessagesBesideShortProductsAreWaitedFor) {
    const LayerSample b = hidden_beside({.first_forward = Duration(100),
                                         .first_weight = Duration(200),
                                         .last_forward = Duration(300)});
    EXPECT_EQ(b.messages.forward_sums, Duration((900 - 100 + 50) + (900 - 300 + 150)));
    // 300 of a gather beside nothing, and 100 of a sum; the second gather is as long as what is
    // gained by the division.
    EXPECT_EQ(b.messages.backward_sums, Duration(300 + 100 + 60));
}

TEST(TensorParallel, NarrowGathersHaveHalfTheBytes) {
    Profile narrow = profile();
    narrow.precision = "fp8";
    LayerSamples all = samples();
    all[1].first_forward = all[1].last_forward = Duration(1000);
    TensorParallel of = hiding();
    EXPECT_EQ(
        with_tensor_parallel(chain(), narrow, all, of, SharesKnown::Yes)[1].messages.forward_sums,
        Duration(450 + 450));
    of.lanes->has_narrow_gathers = true;
    EXPECT_EQ(
        with_tensor_parallel(chain(), narrow, all, of, SharesKnown::Yes)[1].messages.forward_sums,
        Duration(225 + 450));
    EXPECT_EQ(with_tensor_parallel(chain(), profile(), all, of, SharesKnown::Yes)[1]
                  .messages.forward_sums,
              Duration(450 + 450));
}

/// Without a divided sequence there are no halves to hide.
TEST(TensorParallel, SumsOfAWholeSequenceAreNotHidden) {
    TensorParallel of = hiding();
    of.sequence_parallel = false;
    EXPECT_EQ(with_tensor_parallel(chain(), profile(), samples(), of, SharesKnown::Yes),
              with_tensor_parallel(chain(), profile(), samples(), four(), SharesKnown::Yes));
}

/// Costs that know of no product hide messages beside half of their computation, and those that
/// know some only beside these.
TEST(TensorParallel, HalfOfALayerIsTakenForItsProductsWhereNoneIsKnown) {
    const LayerSample assumed = hidden_beside({});
    EXPECT_EQ(assumed.messages.forward_sums, Duration(2 * (900 - 250 + 125)));
    LayerSamples all = samples();
    all[2].last_forward = Duration(10);
    const LayerSample known =
        with_tensor_parallel(chain(), profile(), all, hiding(), SharesKnown::Yes)[1];
    EXPECT_EQ(known.messages.forward_sums, sum_of_1200);
}

/// A plan search relies on this: no time is longer than with sums that are waited for, and each is
/// longer where its product or link is slower.
TEST(TensorParallel, HiddenSumsNeverTakeMore) {
    std::mt19937_64 random(tests::seed());
    const auto below = [&random](int end) { return testing::below(random, end); };
    for (int round = 0; round < tests::soaked(500); ++round) {
        LayerSamples all = samples();
        for (LayerSample& one : all) {
            one.first_forward = Duration(below(500));
            one.first_input = Duration(below(500));
            one.first_weight = Duration(below(500));
            one.last_forward = Duration(below(500));
            one.last_input = Duration(below(500));
            one.whole_forward = Duration(below(1 + static_cast<int>(one.forward.count())));
            one.whole_backward = Duration(below(1 + static_cast<int>(one.backward_input.count())));
        }
        TensorParallel of = hiding();
        of.devices = 2 + below(7);
        for (MessageLane* const lane :
             {&of.lanes->tensor_gather, &of.lanes->tensor_sum, &of.lanes->tensor_bulk}) {
            *lane = {.share = below(1000) / 1000.0, .chunks = below(6)};
        }
        const auto times = [&](const TensorParallel& how) {
            return with_tensor_parallel(chain(), profile(), all, how, SharesKnown::Yes);
        };
        const LayerSamples hidden = times(of);
        TensorParallel slower = of;
        slower.link.latency = Duration(below(100));
        TensorParallel waiting = of;
        waiting.lanes.reset();
        for (std::size_t layer = 0; layer < all.size(); ++layer) {
            for (const auto time : {&LayerSample::forward, &LayerSample::backward_input}) {
                EXPECT_LE(hidden[layer].*time, times(waiting)[layer].*time);
                EXPECT_LE(hidden[layer].*time, times(slower)[layer].*time);
            }
        }
    }
}

}  // namespace tensor_parallel_test
}  // namespace pipetwin

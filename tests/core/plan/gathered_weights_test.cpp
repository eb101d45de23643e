// SPDX-License-Identifier: Apache-2.0
#include "core/plan/gathered_weights.h"

#include <gtest/gtest.h>

namespace pipetwin {
namespace gathered_weights_test {

/// Two replicas, 1 ns per byte: half an all-reduce over a ring takes t(bytes / 2).
GatheredWeights two_replicas() {
    return {.replicas = {.members = 2, .per_node = 8, .inside = {.bytes_per_second = 1e9}},
            .all_reduce = AllReduceKind::Ring,
            .weights = true};
}

/// 2000 bytes of weights are gathered in 1000 ns, their sums in fp32 are 4000 and take 2000 ns.
Profile one_layer(const char* precision = "bf16") {
    Profile profile{.precision = precision};
    profile.layers = {{.name = "a", .parameter_bytes = Bytes{2000}, .samples = {{}}}};
    return profile;
}

LayerSample sample_of(int forward, int backward_input, int backward_weight) {
    return {.forward = Duration(forward),
            .backward_input = Duration(backward_input),
            .backward_weight = Duration(backward_weight),
            .saved = Bytes{7}};
}

LayerSample gathered(const LayerSample& sample,
                     const GatheredWeights& how,
                     const Profile& profile = one_layer(),
                     int devices = 1) {
    return with_gathered_weights(profile, {sample}, how, devices).front();
}

TEST(GatheredWeights, OneReplicaChangesNothing) {
    GatheredWeights alone = two_replicas();
    alone.replicas.members = 1;
    for (const bool prefetch : {false, true}) {
        alone.prefetch = prefetch;
        EXPECT_EQ(gathered(sample_of(1, 2, 3), alone), sample_of(1, 2, 3));
    }
}

TEST(GatheredWeights, MessagesGoOnBesideALongComputation) {
    const LayerSample sample = gathered(sample_of(1000, 1500, 1500), two_replicas());
    EXPECT_EQ(sample.forward, Duration(1000));
    EXPECT_EQ(sample.backward(), Duration(3000));
    EXPECT_EQ(sample.messages.beside_forward, Duration(1000));
    EXPECT_EQ(sample.messages.beside_backward, Duration(1000 + 2000));
    EXPECT_EQ(sample.messages.forward_wait, Duration{});
    EXPECT_EQ(sample.messages.backward_wait, Duration{});
}

TEST(GatheredWeights, AShortComputationWaitsForThem) {
    const LayerSample sample = gathered(sample_of(400, 500, 600), two_replicas());
    EXPECT_EQ(sample.forward, Duration(1000));
    EXPECT_EQ(sample.backward(), Duration(1000 + 2000));
    EXPECT_EQ(sample.saved, Bytes{7});
    EXPECT_EQ(sample.messages.forward_wait, Duration(1000 - 400));
    EXPECT_EQ(sample.messages.backward_wait, Duration(3000 - 500 - 600));
    // A layer without a backward of its weights waits in that of its input.
    EXPECT_EQ(gathered(sample_of(400, 500, 0), two_replicas()).backward_input, Duration(3000));
}

/// Where the messages of these replicas were measured, a layer takes the measured time in addition,
/// and the link between replicas does not matter.
TEST(GatheredWeights, MeasuredMessagesTakeWhatTheyTook) {
    GatheredWeights how = two_replicas();
    how.is_measured = true;
    LayerSample measured = sample_of(400, 500, 600);
    measured.replicas_forward = Duration(30);
    measured.replicas_backward = Duration(50);
    const LayerSample found = gathered(measured, how);
    EXPECT_EQ(found.forward, Duration(430));
    EXPECT_EQ(found.backward_input, Duration(500));
    EXPECT_EQ(found.backward_weight, Duration(650));
    EXPECT_EQ(found.messages.forward_wait, Duration(30));
    EXPECT_EQ(found.messages.backward_wait, Duration(50));
}

TEST(GatheredWeights, WithoutPrefetchAGatherIsAdded) {
    GatheredWeights how = two_replicas();
    how.prefetch = false;
    const LayerSample slow = gathered(sample_of(1500, 2000, 1000), how);
    EXPECT_EQ(slow.forward, Duration(1000 + 1500));
    EXPECT_EQ(slow.messages.gather, Duration(1000));
    EXPECT_EQ(slow.messages.forward_wait, Duration{});
    EXPECT_EQ(slow.backward(), Duration(1000 + 3000));
    EXPECT_EQ(gathered(sample_of(400, 500, 600), how).backward(), Duration(1000 + 2000));
}

/// ZeRO-2: every replica has the weights, and only sums go round.
TEST(GatheredWeights, SharedGradientsAreSummedAndNotGathered) {
    GatheredWeights how = two_replicas();
    how.weights = false;
    const LayerSample sample = gathered(sample_of(400, 500, 600), how);
    EXPECT_EQ(sample.forward, Duration(400));
    EXPECT_EQ(sample.backward(), Duration(2000));
}

TEST(GatheredWeights, SumsAreAsWideAsTheGradients) {
    GatheredWeights narrow = two_replicas();
    narrow.fp32_gradients = false;
    EXPECT_EQ(gathered(sample_of(0, 0, 0), narrow).backward(), Duration(1000 + 1000));
    EXPECT_EQ(gathered(sample_of(0, 0, 0), two_replicas(), one_layer("fp32")).backward(),
              Duration(1000 + 1000));
}

TEST(GatheredWeights, DevicesThatShareALayerGatherTheirParts) {
    const LayerSample sample = gathered(sample_of(0, 0, 0), two_replicas(), one_layer(), 4);
    EXPECT_EQ(sample.forward, Duration(250));
    EXPECT_EQ(sample.backward(), Duration(250 + 500));
}

/// Two layers as `one_layer` has; the messages of the second go on beside it.
LayerSamples with_lanes(const LayerSample& sample) {
    GatheredWeights how = two_replicas();
    how.lanes = MessageLanes{.gradients = {.share = 0.2}, .weights = {.share = 0.1}};
    Profile profile = one_layer();
    profile.layers.push_back(profile.layers.front());
    return with_gathered_weights(profile, {sample, sample}, how, 1);
}

TEST(GatheredWeights, MessagesTakeMultiprocessors) {
    const LayerSample second = with_lanes(sample_of(2000, 2500, 1500))[1];
    EXPECT_EQ(second.forward, Duration(2000 + 100));
    EXPECT_EQ(second.backward(), Duration(4000 + 600));
    EXPECT_EQ(second.messages.forward_wait, Duration(100));
    EXPECT_EQ(second.messages.backward_wait, Duration(600));
    const LayerSample shorter = with_lanes(sample_of(400, 500, 600))[1];
    EXPECT_EQ(shorter.forward, Duration(1000));
    EXPECT_EQ(shorter.backward(), Duration(3000));
}

TEST(GatheredWeights, NothingIsBesideTheFirstGatherAndTheLastSums) {
    const LayerSample first = with_lanes(sample_of(2000, 2500, 1500))[0];
    EXPECT_EQ(first.forward, Duration(2000 + 1000));
    EXPECT_EQ(first.backward(), Duration(4000 + 2000));
    EXPECT_EQ(first.messages.forward_wait, Duration(1000));
    EXPECT_EQ(first.messages.backward_wait, Duration(2000));
}

}  // namespace gathered_weights_test
}  // namespace pipetwin

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/plan/plan.h"
#include "core/scenario/settled_scenario.h"

namespace pipetwin::testing {

/// A layer whose costs grow with the micro-batch: `forward` ns, `output` and `saved` bytes per
/// sample.
LayerCost layer(const std::string& name,
                int forward,
                int output,
                int saved,
                std::vector<std::string> inputs = {});

/// Five layers in a row; every size is a different prime or power, so that no sum is right by
/// accident.
Profile chain_profile();

/// A number from 0 to `end` - 1.
int below(std::mt19937_64& random, int end);

/// A chain of at least `fewest` layers and at most `most`, with costs and sizes of any order, and a
/// link.
Profile random_chain(std::mt19937_64& random, int fewest, int most);

/// Of a model that is its profile.
SettledScenario scenario_of(int stages, int micro_batches, int batch);

/// A scenario that leaves open stages, micro-batches, schedule, chunks, replicas and recompute.
Scenario open_scenario(int batch);

/// A schedule and its chunks.
struct AskedSchedule {
    std::string_view schedule;
    int chunks;
};

/// Chains of layers with costs of any size, and scenarios for them.
class RandomPipelines {
  public:
    explicit RandomPipelines(std::uint64_t seed) : random_(seed) {}

    int below(int end) { return testing::below(random_, end); }

    Profile profile(int layers) { return random_chain(random_, layers, layers); }

    /// One to three micro-batches for each rank, of one or two samples.
    SettledScenario scenario(const AskedSchedule& asked, int ranks);

    /// Half of these scenarios have a limit of memory.
    SettledScenario scenario_with_limit(const AskedSchedule& asked, int ranks);

  private:
    std::mt19937_64 random_;
};

/// With so many layers of `chain_profile` in each stage.
SettledScenario partitioned(std::vector<int> pieces, int micro_batches = 2, int batch = 2);

/// Two layers with 100 bytes of weights: a forward of 4000 and of 1000 ns, and a backward of three
/// times as long. Host time is 1 ns.
Profile long_and_short_layer();

/// One stage of `long_and_short_layer`, in four replicas on a node each that share the weights, and
/// two micro-batches. Between nodes a byte takes 2 ns, and a message 1000 ns more. A gather, and a
/// sum of gradients, is 3 messages of 25 bytes around a ring: 3 * 1050 = 3150 ns.
///
///     forward    a max( 4000, 3150)   b max(1000, 3150)
///     backward   a max(12000, 6300)   b max(3000, 6300)
SettledScenario sharded_over_nodes();

Plan plan_of(const SettledScenario& scenario, const Profile& profile = chain_profile());

/// Every list of sizes of at least 1 that sums to `layers`.
std::vector<std::vector<int>> all_partitions(int layers, int pieces);

/// What `plan_of` throws; fails the test if it throws nothing.
Error plan_error_of(const SettledScenario& scenario, const Profile& profile = chain_profile());

}  // namespace pipetwin::testing

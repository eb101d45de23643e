#pragma once

#include <random>
#include <string>
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

/// With so many layers of `chain_profile` in each stage.
SettledScenario partitioned(std::vector<int> pieces, int micro_batches = 2, int batch = 2);

Plan plan_of(const SettledScenario& scenario, const Profile& profile = chain_profile());

/// Every list of sizes of at least 1 that sums to `layers`.
std::vector<std::vector<int>> all_partitions(int layers, int pieces);

/// What `plan_of` throws; fails the test if it throws nothing.
Error plan_error_of(const SettledScenario& scenario, const Profile& profile = chain_profile());

}  // namespace pipetwin::testing

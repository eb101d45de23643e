// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>

namespace pipetwin {

class Model;
struct Profile;
struct Scenario;

}  // namespace pipetwin

/// On how many nodes a model can be trained.
namespace pipetwin::sim {

struct SearchResult;

/// A model on a number of nodes of its cluster.
struct NodesOfModel {
    int count = 0;  ///< 0: a scenario names devices, not nodes
    std::function<Scenario(int count)> scenario_on{};
};

/// The smallest number of nodes whose memory together holds weights, gradients and optimizer state,
/// each once. `nodes`: of the scenario's cluster. `result`: that of its search.
int least_nodes(const Scenario& scenario,
                const Model& model,
                const Profile& profile,
                int nodes,
                const SearchResult& result);

/// The smallest number of nodes, among `first` and the three after it, on which a plan with one
/// stage per rank fits; empty if there is none. `goes_on` gets the share that is done, and ends the
/// search where it returns false; the plans of one number are asked about without a share.
std::optional<int> enough_nodes(const NodesOfModel& nodes,
                                const Profile& profile,
                                int first,
                                const std::function<bool(std::optional<double> share)>& goes_on);

}  // namespace pipetwin::sim

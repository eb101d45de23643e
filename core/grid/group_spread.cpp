// SPDX-License-Identifier: Apache-2.0
#include "core/grid/group_spread.h"

#include <algorithm>
#include <functional>

#include "core/base/as_index.h"
#include "core/base/error.h"

namespace pipetwin {

namespace {

/// Members of a group on a node, or in a domain or a leaf.
struct OnPlace {
    int place = 0;
    int members = 0;
};

/// The places of a group, in the order in which its members come to them: neighbours mostly lie on
/// one. `place_of` a node.
template <class PlaceOf>
void count_on(const std::vector<int>& group,
              const std::vector<int>& node_of,
              PlaceOf place_of,
              std::vector<OnPlace>& places) {
    places.clear();
    for (const int device : group) {
        const int place = place_of(node_of.at(as_index(device)));
        if (places.empty() || places.back().place != place) {
            const auto known = std::ranges::find(places, place, &OnPlace::place);
            if (known != places.end()) {
                ++known->members;
                continue;
            }
            places.push_back({.place = place});
        }
        ++places.back().members;
    }
}

int most_of(const std::vector<OnPlace>& places) {
    return std::ranges::max_element(places, {}, &OnPlace::members)->members;
}

/// What leaves a node, or a leaf.
struct Leaving {
    int groups = 0;
    int members = 0;
    double exchange = 0;
};

/// [place].
using LeavingPlaces = std::vector<Leaving>;

Leaving& at(LeavingPlaces& leaving, int place) {
    leaving.resize(std::max(leaving.size(), as_index(place + 1)));
    return leaving[as_index(place)];
}

/// The largest over all places.
template <class Number>
Number most(const LeavingPlaces& leaving, Number Leaving::*number) {
    Number largest = 0;
    for (const Leaving& of : leaving) {
        largest = std::max(largest, of.*number);
    }
    return largest;
}

}  // namespace

GroupSpread spread_of(const DeviceGroups& groups,
                      const std::vector<int>& node_of,
                      const NodeLevels& levels) {
    LeavingPlaces of_nodes;
    LeavingPlaces of_leaves;
    std::vector<OnPlace> places;
    GroupSpread spread{.per_node = groups.empty() ? 1 : static_cast<int>(groups[0].size())};
    for (const std::vector<int>& group : groups) {
        count_on(
            group, node_of, [&](int node) { return levels.domain_of(node); }, places);
        const int rings = most_of(places);
        spread.per_node = std::min(spread.per_node, rings);
        spread.nodes = std::max(spread.nodes, static_cast<int>(places.size()));
        if (places.size() == 1) {
            continue;
        }
        count_on(group, node_of, std::identity{}, places);
        for (const auto& [node, members] : places) {
            ++at(of_nodes, node).groups;
            at(of_nodes, node).members += members;
        }
        count_on(
            group, node_of, [&](int node) { return levels.leaf_of(node); }, places);
        spread.leaves = std::max(spread.leaves, static_cast<int>(places.size()));
        const auto all = static_cast<double>(group.size());
        for (const auto& [leaf, members] : places) {
            if (places.size() > 1) {
                Leaving& of_leaf = at(of_leaves, leaf);
                ++of_leaf.groups;
                of_leaf.members += std::min(rings, members);
                of_leaf.exchange += members * (all - members) / all;
            }
        }
    }
    spread.leaving_groups = most(of_nodes, &Leaving::groups);
    spread.leaving_devices = most(of_nodes, &Leaving::members);
    spread.crossing_groups = most(of_leaves, &Leaving::groups);
    spread.crossing_rings = most(of_leaves, &Leaving::members);
    spread.crossing_exchange = most(of_leaves, &Leaving::exchange);
    return spread;
}

std::vector<int> nodes_in_order(int devices, int per_node) {
    PIPETWIN_EXPECT(per_node >= 1, "a node has at least one device");
    std::vector<int> nodes;
    for (int device = 0; device < devices; ++device) {
        nodes.push_back(device / per_node);
    }
    return nodes;
}

}  // namespace pipetwin

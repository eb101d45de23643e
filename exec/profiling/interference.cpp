// SPDX-License-Identifier: Apache-2.0
#include "exec/profiling/interference.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include <boost/math/tools/minima.hpp>

#include "core/base/as_index.h"
#include "core/base/error.h"

namespace pipetwin::exec {
namespace {

/// Each of K ranks that share multiprocessors, too, has a Kth of the speed beside all others:
/// a share of 1. Ranks that hinder each other more than that are not known.
constexpr double largest_share = 4;
/// A fitted share counts if it leaves at most this part of the squared differences.
constexpr double most_left = 0.9;

/// Seconds that the action would have lasted alone, by the engine's rule: the speed beside n others
/// is 1 / (1 + n * interference).
double seconds_alone(const ActionTime& action, double interference) {
    double seconds = 0;
    for (std::size_t others = 0; others < action.beside.size(); ++others) {
        seconds +=
            to_seconds(action.beside[others]) / (1 + static_cast<double>(others) * interference);
    }
    return seconds;
}

/// The actions of one kind, which should last equally long.
using Kind = std::tuple<int, Op, bool>;
using Kinds = std::map<Kind, std::vector<const ActionTime*>>;

/// The squared differences of actions from the mean of their kind, as shares of it.
double squared_differences(const Kinds& kinds, double interference) {
    double sum = 0;
    for (const auto& [kind, actions] : kinds) {
        std::vector<double> alone;
        for (const ActionTime* const action : actions) {
            alone.push_back(seconds_alone(*action, interference));
        }
        const double mean =
            std::accumulate(alone.begin(), alone.end(), 0.0) / static_cast<double>(alone.size());
        for (const double seconds : alone) {
            sum += mean > 0 ? (seconds / mean - 1) * (seconds / mean - 1) : 0;
        }
    }
    return sum;
}

double fitted_share(const Kinds& kinds) {
    constexpr int bits = 20;
    std::uintmax_t rounds = 100;
    const auto [share, left] = boost::math::tools::brent_find_minima(
        [&kinds](double interference) { return squared_differences(kinds, interference); },
        0.0,
        largest_share,
        bits,
        rounds);
    constexpr double digits = 1e4;
    return left < most_left * squared_differences(kinds, 0) ? std::round(digits * share) / digits
                                                            : 0;
}

/// A moment at which a rank begins or ends an action.
struct Edge {
    Duration when;
    bool begins;  ///< an end comes before a beginning at the same moment
    std::size_t rank;
    std::size_t action;

    bool operator<(const Edge& other) const {
        return std::tie(when, begins) < std::tie(other.when, other.begins);
    }
};

}  // namespace

Duration ActionTime::time() const {
    return std::accumulate(beside.begin(), beside.end(), Duration{});
}

StepActions action_times(const Timeline& timeline, const std::vector<int>& device_of_rank) {
    PIPETWIN_EXPECT(device_of_rank.size() == timeline.ranks.size(), "the device of every rank");
    StepActions actions(timeline.ranks.size());
    std::map<int, std::vector<Edge>> edges;  // of a device
    for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
        std::set<int> written;  // stages whose gradients were
        for (const Span& span : timeline.ranks[rank]) {
            const Op op = span.action.op;
            if ((!is_compute(op) && op != Op::Optimizer) || span.end <= span.ready) {
                continue;
            }
            const bool adds = op == Op::Backward || op == Op::BackwardWeight;
            const bool writes = adds && written.insert(span.action.stage).second;
            for (const bool begins : {true, false}) {
                edges[device_of_rank[rank]].push_back({.when = begins ? span.ready : span.end,
                                                       .begins = begins,
                                                       .rank = rank,
                                                       .action = actions[rank].size()});
            }
            actions[rank].push_back({.stage = span.action.stage,
                                     .op = op,
                                     .writes = writes,
                                     .beside = std::vector<Duration>(timeline.ranks.size())});
        }
    }
    for (auto& [device, of_device] : edges) {
        std::ranges::stable_sort(of_device, std::less<>());
        std::map<std::size_t, std::size_t> busy;  // the action of a rank
        Duration last{};
        for (const Edge& edge : of_device) {
            for (const auto& [rank, action] : busy) {
                actions[rank][action].beside[busy.size() - 1] += edge.when - last;
            }
            last = edge.when;
            if (edge.begins) {
                busy[edge.rank] = edge.action;
            } else {
                busy.erase(edge.rank);
            }
        }
    }
    return actions;
}

std::vector<double> fitted_interference(const std::vector<StepActions>& steps) {
    std::vector<double> shares;
    const std::size_t ranks = steps.empty() ? 0 : steps.front().size();
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        Kinds kinds;
        for (const StepActions& step : steps) {
            for (const ActionTime& action : step[rank]) {
                if (action.op != Op::Optimizer) {
                    kinds[{action.stage, action.op, action.writes}].push_back(&action);
                }
            }
        }
        shares.push_back(fitted_share(kinds));
    }
    return shares;
}

double share_alone(const std::vector<ActionTime>& actions,
                   int stage,
                   const std::vector<Op>& ops,
                   double interference) {
    double alone = 0;
    double lasted = 0;
    for (const ActionTime& action : actions) {
        if (action.stage == stage && std::ranges::count(ops, action.op) > 0) {
            alone += seconds_alone(action, interference);
            lasted += to_seconds(action.time());
        }
    }
    return lasted > 0 ? alone / lasted : 1;
}

}  // namespace pipetwin::exec

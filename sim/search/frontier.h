// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/units.h"
#include "sim/search/candidate.h"

/// The frontier of a best-first search with bounds: what is still to be looked at, in which order.
namespace pipetwin::sim {

/// A shape whose choices are not looked at yet, or a candidate that is not simulated yet.
struct FrontierNode {
    Duration bound{};          ///< of its step, with the partitions that are tried first
    Duration relaxation{};     ///< bound with any partition whatever; of a shape its bound
    std::int64_t actions = 0;  ///< of its plan, about; of a shape those of its smallest
    Candidate candidate;
    bool is_shape = false;
    bool is_rough = false;  ///< a shape whose bound leaves out messages
};

/// `share` of a time.
inline Duration part(Duration whole, double share) {
    return Duration(static_cast<std::int64_t>(static_cast<double>(whole.count()) * share));
}

/// About: F, B and four sends and receives of every micro-batch on every piece.
inline std::int64_t actions_of(const Candidate& candidate) {
    return std::int64_t{6} * candidate.shape.stages * candidate.choice.chunks *
           candidate.shape.micro_batches;
}

/// Bounds in steps of a hundredth of the least; within a step plans that are simulated fast come
/// first. And plans of up to 300 thousand actions come before larger ones, those before plans of
/// more than three million: what they find spares most of the large ones.
class FrontierOrder {
  public:
    explicit FrontierOrder(Duration least) : least_(std::max(least, Duration{1})) {}

    bool operator()(const FrontierNode& a, const FrontierNode& b) const { return key(a) < key(b); }

  private:
    using Key = std::tuple<int, std::int64_t, std::int64_t, bool, const Candidate&>;

    Key key(const FrontierNode& node) const {
        const int size = (node.actions > 300'000 ? 1 : 0) + (node.actions > 3'000'000 ? 1 : 0);
        const std::int64_t step = (node.bound - least_) / std::max(least_ / 100, Duration{1});
        // A rough bound costs little to improve.
        return {size, step, node.is_rough ? 0 : node.actions, !node.is_shape, node.candidate};
    }

    Duration least_;
};

/// What is left to do, in that order.
class Frontier {
  public:
    explicit Frontier(FrontierOrder order) : nodes_(order) {}

    void add(FrontierNode node) {
        bounds_.insert(node.bound);
        nodes_.insert(std::move(node));
    }
    const FrontierNode& first() const { return *nodes_.begin(); }
    FrontierNode take() {
        FrontierNode first = std::move(nodes_.extract(nodes_.begin()).value());
        bounds_.erase(bounds_.find(first.bound));
        return first;
    }
    /// The least bound of all.
    Duration least() const { return bounds_.empty() ? Duration::max() : *bounds_.begin(); }
    /// The least that any of them takes with any partition.
    Duration least_of_any_partition() const {
        Duration least = Duration::max();
        for (const FrontierNode& node : nodes_) {
            least = std::min(least, node.relaxation);
        }
        return least;
    }
    bool empty() const { return nodes_.empty(); }
    std::size_t size() const { return nodes_.size(); }

  private:
    std::set<FrontierNode, FrontierOrder> nodes_;
    std::multiset<Duration> bounds_{};
};

/// Candidates that were left out, as far as they come near the best plan.
class RunnersUp {
  public:
    void add(const FrontierNode& node) {
        nearest_.insert(node);
        if (nearest_.size() > most) {
            nearest_.erase(std::prev(nearest_.end()));
        }
    }
    /// The entries that are nearest to `best`, and not more than `share` of it away.
    std::vector<FrontierNode> within(Duration best, double share) const {
        std::vector<FrontierNode> result;
        for (const FrontierNode& node : nearest_) {
            if (node.bound <= best + part(best, share)) {
                result.push_back(node);
            }
        }
        return result;
    }

  private:
    struct ByBound {
        bool operator()(const FrontierNode& a, const FrontierNode& b) const {
            return std::tie(a.bound, a.candidate) < std::tie(b.bound, b.candidate);
        }
    };
    static constexpr std::size_t most = 256;
    std::set<FrontierNode, ByBound> nearest_{};
};

}  // namespace pipetwin::sim

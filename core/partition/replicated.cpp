// SPDX-License-Identifier: Apache-2.0
#include "core/partition/replicated.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/partition/partition_search.h"

namespace pipetwin {

namespace {

std::vector<int> allowed_replicas(const ReplicationProblem& problem) {
    std::vector<int> allowed = problem.replicas;
    if (allowed.empty()) {
        allowed.resize(as_index(std::max(problem.devices, 0)));
        std::iota(allowed.begin(), allowed.end(), 1);
    }
    std::ranges::sort(allowed);
    PIPETWIN_EXPECT(allowed.empty() || allowed.front() >= 1, "a stage has at least one replica");
    std::erase_if(allowed, [&](int replicas) { return replicas > problem.devices; });
    if (allowed.empty()) {
        throw Error(
            ErrorKind::Infeasible,
            "partition",
            fmt::format("no stage may be on {} or fewer", counted(problem.devices, "device")),
            "allow 1 replica per stage, or use more devices");
    }
    return allowed;
}

/// Which devices it takes to keep a limit.
class Needs {
  public:
    explicit Needs(const ReplicationProblem& problem)
        : problem_(problem),
          work_(prefix_sums(problem.work)),
          weights_(prefix_sums(problem.weights)),
          replicas_(allowed_replicas(problem)),
          heaviest_(replicas_.size()),
          reach_(replicas_.size()),
          needed_(work_.size()),
          last_open_(work_.size()) {
        PIPETWIN_EXPECT(weights_.size() == work_.size(), "one entry per layer");
        PIPETWIN_EXPECT(problem.boundary.empty() || problem.boundary.size() + 1 == work_.size(),
                        "one boundary before each layer");
        check_stage_count(1, layers());
    }

    int layers() const { return static_cast<int>(work_.size()) - 1; }

    /// One stage of all layers always keeps this.
    std::int64_t enough() const {
        const int fewest = replicas_.front();
        const std::int64_t reduction =
            fewest == 1 ? 0 : problem_.all_reduce(Bytes{weights_.back()}, fewest).count();
        return std::max(reduction, work_.back());
    }

    /// needed[i]: fewest devices that hold the layers from i on, within the limit.
    ///
    ///     needed[n] = 0,   needed[i] = min over r of r + needed[j(i, r)]
    ///
    /// j(i, r) is the furthest boundary that layers from i on can reach on r devices. The furthest
    /// is best, since needed[i] never rises with i: who leaves layers out needs no more devices.
    bool keeps(std::int64_t limit) {
        set_limit(limit);
        const int too_many = problem_.devices + 1;
        needed_.back() = 0;
        for (std::size_t first = work_.size() - 1; first-- > 0;) {
            int fewest = too_many;
            for (std::size_t way = 0; way < replicas_.size() && replicas_[way] < fewest; ++way) {
                const std::size_t end = last_open_[reach(way, first)];
                if (end > first) {
                    fewest = std::min(fewest, replicas_[way] + needed_[end]);
                }
            }
            needed_[first] = fewest;
        }
        return needed_.front() < too_many;
    }

    /// The split for the limit of the last successful `keeps`, with each stage as short as
    /// possible. A stage's replicas are the difference that it makes to `needed_`.
    ReplicatedSplit earliest() const {
        std::vector<int> sizes;
        std::vector<int> replicas;
        for (std::size_t first = 0; first < work_.size() - 1;) {
            std::size_t end = first + 1;
            while (!fits(first, end, needed_[first] - needed_[end])) {
                ++end;
            }
            sizes.push_back(static_cast<int>(end - first));
            replicas.push_back(needed_[first] - needed_[end]);
            first = end;
        }
        return {.partition = Partition(std::move(sizes), layers()),
                .replicas = std::move(replicas),
                .largest = Duration{limit_},
                .devices_used = needed_.front()};
    }

  private:
    /// Whether the weights are reduced within the limit.
    bool reduces(std::int64_t bytes, int replicas) const {
        return replicas == 1 || problem_.all_reduce(Bytes{bytes}, replicas).count() <= limit_;
    }

    void set_limit(std::int64_t limit) {
        limit_ = limit;
        for (std::size_t way = 0; way < replicas_.size(); ++way) {
            // The first number of bytes that takes too long, less one; -1 where nothing does not.
            heaviest_[way] = smallest_limit(weights_.back() + 1,
                                            [&](std::int64_t bytes) {
                                                return bytes > weights_.back() ||
                                                       !reduces(bytes, replicas_[way]);
                                            }) -
                             1;
            reach_[way] = work_.size() - 1;
        }
        for (std::size_t end = 0; end < work_.size(); ++end) {
            const bool is_end = end == 0 || end + 1 == work_.size();
            const bool is_open =
                is_end || problem_.boundary.empty() || problem_.boundary[end].count() <= limit;
            last_open_[end] = is_open ? end : last_open_[end - 1];
        }
    }

    /// The furthest boundary that the layers from `first` on reach. Call it in descending order of
    /// `first`, for which it never rises.
    std::size_t reach(std::size_t way, std::size_t first) {
        std::size_t& end = reach_[way];
        while (end > first && !holds(way, first, end)) {
            --end;
        }
        return end;
    }

    bool holds(std::size_t way, std::size_t first, std::size_t end) const {
        return work_[end] - work_[first] <= capacity(replicas_[way]) &&
               weights_[end] - weights_[first] <= heaviest_[way];
    }

    /// Work that takes no longer than the limit.
    std::int64_t capacity(int replicas) const {
        return limit_ > work_.back() / replicas ? work_.back() : limit_ * replicas;
    }

    bool fits(std::size_t first, std::size_t end, int replicas) const {
        const auto way = std::ranges::lower_bound(replicas_, replicas);
        return way != replicas_.end() && *way == replicas && last_open_[end] == end &&
               holds(static_cast<std::size_t>(way - replicas_.begin()), first, end);
    }

    const ReplicationProblem& problem_;
    std::vector<std::int64_t> work_;
    std::vector<std::int64_t> weights_;
    std::vector<int> replicas_;
    std::int64_t limit_ = 0;
    std::vector<std::int64_t> heaviest_;  ///< [way] weights that are reduced within the limit
    std::vector<std::size_t> reach_;      ///< [way]
    std::vector<int> needed_;             ///< [first layer]
    std::vector<std::size_t> last_open_;  ///< [boundary] the last one up to it within the limit
};

}  // namespace

ReplicatedSplit replicated_partition(const ReplicationProblem& problem) {
    Needs needs(problem);
    const auto keeps = [&needs](std::int64_t limit) { return needs.keeps(limit); };
    keeps(smallest_limit(needs.enough(), keeps));
    return needs.earliest();
}

}  // namespace pipetwin

#include "sim/search/finished_rows.h"

#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "sim/search/open_queue.h"

namespace pipetwin::sim {

namespace {

/// Candidates that are improved for each row that is to be finished.
constexpr std::int64_t most_for_a_row = 3;
/// Candidates of one shape and schedule that are simulated beside those that were.
constexpr std::size_t most_siblings = 8;

class Rows {
  public:
    Rows(SearchState& state, FurtherPartitions& partitions)
        : state_(state), partitions_(partitions) {}

    void finish() {
        std::int64_t left = most_for_a_row * state_.options.finished_rows;
        std::int64_t room = state_.options.most_row_actions;
        while (const std::optional<Row> row = next()) {
            if (left-- == 0 || !state_.goes_on(0, row->plan.step)) {
                break;
            }
            const Candidate& candidate = row->plan.candidate;
            tried_.insert(candidate);
            if (partitions_.finish(row->plan, room)) {
                finished_.insert(candidate);
            }
            if (row->is_shown) {
                try_siblings(candidate);
            }
        }
        for (FoundPlan& plan : state_.all.found) {
            plan.finished = finished_.contains(plan.candidate);
        }
    }

  private:
    struct Row {
        FoundPlan plan;
        bool is_shown = false;
    };

    /// The fastest row that was not tried; of those that are not shown the fastest that may be
    /// shown with another partition.
    std::optional<Row> next() {
        std::vector<FoundPlan> ranked = state_.all.found;
        rank(ranked);
        const std::vector<FoundPlan> rows = fastest_of_each_candidate(ranked);
        const std::size_t shown =
            std::min(rows.size(), static_cast<std::size_t>(state_.options.finished_rows));
        for (std::size_t i = 0; i < rows.size() && shown > 0; ++i) {
            const FoundPlan& plan = rows[i];
            const bool is_shown = i < shown;
            if (!tried_.contains(plan.candidate) &&
                (is_shown || least_of(plan) < rows[shown - 1].step)) {
                return Row{.plan = plan, .is_shown = is_shown};
            }
        }
        return std::nullopt;
    }

    /// What no partition of the plan's candidate goes below.
    Duration least_of(const FoundPlan& plan) {
        const auto [known, is_new] = least_.try_emplace(plan.candidate);
        if (is_new) {
            const ScheduleChoice& choice = plan.candidate.choice;
            const ShapeBounds bounds = state_.bounds.of(plan.candidate.shape, choice);
            const Duration least = bounds.least(choice, plan.step).value_or(Duration{});
            known->second = bounds.closest_bound(choice, least, plan.step);
        }
        return known->second;
    }

    Duration step_of(const Candidate& candidate) const {
        Duration step = Duration::max();
        for (const FoundPlan& plan : state_.all.found) {
            step = plan.candidate == candidate ? std::min(step, plan.step) : step;
        }
        return step;
    }

    /// What was left out beside a row, though it may be faster than that.
    std::optional<Open> sibling(const Candidate& candidate, Duration step) const {
        if (state_.simulated.contains(candidate)) {
            return std::nullopt;
        }
        try {
            ShapeBounds bounds = state_.bounds.of(candidate.shape, candidate.choice);
            const std::optional<Duration> least = bounds.least(candidate.choice, step);
            if (!least || *least >= step) {
                return std::nullopt;
            }
            return Open{.bound = bounds.least_of_first(candidate.choice, *least).value_or(*least),
                        .least = *least,
                        .actions = actions_of(candidate),
                        .candidate = candidate};
        } catch (const Error&) {  // its costs are not known
            return std::nullopt;
        }
    }

    /// Simulates candidates of the same shape, schedule and number of chunks.
    void try_siblings(const Candidate& candidate) {
        const Shape& shape = candidate.shape;
        const ScheduleChoice& choice = candidate.choice;
        if (!with_siblings_.emplace(shape, choice.schedule, choice.chunks).second) {
            return;
        }
        const Duration step = step_of(candidate);
        std::vector<Open> siblings;
        for (const ScheduleChoice& other : state_.bounds.choices().of(shape)) {
            if (other.schedule == choice.schedule && other.chunks == choice.chunks) {
                if (auto open = sibling({.shape = shape, .choice = other}, step)) {
                    siblings.push_back(*std::move(open));
                }
            }
        }
        std::ranges::stable_sort(siblings, {}, &Open::bound);
        siblings.resize(std::min(siblings.size(), most_siblings));
        std::vector<Outcome> outcomes(siblings.size());
        tbb::parallel_for(std::size_t{0}, siblings.size(), [&](std::size_t i) {
            outcomes[i] = state_.simulate(siblings[i].candidate, siblings[i].bound);
        });
        for (const Open& sibling : siblings) {
            state_.simulated.insert(sibling.candidate);
        }
        for (Outcome& outcome : outcomes) {
            state_.all.actions += outcome.actions;
            if (!outcome.found.empty()) {  // until now it counts as left out
                ++state_.all.searched;
                state_.all.pruned = std::max<std::int64_t>(0, state_.all.pruned - 1);
                std::ranges::move(outcome.found, std::back_inserter(state_.all.found));
            }
        }
    }

    SearchState& state_;
    FurtherPartitions& partitions_;
    std::set<Candidate> tried_{};
    std::set<Candidate> finished_{};
    std::map<Candidate, Duration> least_{};
    std::set<std::tuple<Shape, std::string, int>> with_siblings_{};
};

}  // namespace

void finish_rows(SearchState& state, FurtherPartitions& partitions) {
    Rows(state, partitions).finish();
}

}  // namespace pipetwin::sim

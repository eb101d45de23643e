// SPDX-License-Identifier: Apache-2.0
#include "core/plan/module_knapsack.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/base/as_index.h"

namespace pipetwin {

namespace {

/// A step from one choice to a larger one of the same class.
struct Increment {
    double bytes = 0;
    double time = 0;

    double rate() const { return time / bytes; }
};

/// The steps along the lower convex hull of a class, the cheapest for its bytes first.
std::vector<Increment> hull_of(const KnapsackClass& choices) {
    std::vector<std::size_t> hull;
    const auto step = [&](std::size_t from, std::size_t to) {
        return Increment{.bytes = static_cast<double>(choices[to].bytes - choices[from].bytes),
                         .time = static_cast<double>(choices[to].time - choices[from].time)};
    };
    for (const std::size_t next : undominated(choices)) {
        while (hull.size() > 1 &&
               step(hull[hull.size() - 2], hull.back()).rate() >= step(hull.back(), next).rate()) {
            hull.pop_back();
        }
        hull.push_back(next);
    }
    std::vector<Increment> steps;
    if (const KnapsackChoice& first = choices[hull.front()]; first.bytes > 0) {  // for nothing
        steps.push_back({.bytes = static_cast<double>(first.bytes), .time = 0});
    }
    for (std::size_t i = 1; i < hull.size(); ++i) {
        steps.push_back(step(hull[i - 1], hull[i]));
    }
    return steps;
}

/// The least time in which fractions of the choices of some classes give so many bytes.
class Relaxation {
  public:
    explicit Relaxation(std::vector<Increment> steps) {
        std::ranges::sort(steps, {}, &Increment::rate);
        for (const Increment& step : steps) {
            bytes_.push_back(bytes_.back() + step.bytes);
            time_.push_back(time_.back() + step.time);
        }
    }

    /// Times of an answer with a fraction, and of one that rounds it up. Infinite: none is enough.
    struct Times {
        double least = 0;
        double whole = 0;
    };

    Times of(double need) const {
        if (need <= 0) {
            return {};
        }
        const auto enough = std::ranges::lower_bound(bytes_, need);
        if (enough == bytes_.end()) {
            constexpr double never = std::numeric_limits<double>::infinity();
            return {.least = never, .whole = never};
        }
        const auto i = static_cast<std::size_t>(enough - bytes_.begin());
        const double share = (need - bytes_[i - 1]) / (bytes_[i] - bytes_[i - 1]);
        return {.least = time_[i - 1] + share * (time_[i] - time_[i - 1]), .whole = time_[i]};
    }

  private:
    std::vector<double> bytes_{0};
    std::vector<double> time_{0};
};

/// Choices of the classes so far.
struct Partial {
    std::int64_t bytes = 0;  ///< up to what is needed
    std::int64_t time = 0;
    std::size_t before = 0;  ///< index in the list of the classes before
    std::size_t choice = 0;  ///< of the last class
};

/// Leaves those that no other beats.
void leave_undominated(std::vector<Partial>& all) {
    std::ranges::sort(all, [](const Partial& a, const Partial& b) {
        return a.time != b.time ? a.time < b.time : a.bytes > b.bytes;
    });
    std::int64_t most = -1;
    std::erase_if(all, [&most](const Partial& one) {
        const bool is_more = one.bytes > most;
        most = std::max(most, one.bytes);
        return !is_more;
    });
}

/// [class]: the relaxation of the classes behind it.
std::vector<Relaxation> relaxations(const std::vector<KnapsackClass>& classes) {
    std::vector<Relaxation> behind;
    std::vector<Increment> steps;
    for (std::size_t i = classes.size(); i-- > 0;) {
        behind.emplace_back(steps);
        const std::vector<Increment> own = hull_of(classes[i]);
        steps.insert(steps.end(), own.begin(), own.end());
    }
    std::ranges::reverse(behind);
    return behind;
}

}  // namespace

std::vector<std::size_t> undominated(const KnapsackClass& choices) {
    std::vector<std::size_t> order(choices.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
        return choices[a].time != choices[b].time ? choices[a].time < choices[b].time
                                                  : choices[a].bytes > choices[b].bytes;
    });
    std::int64_t most = -1;
    std::erase_if(order, [&](std::size_t one) {
        const bool is_more = choices[one].bytes > most;
        most = std::max(most, choices[one].bytes);
        return !is_more;
    });
    return order;
}

std::optional<std::vector<std::size_t>> least_time_choices(
    const std::vector<KnapsackClass>& classes, std::int64_t need) {
    need = std::max<std::int64_t>(need, 0);
    const std::vector<Relaxation> behind = relaxations(classes);
    double best = std::numeric_limits<double>::infinity();
    std::vector<std::vector<Partial>> lists{{Partial{}}};
    for (std::size_t i = 0; i < classes.size(); ++i) {
        const std::vector<std::size_t> choices = undominated(classes[i]);
        std::vector<Partial> next;
        for (std::size_t before = 0; before < lists.back().size(); ++before) {
            const Partial& partial = lists.back()[before];
            for (const std::size_t choice : choices) {
                const KnapsackChoice& own = classes[i][choice];
                const Partial with{.bytes = std::min(need, partial.bytes + own.bytes),
                                   .time = partial.time + own.time,
                                   .before = before,
                                   .choice = choice};
                const auto rest = behind[i].of(static_cast<double>(need - with.bytes));
                const auto time = static_cast<double>(with.time);
                constexpr double rounding = 1;  // a nanosecond
                if (time + rest.least <= best + rounding && rest.least < best + rounding) {
                    best = std::min(best, time + rest.whole);
                    next.push_back(with);
                }
            }
        }
        leave_undominated(next);
        lists.push_back(std::move(next));
    }
    const auto enough = std::ranges::find_if(
        lists.back(), [need](const Partial& all) { return all.bytes >= need; });
    if (enough == lists.back().end()) {
        return std::nullopt;
    }
    std::vector<std::size_t> answer(classes.size());
    std::size_t at = static_cast<std::size_t>(enough - lists.back().begin());
    for (std::size_t i = classes.size(); i-- > 0;) {
        const Partial& last = lists[i + 1][at];
        answer[i] = last.choice;
        at = last.before;
    }
    return answer;
}

}  // namespace pipetwin

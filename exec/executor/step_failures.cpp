// SPDX-License-Identifier: Apache-2.0
#include "exec/executor/step_failures.h"

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/schedule/action.h"
#include "exec/device/device_failure.h"

namespace pipetwin::exec {

void StepFailures::clear() {
    const std::lock_guard lock(mutex_);
    stop_ = std::numeric_limits<int>::max();
    all_.clear();
}

void StepFailures::report(int order,
                          int rank,
                          std::optional<Action> action,
                          std::exception_ptr error) {
    One one{.order = order, .rank = rank, .action = action, .error = std::move(error)};
    try {
        std::rethrow_exception(one.error);
    } catch (const DeviceFailure& failure) {
        one.for_good = failure.is_for_good();
        one.follows = failure.is_of_another_rank();
    } catch (...) {  // NOLINT(bugprone-empty-catch): a failure of this rank alone
    }
    const std::lock_guard lock(mutex_);
    stop_ = std::min(stop_.load(), order);
    all_.push_back(std::move(one));
}

bool StepFailures::empty() const {
    const std::lock_guard lock(mutex_);
    return all_.empty();
}

StepFailures::One StepFailures::first() const {
    const std::lock_guard lock(mutex_);
    return *std::ranges::min_element(
        all_, {}, [](const One& one) { return std::tuple(one.follows, one.order, one.rank); });
}

bool StepFailures::any_for_good() const {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(all_, &One::for_good);
}

/// All that may be the cause of a permanent failure, in schedule order.
std::vector<StepFailures::One> StepFailures::causes() const {
    const std::lock_guard lock(mutex_);
    std::vector<One> causes;
    std::ranges::copy_if(all_, std::back_inserter(causes), [](const One& one) {
        return one.for_good && !one.follows;
    });
    std::ranges::sort(causes, {}, &One::order);
    return causes;
}

std::string StepFailures::others_text() const {
    const std::vector<One> causes = this->causes();
    if (causes.size() < 2) {
        return {};
    }
    std::vector<std::string> others;
    for (std::size_t i = 1; i < causes.size(); ++i) {
        others.push_back(
            fmt::format("rank {}{}",
                        causes[i].rank,
                        causes[i].action ? " with " + to_string(*causes[i].action) : ""));
    }
    return fmt::format("; on the GPU at the same time, and as likely the cause: {}",
                       fmt::join(others, ", "));
}

}  // namespace pipetwin::exec

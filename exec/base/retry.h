// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>

#include "core/base/error.h"

/// What failed because a disk was full, and is tried again.
namespace pipetwin::exec {

/// How long a write waits for a full disk where nothing can be done meanwhile: before the first
/// step and after the last one.
constexpr std::chrono::seconds disk_patience{5};

/// When to try again what has failed: a second later, then after twice as long each time, up to a
/// minute.
class Retry {
  public:
    using Clock = std::chrono::steady_clock;

    /// Whether the last try failed.
    bool has_failed() const { return wait_ > Clock::duration{}; }
    /// Whether it failed long enough ago.
    bool is_due(Clock::time_point now) const { return has_failed() && now >= next_; }

    void failed(Clock::time_point now) {
        constexpr Clock::duration shortest = std::chrono::seconds(1);
        constexpr Clock::duration longest = std::chrono::minutes(1);
        wait_ = std::clamp(2 * wait_, shortest, longest);
        next_ = now + wait_;
    }
    void succeeded() { wait_ = {}; }

  private:
    Clock::duration wait_{};
    Clock::time_point next_{};
};

/// Calls `work` until it throws no Error(Io). `tell` gets the first one that it throws; the one
/// that it throws after `patience` goes to the caller, and so does any other exception, and a
/// LastingIoError, at once.
void keep_trying(std::chrono::milliseconds patience,
                 const std::function<void()>& work,
                 const std::function<void(const Error&)>& tell);

}  // namespace pipetwin::exec

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "cli/base/console.h"

namespace pipetwin::cli {

/// Progress of a long task. Prints nothing for the first second; then, on a terminal, one line that
/// is redrawn, else a line per 10 %. Ends its line when destroyed.
class Progress {
  public:
    using Clock = std::chrono::steady_clock;

    Progress(Console& console, std::string title, Clock::time_point (*now)() = &Clock::now);
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    ~Progress();

    /// Shows a progress of `share`, 0 to 1; `what` is going on.
    void update(double share, std::string_view what = {});

  private:
    void redraw(int percent, std::string_view what);
    void clear_line();

    Console& console_;
    std::string title_;
    Clock::time_point (*now_)();
    Clock::time_point start_;
    Clock::time_point drawn_{};
    int next_percent_ = 10;
    bool line_open_ = false;
};

}  // namespace pipetwin::cli

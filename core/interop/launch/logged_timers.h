// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/interop/launch/training_log.h"

namespace pipetwin {

/// Reads Megatron's timers (megatron/core/timers.py); one object for each log.
class LoggedTimers {
  public:
    /// Reads a line. `has_step`: a step stands before it; `is_first`: which is the first of a
    /// start.
    void take(std::string_view line, bool has_step, bool is_first);

    /// The timers by name. Reports of all ranks go before those of one rank, and those of first
    /// steps count where there are no others.
    std::vector<LoggedTimer> found() const;

  private:
    struct Report {
        std::optional<double> least{};  ///< seconds; none: the log has the most alone
        double most = 0;                ///< seconds
        bool is_first = false;
        bool of_one_rank = false;
    };

    void begin(bool is_first);
    void add(std::string_view name, Report report);
    /// "forward-compute: 193.77 | backward-compute: 73.02 | ..."
    void take_row(std::string_view row);
    /// "    forward-compute ....: (900.12, 950.50)", "    forward-compute ....: 950.50", or
    /// "  forward-compute:" with a line "     rank  0: 900.12" for each rank behind it. False: the
    /// line is none of these.
    bool take_timer(std::string_view line);

    std::map<std::string, std::vector<Report>, std::less<>> reports_{};
    std::string name_{};         ///< of the timer whose ranks follow
    bool awaits_ranks_ = false;  ///< no rank of that timer was read
    bool is_open_ = false;
    bool is_first_ = false;
};

}  // namespace pipetwin

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/schedule/schedule.h"
#include "core/timeline/timeline.h"

namespace pipetwin {

/// Description of a training's rows, written before its first step.
struct LiveHeader {
    std::string plan_hash;
    std::string schedule_name;
    Origin origin = Origin::Measured;
    Schedule schedule;

    bool operator==(const LiveHeader&) const = default;
};

/// One step of a training in progress.
struct LiveStep {
    int step = 0;
    Timeline timeline;
};

/// A training in progress is written as lines of JSON, each ending in a newline: a header, then a
/// line per step with begin, ready and end of every cell in nanoseconds, rank by rank. This is the
/// header's line.
///
///     {"live": 1, "plan_hash": "...", "schedule": "gpipe", "origin": "measured", "rows": "..."}
///     {"step": 12, "spans": [[0, 0, 1200000, 1200000, ...], [...]]}
std::string print_live_header(const LiveHeader& header);
/// The line of one step, behind the header's.
std::string print_live_step(const LiveStep& step);

/// Reads such lines while they are being written.
class LiveReader {
  public:
    /// `place` names the file in errors.
    explicit LiveReader(std::string place) : place_(std::move(place)) {}

    /// Takes what was appended; half a line waits for its other half. Returns the steps that are
    /// complete now. Throws Error(BadInput) with file and line for what is no line of these; such a
    /// reader has ended.
    std::vector<LiveStep> feed(std::string_view appended);

    bool has_header() const { return line_ > 0; }
    const LiveHeader& header() const { return header_; }

  private:
    void take_header(std::string_view line);
    LiveStep step_of(std::string_view line) const;
    std::string line_place() const;

    std::string place_;
    std::string rest_;
    LiveHeader header_;
    int line_ = 0;  ///< lines that were read
};

}  // namespace pipetwin

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/artifacts/live_steps.h"
#include "gui/view/run/run_data.h"

namespace pipetwin::gui {

/// A line of metrics.jsonl.
struct StepMetrics {
    int step = 0;
    double loss = 0;
    double step_ms = 0;
    std::optional<double> accuracy{};  ///< share of right classes; none where not counted
};

/// News of a training since the last call of `look`.
struct LiveUpdate {
    bool anything = false;
    std::vector<StepMetrics> metrics{};  ///< of new steps; of all after `restarted`
    bool restarted = false;              ///< another training run writes to the folder now
    bool ended = false;                  ///< the measured trace is there: the training run is over
    std::shared_ptr<const RunData> run{};  ///< with the latest steps; null where nothing came
    std::string problem{};                 ///< a sentence; "" for none
};

/// Polls the folder of a training run in progress, and reads what was appended. Steps come from
/// live.jsonl (`pipetwin train --live`), the prediction from the folder as load_run has it. Not for
/// two threads at a time.
class LiveFollower {
  public:
    /// Follows the training run in `folder`. `restarts`: a training run is about to begin there;
    /// files of an older one are no end of it.
    explicit LiveFollower(std::filesystem::path folder, bool restarts = false);

    const std::filesystem::path& folder() const { return folder_; }

    /// Reads what was appended, at most some megabytes at a time.
    LiveUpdate look();

    /// Number of steps that are drawn: the latest ones.
    static constexpr std::size_t most_steps = 32;

  private:
    /// A file that grows, and how much of it was read.
    struct Tail {
        std::filesystem::path path;
        std::uintmax_t read = 0;
        bool shrunk = false;

        std::string appended();
    };

    void read_metrics(LiveUpdate& update);
    void read_steps(LiveUpdate& update);
    std::shared_ptr<const RunData> drawn();
    std::optional<std::filesystem::file_time_type> end() const;

    std::filesystem::path folder_;
    Tail metrics_{.path = folder_ / "metrics.jsonl"};
    Tail live_{.path = folder_ / "live.jsonl"};
    std::string half_line_;
    std::optional<LiveReader> reader_;
    std::deque<LiveStep> steps_;
    std::optional<RunData> base_;  ///< what was predicted
    std::optional<std::filesystem::file_time_type> old_end_;
};

}  // namespace pipetwin::gui

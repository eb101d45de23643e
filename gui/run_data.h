#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/compare.h"
#include "gui/twin.h"

namespace pipetwin::gui {

/// What the window says about one rank of one side.
struct RankSummary {
    Duration busy{};         ///< F, B, I, W and R
    double utilisation = 0;  ///< busy / pipeline time of that side; 0 without any time
};

/// What is known about one side beside its timeline.
struct SideData {
    Origin origin{};
    int steps = 0;        ///< steps in the file; the drawn one is the one nearest the median
    Duration step{};      ///< of the drawn step
    Duration pipeline{};  ///< of the drawn step
    std::vector<RankSummary> ranks;
};

/// A run as the window shows it: read, aligned and compared once, then only looked at.
struct RunData {
    std::filesystem::path path;
    std::string schedule_name;
    int micro_batches = 0;
    Twin twin;                          ///< the drawn step of each side; the first begin is 0
    std::optional<SideData> predicted;  ///< there exactly if the twin's side is
    std::optional<SideData> measured;
    std::optional<Comparison> comparison;  ///< where both sides are there and have the same rows
    std::vector<std::string> problems;     ///< what could not be read or compared, in sentences

    bool empty() const { return twin.rank_count() == 0; }
    const std::optional<SideData>& side(Side side) const;
};

/// Reads a run folder (`predicted.trace.json`, `measured.trace.json`) or one trace file. What can
/// be read is there and what cannot stands in `problems`; never throws for what lies in the folder.
/// Takes as long as the files are large: call it on a worker.
RunData load_run(const std::filesystem::path& path);

/// "measured" or "emulated", "predicted": what the side is called, "" where it is missing.
std::string side_name(const RunData& run, Side side);

/// The summary of one side's drawn step.
SideData summarize(const Timeline& step, int steps);

}  // namespace pipetwin::gui

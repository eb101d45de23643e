// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "cli/run_folder/growing_file.h"
#include "exec/training/trainer.h"

namespace pipetwin::cli {

/// metrics.jsonl: a line per step, handed to the system before the next step begins. Lines that the
/// disk has no room for are kept, and written as soon as it has. Those beyond a limit of memory are
/// dropped; `tell` gets how many.
class MetricsFile {
  public:
    /// Goes on with the file of a run whose steps before `first_step` are done: the whole lines of
    /// these stay, up to the first that is torn. `tell` gets what is no reason to stop. Throws
    /// Error(Io) where the file cannot be opened, Error(BadInput) where it is no regular one.
    MetricsFile(const std::filesystem::path& path,
                int first_step,
                std::function<void(const std::string&)> tell,
                std::size_t most_in_memory = GrowingFile::most_in_memory);

    /// Writes the line of a step.
    void add(const exec::StepReport& step);

    /// Returns when all lines are on the disk. Warns the user if some cannot be written.
    void bring_to_disk();

    /// Writes what was kept, and waits for the disk for so long. Throws Error(Io).
    void finish(std::chrono::milliseconds patience);

  private:
    void tell_dropped();

    std::function<void(const std::string&)> tell_;
    GrowingFile file_;
    bool has_failed_ = false;
    std::int64_t told_dropped_ = 0;  ///< lines
};

}  // namespace pipetwin::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "cli/run_folder/growing_file.h"
#include "core/artifacts/live_steps.h"

namespace pipetwin::cli {

/// live.jsonl: what every rank did in each step, for a program that watches. A file that has become
/// large begins again, with its header. What the disk has no room for is written later.
class LiveFile {
  public:
    LiveFile(std::filesystem::path path, const LiveHeader& header);

    /// Writes the timeline of a step.
    void add(int step, const Timeline& timeline);
    /// Writes what was kept, and waits for the disk for so long. Throws Error(Io).
    void finish(std::chrono::milliseconds patience) { file_.finish(patience); }

    static constexpr std::int64_t largest = 64 << 20;  ///< bytes, and a step more

  private:
    void write(const std::string& line);

    GrowingFile file_;
    std::string header_;
    std::int64_t size_ = 0;
};

}  // namespace pipetwin::cli

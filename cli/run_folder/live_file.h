#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>

#include "core/artifacts/live_steps.h"

namespace pipetwin::cli {

/// live.jsonl: what every rank did in each step, for a program that watches. A file that has become
/// large begins again, with its header. All functions throw Error(Io).
class LiveFile {
  public:
    LiveFile(std::filesystem::path path, const LiveHeader& header);

    /// Writes the timeline of a step.
    void add(int step, const Timeline& timeline);

    static constexpr std::int64_t largest = 64 << 20;  ///< bytes, and a step more

  private:
    void begin();
    void write(const std::string& line);

    std::filesystem::path path_;
    std::string header_;
    std::ofstream stream_;
    std::int64_t size_ = 0;
};

}  // namespace pipetwin::cli

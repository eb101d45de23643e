#pragma once

#include <filesystem>
#include <fstream>

#include "exec/training/trainer.h"

namespace pipetwin::cli {

/// metrics.jsonl: a line per step, handed to the system before the next step begins. All functions
/// throw Error(Io).
class MetricsFile {
  public:
    /// Opens the file of a run whose steps before `first_step` are done: their lines stay.
    MetricsFile(std::filesystem::path path, int first_step);

    /// Writes the line of a step.
    void add(const exec::StepReport& step);

    /// Returns when all lines are on the disk.
    void bring_to_disk() const;

  private:
    void check() const;

    std::filesystem::path path_;
    std::ofstream stream_;
};

}  // namespace pipetwin::cli

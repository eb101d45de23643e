// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/accuracy/rounds.h"

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace pipetwin::accuracy {

/// What was measured before, and the file that it goes on in: a JSON object per line. A line that
/// was cut off by a kill is forgotten.
class AccuracyStore {
  public:
    explicit AccuracyStore(const std::filesystem::path& path);

    /// Throw Error(Io) if the file cannot be written.
    void add(const CellResult& result) const;
    void add(const Scalars& scalars, Precision precision) const;

    const CellResult* find(const std::string& cell) const;
    /// With these sizes of layers, which are not stored.
    std::optional<Scalars> scalars(Precision precision, const Profile& sizes) const;

  private:
    void add_line(const std::string& line) const;

    std::filesystem::path path_;
    std::vector<CellResult> cells_;
    std::map<std::string, std::string> scalars_;  // of a precision: the line
};

}  // namespace pipetwin::accuracy

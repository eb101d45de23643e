// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>

#include "core/schedule/action.h"

namespace pipetwin::exec {

/// What a process was doing, in a file that is there whatever ends the process: the system keeps
/// what was written to its memory even after SIGKILL. A text of lines of one length, to be read
/// with any program: who this is, and the latest things that it turned to, the newest one marked
/// with `>`. Any thread.
class FlightRecorder {
  public:
    /// A recorder without a file, which records nothing.
    FlightRecorder() = default;
    /// Makes the file anew, and its folder where there is none. Throws Error(Io).
    FlightRecorder(const std::filesystem::path& file, const std::string& who);
    FlightRecorder(const FlightRecorder&) = delete;
    FlightRecorder& operator=(const FlightRecorder&) = delete;
    ~FlightRecorder();

    /// The recorder of all who want nothing recorded.
    static FlightRecorder& of_nothing();

    /// Writes a line with the time of day and `what`.
    void note(std::string_view what);
    /// Writes a line that a rank turns to the cell of its row.
    void turn_to(int step, int rank, std::size_t cell, const Action& action);

  private:
    static constexpr std::size_t line_bytes = 96;
    static constexpr std::size_t heading_lines = 3;
    static constexpr std::size_t kept_lines = 253;
    static constexpr std::size_t file_bytes = line_bytes * (heading_lines + kept_lines);

    void write(std::size_t line, char mark, std::string_view text);

    std::mutex mutex_;
    char* text_ = nullptr;  ///< the file's contents; null: nothing is recorded
    std::size_t next_ = 0;
};

}  // namespace pipetwin::exec

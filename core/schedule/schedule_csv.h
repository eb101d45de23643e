// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/schedule/schedule.h"

namespace pipetwin {

/// Actions that `print_schedule_csv` writes.
enum class CsvContent {
    Ours,          ///< PyTorch's compute_comms plus R, NORM and OPT
    ComputeComms,  ///< PyTorch's own words only: R, NORM and OPT left out
    ComputeOnly,   ///< F, B, I, W; no communication
};

/// Largest schedule file that is read, in bytes.
constexpr std::size_t largest_schedule_file = std::size_t{1} << 30;

/// Refuses a file of too many cells while it is being read, before any of them is kept.
class CellCounter {
  public:
    explicit CellCounter(std::string_view place) : place_(place) {}

    /// The next part of the file. Throws Error(BadInput) with file:line:column of the cell that is
    /// one more than `largest_schedule`.
    void count(std::string_view part);

  private:
    std::string place_;
    std::int64_t cells_ = 0;
    int line_ = 1;
    std::size_t column_ = 1;
    bool behind_return_ = false;  ///< a line feed here ends no second line
};

/// PyTorch pipelining schedule CSV: a line per rank, no header; lines and separators as
/// core/text/csv_lines.h reads them. Strict: throws Error(BadInput) with
/// file:line:column, the offending text and what was expected. Reads both dialects: in
/// the old one `B` is the input gradient and `BW` the full backward. What the grammar accepts but
/// is no valid schedule is returned as it is: `validate` says what is wrong with it. A file whose
/// stages s and s + S/2 share out the micro-batches of F - both have some, none in common, together
/// all, for every s < S/2 - is two pipelines of one model (chimera): `weights_of_stage` says so.
Schedule parse_schedule_csv(std::string_view text, std::string_view place);

/// Reads a schedule from a file as `parse_schedule_csv` does; refuses more than `largest_schedule`
/// cells while it reads. Throws Error(Io), too.
Schedule read_schedule_csv(const std::filesystem::path& file);

/// "....csv": the name of a schedule file, not of a generator.
bool is_schedule_file(std::string_view name);

/// One line per rank, ending in CRLF as Python's csv writer does. Throws Error(BadInput) for
/// ComputeComms if the schedule has skip messages: PyTorch's files have no word for them.
std::string print_schedule_csv(const Schedule& schedule, CsvContent content = CsvContent::Ours);

}  // namespace pipetwin

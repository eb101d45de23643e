// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/base/console.h"
#include "cli/text/json_output.h"

/// Parts that `import` and `export` share: names of formats, output, result.
namespace pipetwin::cli {

/// The index of `word` in the formats that a command ("export") knows, in the order in which they
/// are listed; `source` is the word behind it. Throws Error(Usage) with the nearest name.
std::size_t format_index(std::string_view command,
                         std::string_view word,
                         std::string_view source,
                         std::span<const std::string_view> known);

/// Writes a result as JSON text into the file of --out, where that is given, with a note. Throws
/// Error(Io) if something stands there and --force was not given.
void write_result(const std::string& json, const CommonOptions& options, Console& console);

/// Description of the file that was written, for stdout.
struct Exchanged {
    std::string format;
    std::string source;
    std::filesystem::path out;
    int ranks = 0;  ///< 0 where the format knows none, as below
    int stages = 0;
    int devices = 0;                     ///< of all replicas, and of all that share a rank
    std::optional<int> micro_batches{};  ///< none where the format knows none
    std::optional<std::string> costs{};  ///< where times come from; none where there are none
    std::optional<int> layers{};         ///< of a profile
    std::optional<std::int64_t> parameters{};
    /// Settings of the source that change its run and are left out, as the user insisted.
    std::vector<std::string> left_out{};
};

/// Prints the result as text, or as JSON if the user asked for it.
void report(const Exchanged& what, const CommonOptions& options, Console& console);

/// Prints the result with `more_text` behind its text, or with the members of `more_keys` behind
/// its keys.
void report(const Exchanged& what,
            const CommonOptions& options,
            Console& console,
            const std::string& more_text,
            const Json& more_keys);

}  // namespace pipetwin::cli

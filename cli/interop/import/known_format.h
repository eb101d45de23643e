// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace pipetwin::cli {

/// A format of `import`, and what the file is, in words.
struct KnownFormat {
    std::string format;
    std::string words;
};

/// The format of a file by its content, for `import auto`. Throws Error(BadInput) for one that is
/// none that `import` reads, saying what it is where that is known, and Error(Usage) for standard
/// input.
KnownFormat known_format(const std::filesystem::path& file);

/// The format of a text; none: it is none that `import` reads.
std::optional<KnownFormat> format_of_text(std::string_view text);

}  // namespace pipetwin::cli

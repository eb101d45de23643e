// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

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

}  // namespace pipetwin::cli

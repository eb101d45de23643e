// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

/// Seeded random cases, few in the daily run and many in `scripts/soak`.
namespace pipetwin::tests {

/// The number in an environment variable, or `otherwise`.
inline std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
    const char* text = std::getenv(
        name);  // NOLINT(concurrency-mt-unsafe): tests set no variables while threads run
    return text == nullptr ? otherwise : std::stoull(text);
}

/// PIPETWIN_SEED, or 1. A test adds it to its failure messages (SCOPED_TRACE), so that a round can
/// be repeated.
inline std::uint64_t seed() {
    return number_from_environment("PIPETWIN_SEED", 1);
}

/// `cases` times PIPETWIN_SOAK.
inline int soaked(int cases) {
    return cases * static_cast<int>(number_from_environment("PIPETWIN_SOAK", 1));
}

}  // namespace pipetwin::tests

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "core/text/override.h"

/// --sweep KEY=A,B,C: keys of a scenario that take several values, one after the other.
namespace pipetwin::cli {

/// A key with its values, as --set would take each.
struct SweptKey {
    std::string key;
    std::vector<std::string> values{};
};

/// "pipeline.stages" of every key that stands in a table of its own name.
std::vector<std::string> scenario_key_names();

/// Declares the option, which can be repeated.
void add_swept_keys(CLI::App& app, std::vector<std::string>& texts);

/// Reads "pipeline.stages=2,4" of each option; commas inside of brackets and quotes belong to a
/// value. Throws Error(Usage) for what is no list, for a key that no scenario has, and for one that
/// is written twice or stands in `set`, too.
std::vector<SweptKey> swept_keys(const std::vector<std::string>& texts,
                                 const std::vector<Override>& set);

/// Every combination of the values, those of the last key changing fastest; one without any
/// override where there are no keys.
std::vector<std::vector<Override>> combinations(const std::vector<SweptKey>& keys);

/// Number of these.
std::size_t combination_count(const std::vector<SweptKey>& keys);

}  // namespace pipetwin::cli

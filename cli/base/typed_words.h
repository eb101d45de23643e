// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace pipetwin::cli {

/// Throws Error(Usage) for --set whose key and value are not one word of the form key=value, with
/// the word that was meant: "--set a b", "--set a: b", "--set a= b", quotes of a document.
void refuse_split_settings(const std::vector<std::string>& args);

}  // namespace pipetwin::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace pipetwin::cli {

/// Section that explains the words of a report, each in a sentence. `page` is the report's HTML so
/// far: words that it does not have are left out.
std::string report_glossary(std::string_view page);

}  // namespace pipetwin::cli

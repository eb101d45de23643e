#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pipetwin::cli {

/// The key of a scenario that an option has the name of, with its table: "pipeline.schedule" for
/// "--schedule"; empty if there is none.
std::string key_of_option(const std::string& option);

/// What to write in place of the option `word`, as in "--seq", that the command does not have:
/// the option of another program's word, a key of the scenario, or the nearest of the `known` ones.
std::string hint_for_option(const std::string& command,
                            const std::string& word,
                            const std::vector<std::string_view>& known);

/// What to do about a model without nodes: add --cluster, with the names that are known.
std::string cluster_hint();

}  // namespace pipetwin::cli

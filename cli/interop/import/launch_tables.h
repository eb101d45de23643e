#pragma once

#include <filesystem>
#include <string>
#include <string_view>

/// Parts that importers of other systems' launch files share.
namespace pipetwin::cli {

/// The profile that an importer writes beside its result: "x.toml" has "x.profile.json".
std::filesystem::path profile_beside(const std::filesystem::path& out);

/// "# text" as one line of a TOML file: line ends and other control characters become blanks, and
/// where the text is no UTF-8 each byte beyond ASCII a question mark.
std::string toml_comment(std::string_view text);

}  // namespace pipetwin::cli

// SPDX-License-Identifier: Apache-2.0
#include "gui/start/examples.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <string>
#include <system_error>

#include "core/base/error.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/text/input_file.h"

namespace pipetwin::gui {

namespace {

namespace fs = std::filesystem;

constexpr int most_comment_lines = 4;
constexpr std::size_t most_comment_bytes = 4096;

bool is_there(const fs::path& path) {
    std::error_code ignored;
    return fs::exists(path, ignored);
}

/// The begin of the comment at the top of a file, up to the end of its first sentence or, where
/// that is a list or an explanation, up to the colon or semicolon.
QString first_words(const fs::path& file) {
    std::istringstream lines;
    try {
        lines.str(InputFile(file).read_up_to(most_comment_bytes));
    } catch (const Error&) {
        return {};  // opening the example says what is wrong
    }
    std::string text;
    std::string line;
    for (int read = 0;
         read < most_comment_lines && std::getline(lines, line) && line.starts_with("# ");
         ++read) {
        text += (text.empty() ? "" : " ") + line.substr(2);
    }
    std::size_t end = text.size();
    for (const char* const mark : {". ", ": ", "; "}) {
        end = std::min(end, text.find(mark));
    }
    text.resize(end);
    while (text.ends_with('.')) {
        text.pop_back();
    }
    return QString::fromStdString(text);
}

}  // namespace

fs::path examples_folder() {
    fs::path folder = profiles_folder().parent_path() / "scenarios";
    return is_there(folder) ? folder : fs::path();
}

std::vector<Example> examples() {
    std::vector<Example> all;
    std::error_code stop;
    for (fs::directory_iterator at(examples_folder(), stop), end; !stop && at != end;
         at.increment(stop)) {
        if (at->path().extension() == ".toml") {
            all.push_back({.file = at->path(),
                           .name = QString::fromStdString(at->path().stem().string()),
                           .about = first_words(at->path())});
        }
    }
    std::ranges::sort(all, {}, &Example::name);
    return all;
}

fs::path documentation() {
    const fs::path root = profiles_folder().parent_path();
    const std::array files{
        root / "docs" / "README.md", root / "README.md", root / "docs" / "gui.md"};
    const auto found = std::ranges::find_if(files, is_there);
    return found == files.end() ? fs::path() : *found;
}

}  // namespace pipetwin::gui

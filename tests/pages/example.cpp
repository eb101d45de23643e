// SPDX-License-Identifier: Apache-2.0
#include "tests/pages/example.h"

#include <algorithm>
#include <regex>
#include <sstream>
#include <stdexcept>

namespace pipetwin::pages {

namespace {

constexpr std::string_view mark = "…";
constexpr std::string_view directive = "<!-- example: ";
constexpr std::string_view comment_end = "-->";

std::vector<std::string> lines_of(std::string_view text) {
    std::vector<std::string> lines;
    std::istringstream stream{std::string(text)};
    for (std::string line; std::getline(stream, line);) {
        line.erase(line.find_last_not_of(" \t\r") + 1);
        lines.push_back(line);
    }
    return lines;
}

/// The rest of `text` behind `word` and the blanks that follow it; nothing without that word.
std::optional<std::string> behind(std::string_view text, std::string_view word) {
    if (!text.starts_with(word)) {
        return std::nullopt;
    }
    text.remove_prefix(word.size());
    const std::size_t begin = text.find_first_not_of(" \n");
    return std::string(begin == std::string_view::npos ? "" : text.substr(begin));
}

/// Walks the lines of a page.
class Reader {
  public:
    explicit Reader(std::string_view page) : lines_(lines_of(page)) {}

    std::vector<Example> read() {
        while (at_ < lines_.size()) {
            const std::string& line = lines_[at_];
            if (line.starts_with(directive)) {
                read_directive();
            } else if (line == "```sh") {
                read_example();
            } else if (line.starts_with("```")) {
                block();
            } else {
                require(line.empty() || !is_prepared_, "a directive has no example behind it");
                ++at_;
            }
        }
        require(!is_prepared_, "a directive has no example behind it");
        return std::move(examples_);
    }

  private:
    void require(bool holds, const std::string& what) const {
        if (!holds) {
            throw std::runtime_error("line " + std::to_string(at_ + 1) + ": " + what);
        }
    }

    /// The text of the fenced block that begins here; goes to the line behind it.
    std::string block() {
        std::string text;
        for (++at_; at_ < lines_.size() && !lines_[at_].starts_with("```"); ++at_) {
            text += lines_[at_] + "\n";
        }
        require(at_ < lines_.size(), "a block has no end");
        ++at_;
        return text;
    }

    void read_directive() {
        std::string text = lines_[at_].substr(directive.size());
        while (!text.ends_with(comment_end)) {
            require(++at_ < lines_.size(), "a comment has no end");
            text += "\n" + lines_[at_];
        }
        text.erase(text.size() - comment_end.size());
        text.erase(text.find_last_not_of(" \n") + 1);
        if (auto commands = behind(text, "before")) {
            next_.before += *commands + "\n";
        } else if (auto options = behind(text, "append")) {
            next_.append = *options;
        } else if (auto command = behind(text, "needs")) {
            next_.needs = *command;
        } else if (auto reason = behind(text, "not run,")) {
            next_.not_run = *reason;
        } else if (auto code = behind(text, "exit code")) {
            next_.exit_code = std::stoi(*code);
        } else if (text == "numbers may differ") {
            next_.is_measured = true;
        } else {
            require(false,
                    "'" + text + "' is not one of before, append, needs, not run, exit code, " +
                        "numbers may differ");
        }
        is_prepared_ = true;
        ++at_;
    }

    void read_example() {
        next_.line = static_cast<int>(at_) + 1;
        next_.commands = block();
        std::size_t behind_blanks = at_;
        while (behind_blanks < lines_.size() && lines_[behind_blanks].empty()) {
            ++behind_blanks;
        }
        if (behind_blanks < lines_.size() && lines_[behind_blanks] == "```text") {
            at_ = behind_blanks;
            next_.output = block();
        }
        examples_.push_back(std::move(next_));
        next_ = {};
        is_prepared_ = false;
    }

    std::vector<std::string> lines_;
    std::size_t at_ = 0;
    Example next_;
    bool is_prepared_ = false;  ///< whether a directive waits for its example
    std::vector<Example> examples_;
};

/// Whether a line of print is what a line of a page says, whose marks stand for any text.
bool line_matches(std::string_view expected, std::string_view printed) {
    const std::size_t first = expected.find(mark);
    if (first == std::string_view::npos) {
        return expected == printed;
    }
    if (!printed.starts_with(expected.substr(0, first))) {
        return false;
    }
    const std::string_view rest = expected.substr(first + mark.size());
    for (std::size_t begin = first; begin <= printed.size(); ++begin) {
        if (line_matches(rest, printed.substr(begin))) {
            return true;
        }
    }
    return false;
}

/// Whether a line of a page stands for any number of lines.
bool is_gap(std::string_view line) {
    const std::size_t begin = line.find_first_not_of(' ');
    return begin != std::string_view::npos && line.substr(begin) == mark;
}

/// Without the empty lines at both ends.
std::vector<std::string> trimmed(std::string_view text) {
    std::vector<std::string> lines = lines_of(text);
    while (!lines.empty() && lines.back().empty()) {
        lines.pop_back();
    }
    while (!lines.empty() && lines.front().empty()) {
        lines.erase(lines.begin());
    }
    return lines;
}

}  // namespace

std::vector<Example> examples_of(std::string_view page) {
    return Reader(page).read();
}

std::vector<std::string> commands_beside_examples(std::string_view page) {
    std::vector<std::string> found;
    std::string fence;  // of the block around the line; none: empty
    int number = 0;
    for (const std::string& line : lines_of(page)) {
        ++number;
        const std::size_t begin = line.find_first_not_of(' ');
        if (begin == std::string::npos) {
            continue;
        }
        const std::string_view text = std::string_view(line).substr(begin);
        if (text.starts_with("```")) {
            fence = fence.empty() ? std::string(text) : "";
            continue;
        }
        const bool is_code = fence.empty() ? begin >= 4 : fence != "```sh";
        const bool is_command = text.starts_with("pipetwin ") || text.starts_with("$ ") ||
                                text.starts_with("pipetwin-gui ") || text.starts_with("python3 ");
        if (is_code && is_command) {
            found.push_back(std::to_string(number) + ": " + std::string(text));
        }
    }
    return found;
}

std::optional<std::string> first_difference(std::string_view expected, std::string_view printed) {
    const std::vector<std::string> page = trimmed(expected);
    const std::vector<std::string> lines = trimmed(printed);
    // Between two lines of marks the lines of the page follow each other; as each is looked for
    // as early as possible, a later choice could not match more.
    std::size_t at = 0;
    std::size_t next = 0;
    while (next < page.size()) {
        const bool may_skip = is_gap(page[next]);
        std::size_t end = next + (may_skip ? 1 : 0);
        const std::size_t begin = end;
        while (end < page.size() && !is_gap(page[end])) {
            ++end;
        }
        const bool is_last = end == page.size();
        std::size_t best = 0;  // lines of this part that match at once
        bool found = false;
        for (std::size_t start = at; start <= lines.size() && !found; ++start) {
            std::size_t count = 0;
            while (begin + count < end && start + count < lines.size() &&
                   line_matches(page[begin + count], lines[start + count])) {
                ++count;
            }
            found =
                begin + count == end && (!is_last || begin == end || start + count == lines.size());
            best = std::max(best, count);
            if (found) {
                at = begin == end && is_last ? lines.size() : start + count;
            }
            if (!may_skip) {
                break;
            }
        }
        if (!found) {
            return begin + best < end ? page[begin + best] : "(the end)";
        }
        next = end;
    }
    return at == lines.size() ? std::nullopt : std::optional<std::string>("(the end)");
}

std::string without_measurements(std::string_view text) {
    static const std::regex noise("(^|\n)[^\n]*: measure again on a quieter machine(?=\n|$)");
    static const std::regex number("[-+]?[0-9]+([.,][0-9]+)*( (ns|us|ms|s|min|h)\\b)?");
    static const std::regex blanks(" +");
    const std::string quiet = std::regex_replace(std::string(text), noise, "");
    const std::string masked = std::regex_replace(quiet, number, "#");
    return std::regex_replace(masked, blanks, " ");
}

}  // namespace pipetwin::pages

// SPDX-License-Identifier: Apache-2.0
#include "cli/library/question.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <exception>
#include <new>
#include <ranges>
#include <sstream>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/base/exit.h"
#include "cli/base/listener.h"
#include "cli/base/output_file.h"
#include "cli/command_line.h"
#include "core/base/io_hint.h"
#include "core/base/suggest.h"
#include "core/text/json_text.h"

namespace pipetwin::cli {

namespace {

namespace fs = std::filesystem;

/// Commands that answer a question, and do nothing else to this process.
constexpr std::array<std::string_view, 9> asked_commands{
    "calibrate", "check", "compare", "devices", "export", "import", "plan", "simulate", "sweep"};

std::string_view word_of(ErrorKind kind) {
    switch (kind) {
        case ErrorKind::Usage:
            return "usage";
        case ErrorKind::BadInput:
            return "bad input";
        case ErrorKind::Infeasible:
            return "infeasible";
        case ErrorKind::Unavailable:
            return "unavailable";
        case ErrorKind::Io:
            return "io";
        default:
            return "other";
    }
}

/// The number at the end of a text, behind a colon, which is taken off; 0: there is none.
int take_number(std::string& text) {
    const std::size_t colon = text.rfind(':');
    int number = 0;
    if (colon == std::string::npos) {
        return 0;
    }
    const char* const end = text.data() + text.size();
    const auto [rest, status] = std::from_chars(text.data() + colon + 1, end, number);
    if (status != std::errc{} || rest != end || number <= 0) {
        return 0;
    }
    text.erase(colon);
    return number;
}

ErrorParts parts_of(const Error& error) {
    ErrorParts parts{.kind = std::string(word_of(error.kind())),
                     .place = error.place(),
                     .key = error.key(),
                     .reason = error.text(),
                     .hint = error.hint()};
    std::string file = error.place();
    const int last = take_number(file);
    const int before = take_number(file);
    parts.line = before > 0 ? before : last;
    parts.column = before > 0 ? last : 0;
    if (parts.line > 0) {
        parts.file = std::move(file);
    }
    return parts;
}

/// A folder that is removed with what is in it.
class OwnFolder {
  public:
    OwnFolder() {
        std::error_code failed;  // TMPDIR is no folder
        std::string name = (fs::temp_directory_path(failed) / "pipetwin-XXXXXX").string();
        if (failed || ::mkdtemp(name.data()) == nullptr) {
            throw Error(ErrorKind::Io,
                        failed ? "TMPDIR" : name,
                        "no folder for the given files can be made here",
                        "set TMPDIR to a folder that can be written to");
        }
        path_ = name;
    }
    OwnFolder(const OwnFolder&) = delete;
    OwnFolder& operator=(const OwnFolder&) = delete;
    ~OwnFolder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }

    const fs::path& path() const { return path_; }

  private:
    fs::path path_;
};

bool is_file_name(const std::string& name) {
    return !name.empty() && name != "." && name != ".." && name.front() != '-' &&
           name.find('/') == std::string::npos;
}

void remove_all_of(std::string& text, const std::string& what) {
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at)) {
        text.erase(at, what.size());
    }
}

/// Takes the folder of given files out of what a reader sees: their names are all that he knows.
void forget_folder(const fs::path& folder, Answer& answer) {
    const std::string prefix = folder.string() + '/';
    remove_all_of(answer.result, prefix);
    remove_all_of(answer.notes, prefix);
    if (answer.error) {
        for (std::string* const part : {&answer.error->place,
                                        &answer.error->file,
                                        &answer.error->reason,
                                        &answer.error->hint}) {
            remove_all_of(*part, prefix);
        }
    }
    for (auto& [name, content] : answer.files) {
        remove_all_of(content, prefix);
    }
}

/// Whether `file` has other content than it was given with; true for one that was not given.
bool is_written(const fs::path& file, const std::string& name, const auto& given) {
    const auto found = given.find(name);
    std::error_code ignored;
    return found == given.end() || fs::file_size(file, ignored) != found->second.size() ||
           read_file(file, found->second.size() + 1) != found->second;
}

/// Keeps what a command has written: files, and those of folders as "FOLDER/FILE". `given`: files
/// that were there before; `outputs`: names of what is kept in any case. Throws Error.
void keep_outputs(const fs::path& folder,
                  const auto& given,
                  const std::vector<std::string>& outputs,
                  Answer& answer) {
    constexpr std::size_t no_limit = std::size_t{1} << 40U;
    std::error_code failed;
    fs::recursive_directory_iterator at(folder, failed);
    for (; !failed && at != fs::recursive_directory_iterator(); at.increment(failed)) {
        const fs::path& file = at->path();
        const std::string name = file.lexically_relative(folder).string();
        std::error_code ignored;
        if (at->is_regular_file(ignored) &&
            (std::ranges::find(outputs, name) != outputs.end() || is_written(file, name, given))) {
            answer.files[name] = read_file(file, no_limit);
        }
    }
    if (failed) {
        throw Error(ErrorKind::Io,
                    folder.string(),
                    fmt::format("what was written cannot be read: {}", failed.message()),
                    io_hint(failed.value()));
    }
}

void expect_asked_command(const std::vector<std::string>& words) {
    if (std::ranges::find(asked_commands, words.front()) == asked_commands.end()) {
        const std::string_view near = nearest_word(words.front(), asked_commands);
        throw Error(
            ErrorKind::Usage,
            words.front(),
            fmt::format("no question has this name, expected {}", fmt::join(asked_commands, ", ")),
            near.empty() ? Hint("the program 'pipetwin' has the other commands")
                         : did_you_mean(near));
    }
    if (std::ranges::find(words, "-") != words.end()) {
        throw Error(ErrorKind::Usage,
                    "-",
                    "a question reads no standard input",
                    "give the file as text, by a name of its own");
    }
}

}  // namespace

Answer refused(const Error& error) {
    Answer answer;
    std::ostringstream notes;
    std::ostringstream nothing;
    Console console(nothing, notes, {});
    console.error(error);
    answer.code = exit_code(error.kind());
    answer.notes = notes.str();
    answer.error = parts_of(error);
    return answer;
}

bool Question::add_file(const std::string& name, std::string content) {
    if (!is_file_name(name)) {
        return false;
    }
    files_.insert_or_assign(name, std::move(content));
    return true;
}

bool Question::add_output(const std::string& name) {
    if (!is_file_name(name)) {
        return false;
    }
    outputs_.push_back(name);
    return true;
}

std::vector<std::string> Question::words_in(const fs::path& folder) const {
    std::vector<std::string> words = words_;
    for (std::string& word : words | std::views::drop(1)) {  // behind the command
        if (files_.contains(word) || std::ranges::find(outputs_, word) != outputs_.end()) {
            word = (folder / word).string();
        }
    }
    return words;
}

Answer Question::answer_in(const fs::path& folder) {
    Answer answer;
    Listener listener;
    listener.progress = [this](double share, std::string_view what) {
        const Wish wish = progress_ ? progress_(share, std::string(what)) : Wish::GoOn;
        ends_ = ends_ || wish == Wish::EndWithBest;
        is_given_up_ = is_given_up_ || wish == Wish::GiveUp;
    };
    listener.asks_to_stop = [this] { return ends_ || is_given_up_; };
    listener.has_given_up = [this] { return is_given_up_.load(); };
    listener.error = [&answer](const Error& error) { answer.error = parts_of(error); };
    listener.timeline = [&answer](Timeline timeline) { answer.timeline = std::move(timeline); };
    std::ostringstream result;
    std::ostringstream notes;
    answer.code = run_command_line(words_in(folder), result, notes, {}, &listener);
    answer.result = std::move(result).str();
    answer.notes = std::move(notes).str();
    return answer;
}

Answer Question::ask() {
    ends_ = false;
    Answer answer;
    try {
        expect_asked_command(words_);
        if (files_.empty() && outputs_.empty()) {
            answer = answer_in({});
        } else {
            const OwnFolder folder;
            std::ostringstream ignored;
            Console console(ignored, ignored, {});
            for (const auto& [name, content] : files_) {
                write_own_output(folder.path() / name, content, console);
            }
            answer = answer_in(folder.path());
            keep_outputs(folder.path(), files_, outputs_, answer);
            forget_folder(folder.path(), answer);
        }
    } catch (const Error& error) {
        answer = refused(error);
    } catch (const std::bad_alloc&) {
        throw;
    } catch (const std::exception& error) {
        answer = refused({ErrorKind::Other,
                          "",
                          fmt::format("unexpected: {}", error.what()),
                          "ask again; where that does not help, report it"});
    }
    if (is_given_up_.exchange(false) || answer.code == given_up_code) {
        answer = refused({ErrorKind::Other,
                          "",
                          "the question was given up before it had an answer",
                          "ask it again"});
        answer.code = given_up_code;
    }
    return answer;
}

}  // namespace pipetwin::cli

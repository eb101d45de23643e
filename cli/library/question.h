// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/timeline/timeline.h"

/// Command lines that another program asks, and their answers.
namespace pipetwin::cli {

/// Parts of an error, its place taken apart.
struct ErrorParts {
    std::string kind{};
    std::string place{};
    std::string file{};
    std::string key{};
    std::string reason{};
    std::string hint{};
    int line = 0;  ///< from 1; 0: not known
    int column = 0;
};

/// What came of a command line.
struct Answer {
    int code = 0;  ///< exit code
    std::string result{};
    std::string notes{};
    std::map<std::string, std::string, std::less<>> files{};  ///< [name]: content
    std::optional<ErrorParts> error{};
    std::optional<Timeline> timeline{};
    std::string picture{};  ///< of the timeline, once it was asked for
};

/// A command line that can be asked again and again, by one thread at a time.
class Question {
  public:
    /// What a caller wants of a long task.
    enum class Wish { GoOn, EndWithBest, GiveUp };

    explicit Question(std::string command) : words_{std::move(command)} {}

    void add_word(std::string word) { words_.push_back(std::move(word)); }
    /// Gives a file by its content. False for a name that is none in a folder of its own.
    bool add_file(const std::string& name, std::string content);
    /// Names a file that the command writes. False as `add_file`.
    bool add_output(const std::string& name);
    void on_progress(std::function<Wish(double share, const std::string& what)> progress) {
        progress_ = std::move(progress);
    }

    /// Gives the question up, from any thread, whether it is being answered or will be.
    void cancel() { is_given_up_ = true; }

    /// Answers; throws nothing but std::bad_alloc.
    Answer ask();

    /// Whether a thread is in `ask`; true for the caller who sets it.
    bool take() { return !is_taken_.exchange(true); }
    void leave() { is_taken_ = false; }

  private:
    std::vector<std::string> words_in(const std::filesystem::path& folder) const;
    Answer answer_in(const std::filesystem::path& folder);

    std::vector<std::string> words_;
    std::map<std::string, std::string, std::less<>> files_;
    std::vector<std::string> outputs_;
    std::function<Wish(double, const std::string&)> progress_;
    std::atomic<bool> is_given_up_ = false;
    std::atomic<bool> ends_ = false;  ///< with the best
    std::atomic<bool> is_taken_ = false;
};

/// Exit code of a question that was given up.
inline constexpr int given_up_code = 130;

/// An answer that is nothing but an error.
Answer refused(const Error& error);

}  // namespace pipetwin::cli

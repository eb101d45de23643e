// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The steps of `pipetwin demo`, as data: the commands that it runs, and what they write.
namespace pipetwin::cli {

/// Words of a command line after `pipetwin`.
using CommandWords = std::vector<std::string>;

/// Lines of a step's output that the terminal shows; the step's text file has all of them.
struct ShownLines {
    int first = 1000;
    int last = 1000;
};

/// One step of the guided tour.
struct TourStep {
    std::string_view name;  ///< part of the names of its files
    std::string_view title;
    std::string_view why;  ///< one sentence
    std::vector<CommandWords> commands{};
    std::string by_hand{};                       ///< a command line that the tour does not run
    std::vector<std::filesystem::path> files{};  ///< written by the commands, worth a look
    std::optional<int> needs{};                  ///< number of the step whose results it reads
    ShownLines shown{};
};

/// Folder in the tour's folder with everything but the trained run, which lies in `folder` itself.
std::filesystem::path tour_folder(const std::filesystem::path& folder);

/// All steps in order; step N is at index N - 1. They write into `folder`.
std::vector<TourStep> tour_steps(const std::filesystem::path& folder);

/// File that holds what step `number` printed. The step is done once the file is there.
std::filesystem::path step_text_file(const std::filesystem::path& folder,
                                     int number,
                                     const TourStep& step);

/// A command line as a user would type it, "pipetwin simulate --stages 4".
std::string typed_line(const CommandWords& words);

/// `text` without the escape sequences of colours.
std::string without_colours(std::string_view text);

/// The lines of `text` that are shown, with one line in place of those left out that names `file`.
std::string folded(std::string_view text,
                   const ShownLines& shown,
                   const std::filesystem::path& file);

}  // namespace pipetwin::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pipetwin::pages {

/// One ```sh block of a Markdown page, with what the page says about it. docs/internals/testing.md
/// has the convention.
struct Example {
    int line = 0;              ///< where its fence is, from 1
    std::string commands;      ///< bash
    std::string before;        ///< commands that the page does not show
    std::string append;        ///< options that the test adds to the last command, to make it short
    std::string needs;         ///< the example runs only where this command succeeds
    std::string not_run;       ///< why it is never run
    int exit_code = 0;         ///< of the last command
    bool is_measured = false;  ///< any number may stand in the place of any other
    std::optional<std::string> output;  ///< the ```text block behind it
};

/// The examples of a page, in its order. Throws std::runtime_error, with the line, at a directive
/// that is not known or that no example follows.
std::vector<Example> examples_of(std::string_view page);

/// Lines of a page that look like a command to type but are in no ```sh block: "12: pipetwin ...".
std::vector<std::string> commands_beside_examples(std::string_view page);

/// Compares printed text with a page's. A line of the page that is "…" stands for any number of
/// lines, a "…" within a line for any characters of it. Blanks at the ends of lines and empty lines
/// at both ends do not count. Returns the first line of the page that does not match; nothing where
/// all do.
std::optional<std::string> first_difference(std::string_view expected, std::string_view printed);

/// What a measured example may be compared by: each number, with a unit of time behind it, is "#",
/// blanks are single, and the line that asks for a quieter machine, which only a busy one gets, is
/// left out.
std::string without_measurements(std::string_view text);

}  // namespace pipetwin::pages

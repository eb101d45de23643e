// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string_view>

#include "core/base/error.h"

namespace pipetwin {

struct Timeline;

}  // namespace pipetwin

namespace pipetwin::cli {

/// A program that runs commands as functions, in place of a person at a terminal. Commands that
/// have one touch neither signals nor settings of the process. Null functions hear nothing; all are
/// called by the thread that runs the command.
struct Listener {
    /// How far a long task is: `share` from 0 to 1, and what goes on.
    std::function<void(double share, std::string_view what)> progress{};
    /// Whether the task shall end with what it has found.
    std::function<bool()> asks_to_stop{};
    /// Whether nothing of the result is wanted any more.
    std::function<bool()> has_given_up{};
    /// The error with which a command ends, before its text is printed.
    std::function<void(const Error& error)> error{};
    /// The predicted timeline that the result is about, when nothing else needs it any more.
    std::function<void(Timeline timeline)> timeline{};
};

}  // namespace pipetwin::cli

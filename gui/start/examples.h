// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <vector>

#include <QString>

namespace pipetwin::gui {

/// A scenario that comes with the program.
struct Example {
    std::filesystem::path file;
    QString name;   ///< "gpt-text"
    QString about;  ///< the first words of the comment at its top
};

/// The folder of the scenarios that come with the program, beside its profiles; empty where it is
/// not there.
std::filesystem::path examples_folder();

/// The scenarios of that folder, by name. Reads the first lines of each.
std::vector<Example> examples();

/// The documentation of the program, for Help: the installed or the source tree's file where one is
/// there, else empty.
std::filesystem::path documentation();

}  // namespace pipetwin::gui

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "cli/tour/tour.h"

namespace pipetwin::cli {

/// Page of the tour: for every step that is done its sentence, what it printed, its pictures and
/// links to its files. Links are relative to `tour_folder(folder)`, where the page lies. Throws
/// Error(Io) where the text of a step cannot be read.
std::string tour_page(const std::filesystem::path& folder);

}  // namespace pipetwin::cli

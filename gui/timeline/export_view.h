#pragma once

#include <filesystem>
#include <string>

#include <QFont>

#include "gui/timeline/timeline_scene.h"

namespace pipetwin::gui {

/// Writes the scene as a picture in the format of the file's ending: .png (two pixels for one),
/// .svg or .pdf. Returns an empty text, or a sentence on why it could not: with the file, what is
/// wrong and what would do.
std::string export_scene(const TimelineScene& scene,
                         const QFont& font,
                         const std::filesystem::path& file);

}  // namespace pipetwin::gui

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include <QFont>

#include "gui/timeline/timeline_scene.h"

class QBuffer;
class QPainter;

namespace pipetwin::gui {

/// Writes what `draw` paints into an area of that size as a picture in the format of the file's
/// ending, as `export_scene` does.
std::string export_painting(const QSize& size,
                            const std::function<void(QPainter&)>& draw,
                            const std::filesystem::path& file);

/// Writes the scene as a picture in the format of the file's ending: .png (two pixels for one),
/// .svg or .pdf. Returns an empty text, or a sentence on why it could not: with the file, what is
/// wrong and what would do.
std::string export_scene(const TimelineScene& scene,
                         const QFont& font,
                         const std::filesystem::path& file);

/// Writes what `draw` puts into a buffer, all of it or nothing. Returns an empty text, or a
/// sentence as `export_scene` does.
std::string write_drawing(const std::filesystem::path& file,
                          const std::function<void(QBuffer&)>& draw);

}  // namespace pipetwin::gui

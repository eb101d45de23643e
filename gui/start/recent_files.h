// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include <QImage>
#include <QStringList>

class QSettings;

namespace pipetwin::gui {

/// Files and folders that were opened, the latest first.
class RecentFiles {
  public:
    /// Keeps the list in `settings`, which must outlive it; null keeps nothing.
    explicit RecentFiles(QSettings* settings) : settings_(settings) {}

    /// The full paths, eight at most; those that are no longer there, too.
    QStringList paths() const;

    /// Puts a path in front of the others.
    void add(const std::filesystem::path& path);
    void remove(const QString& path);

    /// Keeps a small picture of what was opened, for the list.
    void set_picture(const std::filesystem::path& path, const QImage& picture);
    /// The picture; null where there is none.
    QImage picture(const QString& path) const;
    void clear();

    /// Whether the file or folder can be found now.
    static bool is_there(const QString& path);

  private:
    QSettings* settings_;
};

}  // namespace pipetwin::gui

// SPDX-License-Identifier: Apache-2.0
#include "gui/start/recent_files.h"

#include <system_error>

#include <QFile>
#include <QFileInfo>
#include <QSettings>

namespace pipetwin::gui {

namespace {

constexpr int most_recent = 8;
const QString recent_key = QStringLiteral("recent");

}  // namespace

QStringList RecentFiles::paths() const {
    return settings_ == nullptr ? QStringList() : settings_->value(recent_key).toStringList();
}

void RecentFiles::add(const std::filesystem::path& path) {
    if (settings_ == nullptr || path.empty()) {
        return;
    }
    std::error_code failed;
    const std::filesystem::path whole = std::filesystem::absolute(path, failed);
    const QString text = QFile::decodeName(QByteArray::fromStdString(whole.string()));
    QStringList recent = paths();
    recent.removeAll(text);
    recent.prepend(text);
    settings_->setValue(recent_key, recent.mid(0, most_recent));
}

void RecentFiles::remove(const QString& path) {
    if (settings_ != nullptr) {
        QStringList recent = paths();
        recent.removeAll(path);
        settings_->setValue(recent_key, recent);
    }
}

void RecentFiles::clear() {
    if (settings_ != nullptr) {
        settings_->remove(recent_key);
    }
}

bool RecentFiles::is_there(const QString& path) {
    return QFileInfo::exists(path);
}

}  // namespace pipetwin::gui

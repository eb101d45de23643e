// SPDX-License-Identifier: Apache-2.0
#include "gui/start/recent_files.h"

#include <system_error>

#include <QBuffer>
#include <QCryptographicHash>
#include <QFile>
#include <QFileInfo>
#include <QSettings>

namespace pipetwin::gui {

namespace {

constexpr int most_recent = 8;
const QString recent_key = QStringLiteral("recent");
const QString pictures_group = QStringLiteral("recent_pictures");

QString text_of_path(const std::filesystem::path& path) {
    std::error_code failed;
    const std::filesystem::path whole = std::filesystem::absolute(path, failed);
    return QFile::decodeName(QByteArray::fromStdString(whole.string()));
}

/// A path as a key: a '/' in it would begin a group of settings.
QString picture_key(const QString& path) {
    const QByteArray hash =
        QCryptographicHash::hash(path.toUtf8(), QCryptographicHash::Sha1).toHex();
    return pictures_group + QLatin1Char('/') + QString::fromLatin1(hash);
}

}  // namespace

QStringList RecentFiles::paths() const {
    return settings_ == nullptr ? QStringList() : settings_->value(recent_key).toStringList();
}

void RecentFiles::add(const std::filesystem::path& path) {
    if (settings_ == nullptr || path.empty()) {
        return;
    }
    const QString text = text_of_path(path);
    QStringList recent = paths();
    recent.removeAll(text);
    recent.prepend(text);
    settings_->setValue(recent_key, recent.mid(0, most_recent));
    for (const QString& gone : recent.mid(most_recent)) {
        settings_->remove(picture_key(gone));
    }
}

void RecentFiles::remove(const QString& path) {
    if (settings_ != nullptr) {
        QStringList recent = paths();
        recent.removeAll(path);
        settings_->setValue(recent_key, recent);
        settings_->remove(picture_key(path));
    }
}

void RecentFiles::set_picture(const std::filesystem::path& path, const QImage& picture) {
    const QString text = text_of_path(path);
    if (settings_ == nullptr || !paths().contains(text)) {
        return;
    }
    QByteArray png;
    QBuffer buffer(&png);
    buffer.open(QIODevice::WriteOnly);
    picture.save(&buffer, "PNG");
    settings_->setValue(picture_key(text), png);
}

QImage RecentFiles::picture(const QString& path) const {
    return settings_ == nullptr
               ? QImage()
               : QImage::fromData(settings_->value(picture_key(path)).toByteArray(), "PNG");
}

void RecentFiles::clear() {
    if (settings_ != nullptr) {
        settings_->remove(recent_key);
        settings_->remove(pictures_group);
    }
}

bool RecentFiles::is_there(const QString& path) {
    return QFileInfo::exists(path);
}

}  // namespace pipetwin::gui

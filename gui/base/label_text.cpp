// SPDX-License-Identifier: Apache-2.0
#include "gui/base/label_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <QCache>
#include <QPaintEngine>
#include <QStaticText>

namespace pipetwin::gui {

namespace {

/// More than a screen has.
constexpr int known_texts = 2048;

/// `QFont::key`, which writes the font down: kept, as a program has a few fonts.
const QString& key_of(const QFont& font) {
    constexpr std::size_t most = 16;
    thread_local std::vector<std::pair<QFont, QString>> known;
    const auto found = std::ranges::find(known, font, &std::pair<QFont, QString>::first);
    if (found != known.end()) {
        return found->second;
    }
    if (known.size() == most) {
        known.clear();
    }
    return known.emplace_back(font, font.key()).second;
}

QStaticText& known_text(const QFont& font, const QString& text) {
    thread_local QCache<QString, QStaticText> known(known_texts);
    const QString key = key_of(font) + QChar(0) + text;
    QStaticText* found = known.object(key);
    if (found == nullptr) {
        found =
            new QStaticText(text);  // NOLINT(cppcoreguidelines-owning-memory): the cache owns it
        found->setTextFormat(Qt::PlainText);
        found->setPerformanceHint(QStaticText::AggressiveCaching);
        found->prepare({}, font);
        known.insert(key, found);
    }
    return *found;
}

}  // namespace

void draw_label(QPainter& painter,
                const QRect& rect,
                Qt::Alignment alignment,
                const QString& text) {
    const bool raster = painter.paintEngine()->type() == QPaintEngine::Raster;
    if (!raster) {
        painter.drawText(rect, static_cast<int>(alignment), text);  // text stays text in a file
        return;
    }
    const QStaticText& known = known_text(painter.font(), text);
    const QSizeF size = known.size();
    QPointF place = rect.topLeft();
    if ((alignment & Qt::AlignRight) != 0) {
        place.rx() += rect.width() - size.width();
    }
    if ((alignment & Qt::AlignVCenter) != 0) {
        place.ry() += (rect.height() - size.height()) / 2;
    }
    painter.drawStaticText(place, known);
}

}  // namespace pipetwin::gui

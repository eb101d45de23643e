// SPDX-License-Identifier: Apache-2.0
#include "gui/base/sentence.h"

#include <QRegularExpression>

namespace pipetwin::gui {

QString unbroken(const QString& text) {
    static const QRegularExpression number_and_unit(
        QStringLiteral("(\\d) (?=(?:[num]?s|min|h|B|[KMGT]iB|%)(?:\\W|$))"));
    QString changed = text;
    return changed.replace(number_and_unit, QStringLiteral("\\1") + QChar(QChar::Nbsp));
}

}  // namespace pipetwin::gui

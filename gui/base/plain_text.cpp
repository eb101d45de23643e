// SPDX-License-Identifier: Apache-2.0
#include "gui/base/plain_text.h"

#include <QComboBox>
#include <QTextDocument>
#include <QToolTip>

#include "gui/view/analysis/glossary.h"

namespace pipetwin::gui {

QLabel* plain_label(QWidget* parent, const QString& text) {
    auto* const label = new QLabel(parent);  // NOLINT(cppcoreguidelines-owning-memory): Qt's
    label->setTextFormat(Qt::PlainText);
    label->setText(text);
    return label;
}

QString plain_tip(const QString& text) {
    return Qt::mightBeRichText(text)
               ? QStringLiteral("<p style='white-space:pre-wrap'>%1</p>").arg(text.toHtmlEscaped())
               : text;
}

void set_tip(QWidget& widget, const QString& text) {
    widget.setToolTip(plain_tip(text));
}

QString meaning_tip(const QString& word) {
    for (const QString& name : {word, word.toLower()}) {
        if (const std::string_view meaning = meaning_of(name.toStdString()); !meaning.empty()) {
            return plain_tip(QStringLiteral("%1: %2").arg(
                name, QString::fromUtf8(meaning.data(), static_cast<qsizetype>(meaning.size()))));
        }
    }
    return {};
}

QVariant heading_data(const QString& text, int role, const QString& tip) {
    return role == Qt::DisplayRole   ? QVariant(text)
           : role == Qt::ToolTipRole ? QVariant(tip.isEmpty() ? meaning_tip(text) : plain_tip(tip))
                                     : QVariant();
}

void set_item_tip(QComboBox& list, int entry, const QString& text) {
    list.setItemData(entry, plain_tip(text), Qt::ToolTipRole);
}

void show_tip(const QPoint& global, const QString& text, QWidget* widget) {
    QToolTip::showText(global, plain_tip(text), widget);
}

}  // namespace pipetwin::gui

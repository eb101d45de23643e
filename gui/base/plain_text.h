// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <QLabel>
#include <QPoint>
#include <QString>
#include <QVariant>

class QComboBox;

/// Texts that are shown as they are. Qt takes a text that looks like HTML for HTML, and names in
/// runs are written by others.
namespace pipetwin::gui {

/// A label that shows its text as it is.
QLabel* plain_label(QWidget* parent, const QString& text = {});

/// A text for a tooltip (also as an item's Qt::ToolTipRole), which shows it as it is. Returns the
/// text itself where it does not look like HTML.
QString plain_tip(const QString& text);

/// Sets the tooltip of a widget, which shows the text as it is.
void set_tip(QWidget& widget, const QString& text);

/// "bubble: the share of ...", of a word of the glossary that a label or the head of a column
/// shows, with a capital letter or without; "" for any other text.
QString meaning_tip(const QString& word);

/// The head of a column for a model's `headerData`: its text, and as its tooltip `tip` or, without
/// one, the meaning of the text. Nothing for other roles.
QVariant heading_data(const QString& text, int role, const QString& tip = {});

/// Sets the tooltip of an entry of a list, which shows the text as it is.
void set_item_tip(QComboBox& list, int entry, const QString& text);

/// Shows a tooltip with the text as it is; none where it is empty.
void show_tip(const QPoint& global, const QString& text, QWidget* widget);

}  // namespace pipetwin::gui

// SPDX-License-Identifier: Apache-2.0
#include "gui/panels/two_tables.h"

#include <algorithm>
#include <utility>

#include <QLabel>
#include <QSplitter>
#include <QTreeView>
#include <QVBoxLayout>

#include "gui/base/panel_text.h"
#include "gui/base/plain_text.h"

namespace pipetwin::gui {

TwoTables::TwoTables(const Names& names, QWidget* parent)
    : QWidget(parent),
      sentence_(plain_label(this)),
      splitter_(splitter_of_lists(this)),
      first_(new TextTable(this)),
      first_view_(table_view(first_, names.first, this)),
      second_(new TextTable(this)),
      second_view_(table_view(second_, names.second, this)) {
    setAccessibleName(names.panel);
    sentence_->setWordWrap(true);
    sentence_->setAlignment(Qt::AlignTop | Qt::AlignLeft);
    sentence_->setTextInteractionFlags(Qt::TextSelectableByMouse);
    sentence_->setContentsMargins(panel_margin, 0, panel_margin, 0);
    splitter_->addWidget(first_view_);
    splitter_->addWidget(second_view_);
    auto* const column = new QVBoxLayout(this);
    column->setContentsMargins(0, panel_margin, 0, 0);
    column->setSpacing(panel_margin / 2);
    column->addWidget(sentence_);
    column->addWidget(splitter_, 1);
}

void TwoTables::show_content(Shown shown) {
    sentence_->setText(shown.sentence);
    sentence_->setAccessibleName(shown.sentence);
    first_->show(std::move(shown.first));
    second_->show(std::move(shown.second));
    room_of_first_ = fit_columns(first_view_);
    second_has_texts_ = shown.text_columns > 1;
    fit_columns(second_view_, shown.text_columns);
    second_view_->setVisible(shown.has_second);
    share_room_of_tables();
    splitter_->setVisible(shown.has_tables);
    emit settled();
}

void TwoTables::share_room_of_tables() {
    const int left = width() - splitter_->handleWidth() - room_of_first_;
    share_room(splitter_, {room_of_first_, std::max(second_has_texts_ ? room_of_first_ : 0, left)});
}

void TwoTables::resizeEvent(QResizeEvent* event) {
    QWidget::resizeEvent(event);
    share_room_of_tables();
}

void TwoTables::set_colors(const Palette& palette) {
    setPalette(widget_palette(palette));
}

}  // namespace pipetwin::gui

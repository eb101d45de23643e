// SPDX-License-Identifier: Apache-2.0
#include "gui/panels/groups_panel.h"

#include <algorithm>
#include <utility>

#include <QLabel>
#include <QSplitter>
#include <QTreeView>
#include <QVBoxLayout>

#include "core/base/as_index.h"
#include "gui/base/panel_text.h"
#include "gui/base/plain_text.h"

namespace pipetwin::gui {

namespace {

/// A table of texts; it keeps the run that has them.
TextTable::Content content_of(const std::shared_ptr<const RunData>& run,
                              const TextRows& texts,
                              int left_columns) {
    QStringList headers;
    for (const std::string& header : texts.headers) {
        headers.append(text_of(header));
    }
    return {.headers = headers,
            .rows = static_cast<int>(texts.rows.size()),
            .left_columns = left_columns,
            .text = [run, &texts](int row, int column) {
                return text_of(texts.rows[as_index(row)][as_index(column)]);
            }};
}

}  // namespace

GroupsPanel::GroupsPanel(QWidget* parent)
    : QWidget(parent),
      sentence_(plain_label(this)),
      splitter_(splitter_of_lists(this)),
      groups_(new TextTable(this)),
      groups_view_(table_view(groups_, tr("Groups of devices"), this)),
      experts_(new TextTable(this)),
      experts_view_(table_view(experts_, tr("Memory of experts"), this)) {
    setAccessibleName(tr("Groups"));
    sentence_->setWordWrap(true);
    sentence_->setAlignment(Qt::AlignTop | Qt::AlignLeft);
    sentence_->setTextInteractionFlags(Qt::TextSelectableByMouse);
    sentence_->setContentsMargins(panel_margin, 0, panel_margin, 0);
    splitter_->addWidget(groups_view_);
    splitter_->addWidget(experts_view_);
    auto* const column = new QVBoxLayout(this);
    column->setContentsMargins(0, panel_margin, 0, 0);
    column->setSpacing(panel_margin / 2);
    column->addWidget(sentence_);
    column->addWidget(splitter_, 1);
    show_run(nullptr);
}

void GroupsPanel::show_run(std::shared_ptr<const RunData> run) {
    if (run == nullptr) {
        run = std::make_shared<const RunData>();
    }
    const GroupTable& table = run->groups;
    QString text = table.empty()
                       ? tr("Nothing is known of groups of devices.")
                       : tr("Messages of a step, as predicted, of the rank that they take "
                            "longest on; sent by one of its devices.");
    if (!table.load.empty()) {
        text += QStringLiteral(" ") + text_of(table.load);
    }
    sentence_->setText(text);
    sentence_->setAccessibleName(text);
    constexpr int words = 3;
    groups_->show(content_of(run, table.groups, words));
    experts_->show(content_of(run, table.experts, 1));
    room_of_groups_ = fit_columns(groups_view_);
    fit_columns(experts_view_);
    experts_view_->setVisible(!table.experts.rows.empty());
    share_room_of_lists();
    splitter_->setVisible(!table.empty());
    emit settled();
}

/// Shows all of the groups, and leaves what room is left to the experts.
void GroupsPanel::share_room_of_lists() {
    const int left = width() - splitter_->handleWidth() - room_of_groups_;
    share_room(splitter_, {room_of_groups_, std::max(0, left)});
}

void GroupsPanel::resizeEvent(QResizeEvent* event) {
    QWidget::resizeEvent(event);
    share_room_of_lists();
}

void GroupsPanel::set_colors(const Palette& palette) {
    setPalette(widget_palette(palette));
}

}  // namespace pipetwin::gui

// SPDX-License-Identifier: Apache-2.0
#include "gui/panels/groups_panel.h"

#include <string>

#include "core/base/as_index.h"
#include "gui/base/panel_text.h"

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
    : TwoTables({.panel = tr("Groups"),
                 .first = tr("Groups of devices"),
                 .second = tr("Memory of experts")},
                parent) {
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
    constexpr int words = 3;
    show_content({.sentence = text,
                  .first = content_of(run, table.groups, words),
                  .second = content_of(run, table.experts, 1),
                  .has_tables = !table.empty(),
                  .has_second = !table.experts.rows.empty()});
}

}  // namespace pipetwin::gui

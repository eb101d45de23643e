// SPDX-License-Identifier: Apache-2.0
#include "gui/panels/groups_panel.h"

#include <QTreeView>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gui/canned.h"
#include "tests/gui/panels.h"

namespace pipetwin::gui {
namespace groups_panel_test {

using ::testing::HasSubstr;

TEST(GroupsPanel, ShowsGroupsAndTheMemoryOfExperts) {
    GroupsPanel panel;
    panel.resize(1280, 200);
    panel.show();
    RunData run = canned_run({});
    run.groups = {
        .groups =
            {.headers = {"groups", "devices", "messages", "sent", "time", "beside"},
             .rows = {{"experts", "64 on 8 nodes", "all-to-all", "7.00 GiB", "1.20 s", "nothing"},
                      {"pipeline", "4", "messages", "1.00 GiB", "22.3 ms", "x"}}},
        .experts = {.headers = {"rank", "weights", "gradients", "optimizer"},
                    .rows = {{"0", "1.31 GiB", "2.62 GiB", "7.88 GiB"}}},
        .load = "The fullest device has 1.5 times the mean."};
    show_settled(panel, std::make_shared<const RunData>(run));
    EXPECT_THAT(sentence_in(panel), HasSubstr("The fullest device has 1.5 times the mean."));
    const auto cell = [](const QTreeView* view, int row, int column) {
        return view->model()->data(view->model()->index(row, column)).toString().toStdString();
    };
    QTreeView* const groups = list_of(panel, "Groups of devices");
    ASSERT_EQ(groups->model()->rowCount(), 2);
    EXPECT_EQ(cell(groups, 0, 1), "64 on 8 nodes");
    EXPECT_EQ(cell(groups, 1, 3), "1.00 GiB");
    expect_whole_columns(*groups);
    QTreeView* const experts = list_of(panel, "Memory of experts");
    EXPECT_TRUE(experts->isVisible());
    EXPECT_EQ(cell(experts, 0, 3), "7.88 GiB");
    expect_whole_columns(*experts);
    run.groups.experts.rows.clear();
    show_settled(panel, std::make_shared<const RunData>(run));
    EXPECT_FALSE(experts->isVisible());
    show_settled(panel, nullptr);
    EXPECT_EQ(sentence_in(panel), "Nothing is known of groups of devices.");
}

}  // namespace groups_panel_test
}  // namespace pipetwin::gui

// SPDX-License-Identifier: Apache-2.0
#ifndef PIPETWIN_TESTS_GUI_PANELS_H
#define PIPETWIN_TESTS_GUI_PANELS_H

#include <memory>
#include <string>

#include <QApplication>
#include <QHeaderView>
#include <QLabel>
#include <QPushButton>
#include <QScrollBar>
#include <QSignalSpy>
#include <QTest>
#include <QTreeView>
#include <QWidget>
#include <gtest/gtest.h>

#include "gui/base/text_table.h"
#include "gui/view/run/run_data.h"

namespace pipetwin::gui {

// Shows `run` in `panel` and waits, for 20 s at most, until the panel has computed its figures and
// its views lie where they belong.
template <typename Panel>
void show_settled(Panel& panel, const std::shared_ptr<const RunData>& run) {
    QSignalSpy settled(&panel, &Panel::settled);
    panel.show_run(run);
    if (settled.isEmpty()) {
        ASSERT_TRUE(settled.wait(20'000));
    }
    QApplication::processEvents();
}

// The list of `panel` whose accessible name is `name`; null if it has none.
inline QTreeView* list_of(const QWidget& panel, const char* name) {
    for (QTreeView* const view : panel.findChildren<QTreeView*>()) {
        if (view->accessibleName() == QLatin1String(name)) {
            return view;
        }
    }
    return nullptr;
}

// No heading and no text of `view` is cut off, from column `first` on, and none is out of sight.
inline void expect_whole_columns(const QTreeView& view, int first = 0) {
    const QAbstractItemView& items = view;
    EXPECT_EQ(view.horizontalScrollBar()->maximum(), 0) << view.accessibleName().toStdString();
    for (int column = first; column < view.header()->count(); ++column) {
        const int width = view.header()->sectionSize(column);
        EXPECT_GE(width, heading_width(*view.header(), column)) << column;
        EXPECT_GE(width, items.sizeHintForColumn(column)) << column;
    }
}

// Clicks the button of `panel` that says `text`.
inline void press(const QWidget& panel, const char* text) {
    for (QPushButton* const button : panel.findChildren<QPushButton*>()) {
        if (button->text() == QLatin1String(text)) {
            QTest::mouseClick(button, Qt::LeftButton);
            return;
        }
    }
    ADD_FAILURE() << text;
}

// What the first label of `panel` says, with plain spaces.
inline std::string sentence_in(const QWidget& panel) {
    return panel.findChild<QLabel*>()->text().replace(QChar::Nbsp, ' ').toStdString();
}

}  // namespace pipetwin::gui

#endif  // PIPETWIN_TESTS_GUI_PANELS_H

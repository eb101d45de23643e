// SPDX-License-Identifier: Apache-2.0
#include "gui/base/finder.h"

#include <algorithm>

#include <QHBoxLayout>
#include <QKeyEvent>
#include <QLabel>
#include <QLineEdit>
#include <QListWidget>
#include <QPainter>
#include <QStyledItemDelegate>
#include <QVBoxLayout>

#include "core/base/as_index.h"
#include "gui/base/plain_text.h"

namespace pipetwin::gui {

namespace {

constexpr int finder_width = 520;
constexpr int most_shown = 14;
constexpr int top = 60;
constexpr int gap = 8;
constexpr int detail_role = Qt::UserRole + 1;

/// The text at the left, the detail at the right.
class EntryPainter : public QStyledItemDelegate {
  public:
    using QStyledItemDelegate::QStyledItemDelegate;

    void paint(QPainter* painter,
               const QStyleOptionViewItem& option,
               const QModelIndex& index) const override {
        QStyledItemDelegate::paint(painter, option, index);
        const bool chosen = option.state.testFlag(QStyle::State_Selected);
        painter->setPen(
            option.palette.color(chosen ? QPalette::HighlightedText : QPalette::PlaceholderText));
        painter->drawText(option.rect.adjusted(0, 0, -gap, 0),
                          Qt::AlignRight | Qt::AlignVCenter,
                          index.data(detail_role).toString());
    }
};

}  // namespace

bool fits(const QString& text, const QString& typed) {
    qsizetype at = 0;
    for (const QChar letter : typed) {
        if (letter.isSpace()) {
            continue;
        }
        at = text.indexOf(letter, at, Qt::CaseInsensitive);
        if (at < 0) {
            return false;
        }
        ++at;
    }
    return true;
}

Finder::Finder(QWidget* parent)
    : QFrame(parent), line_(new QLineEdit(this)), list_(new QListWidget(this)) {
    setFrameShape(QFrame::StyledPanel);
    setAutoFillBackground(true);
    setObjectName(QStringLiteral("Finder"));
    setAccessibleName(tr("Finder"));
    line_->setAccessibleName(tr("What to find"));
    line_->setClearButtonEnabled(true);
    list_->setAccessibleName(tr("What was found"));
    list_->setFocusPolicy(Qt::NoFocus);
    list_->setFrameShape(QFrame::NoFrame);
    list_->setItemDelegate(new EntryPainter(list_));
    auto* const column = new QVBoxLayout(this);
    column->setContentsMargins(8, 8, 8, 8);
    column->addWidget(line_);
    column->addWidget(list_);
    line_->installEventFilter(this);
    connect(line_, &QLineEdit::textChanged, this, &Finder::fill);
    connect(list_, &QListWidget::itemClicked, this, &Finder::take);
    hide();
}

void Finder::ask(const QString& question, std::vector<Entry> entries) {
    entries_ = std::move(entries);
    line_->setPlaceholderText(question);
    line_->clear();
    fill();
    const int width = std::min(finder_width, parentWidget()->width() - 40);
    const int rows = std::min(most_shown, static_cast<int>(entries_.size()));
    const int row_height = fontMetrics().height() + 6;
    const int height = std::min(parentWidget()->height() - top - 20,
                                line_->sizeHint().height() + 32 + std::max(1, rows) * row_height);
    setGeometry((parentWidget()->width() - width) / 2, top, width, height);
    raise();
    show();
    if (!line_->hasFocus()) {
        asked_from_ = window()->focusWidget();
    }
    line_->setFocus();
}

/// Gives the keyboard focus back to the widget that had it before.
void Finder::leave() {
    hide();
    if (asked_from_ != nullptr) {
        asked_from_->setFocus();
    }
}

int Finder::count() const {
    return list_->count();
}

/// Lists the entries that fit: first those that hold the text as it was typed, then those that only
/// hold its letters.
void Finder::fill() {
    list_->clear();
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        if (fits(entries_[i].text, line_->text())) {
            found.push_back(i);
        }
    }
    std::ranges::stable_partition(found, [this](std::size_t i) {
        return entries_[i].text.contains(line_->text().trimmed(), Qt::CaseInsensitive);
    });
    for (const std::size_t i : found) {
        const Entry& entry = entries_[i];
        auto* const item = new QListWidgetItem(entry.text, list_);
        item->setData(Qt::UserRole, static_cast<int>(i));
        item->setData(detail_role, entry.detail);
        item->setData(Qt::AccessibleTextRole, QString(entry.text + ' ' + entry.detail).trimmed());
    }
    list_->setCurrentRow(0);
}

void Finder::take() {
    const QListWidgetItem* const item = list_->currentItem();
    leave();
    if (item != nullptr) {
        // A copy: what is taken may ask again.
        const auto act = entries_[as_index(item->data(Qt::UserRole).toInt())].take;
        act();
    }
}

bool Finder::eventFilter(QObject* watched, QEvent* event) {
    if (event->type() == QEvent::FocusOut) {
        hide();
    }
    if (event->type() != QEvent::KeyPress) {
        return QFrame::eventFilter(watched, event);
    }
    const int key = static_cast<QKeyEvent*>(event)->key();
    const auto walk = [&](int by) {
        list_->setCurrentRow(std::clamp(list_->currentRow() + by, 0, std::max(0, count() - 1)));
        return true;
    };
    switch (key) {
        case Qt::Key_Escape:
            leave();
            return true;
        case Qt::Key_Return:
        case Qt::Key_Enter:
            take();
            return true;
        case Qt::Key_Down:
            return walk(+1);
        case Qt::Key_Up:
            return walk(-1);
        case Qt::Key_PageDown:
            return walk(+most_shown);
        case Qt::Key_PageUp:
            return walk(-most_shown);
        default:
            return QFrame::eventFilter(watched, event);
    }
}

SearchLine::SearchLine(QWidget* parent)
    : QFrame(parent), line_(new QLineEdit(this)), count_(plain_label(this)) {
    setObjectName(QStringLiteral("SearchLine"));
    setAutoFillBackground(true);
    setFrameShape(QFrame::StyledPanel);
    line_->setAccessibleName(tr("Search for actions"));
    line_->setPlaceholderText(tr("1B2, B, rank 0, stage 3, mb 5 ..."));
    line_->setClearButtonEnabled(true);
    count_->setMinimumWidth(fontMetrics().horizontalAdvance(QStringLiteral("00000 of 00000")));
    auto* const row = new QHBoxLayout(this);
    row->setContentsMargins(8, 4, 8, 4);
    row->addStretch(1);
    row->addWidget(line_);
    row->addWidget(count_);
    line_->setMinimumWidth(fontMetrics().horizontalAdvance(line_->placeholderText()) + 60);
    line_->installEventFilter(this);
    connect(line_, &QLineEdit::textChanged, this, &SearchLine::typed);
    hide();
}

void SearchLine::ask() {
    show();
    line_->selectAll();
    line_->setFocus();
}

void SearchLine::leave() {
    hide();
    emit left();
}

void SearchLine::show_count(const QString& text) {
    count_->setText(text);
    line_->setAccessibleDescription(text);
}

QString SearchLine::text() const {
    return line_->text();
}

bool SearchLine::eventFilter(QObject* watched, QEvent* event) {
    if (event->type() != QEvent::KeyPress) {
        return QFrame::eventFilter(watched, event);
    }
    const auto* const pressed = static_cast<QKeyEvent*>(event);
    switch (pressed->key()) {
        case Qt::Key_Escape:
            leave();
            return true;
        case Qt::Key_Return:
        case Qt::Key_Enter:
            emit next_wanted(pressed->modifiers().testFlag(Qt::ShiftModifier) ? -1 : +1);
            return true;
        default:
            return QFrame::eventFilter(watched, event);
    }
}

}  // namespace pipetwin::gui

// SPDX-License-Identifier: Apache-2.0
#include "gui/panels/details_panel.h"

#include <QGridLayout>
#include <QLabel>
#include <QScrollBar>
#include <QVBoxLayout>

#include "gui/base/plain_text.h"
#include "gui/view/analysis/glossary.h"

namespace pipetwin::gui {

namespace {

constexpr int details_margin = 14;
constexpr int column_gap = 12;
constexpr int line_gap = 4;

QLabel* selectable_label(QWidget* parent) {
    QLabel* const label = plain_label(parent);
    label->setTextInteractionFlags(Qt::TextSelectableByMouse);
    return label;
}

QLabel* faint_label(QWidget* parent) {
    QLabel* const label = selectable_label(parent);
    label->setForegroundRole(QPalette::PlaceholderText);
    label->setWordWrap(true);
    return label;
}

/// The longest name of a line.
int name_width(const QFont& font) {
    return QFontMetrics(font).horizontalAdvance(QStringLiteral("communication wait"));
}

/// The longest word of a name.
int word_width(const QFont& font) {
    return QFontMetrics(font).horizontalAdvance(QStringLiteral("communication"));
}

/// The longest text of a column of numbers; the last column holds errors and differences.
int number_width(const QFont& font, int column) {
    return QFontMetrics(font).horizontalAdvance(column < 3 ? QStringLiteral("888.88 ms")
                                                           : QStringLiteral("+8.88 points"));
}

}  // namespace

DetailTable::DetailTable(const QString& heading, QWidget* parent)
    : QWidget(parent),
      heading_(selectable_label(this)),
      subtitle_(faint_label(this)),
      grid_(new QGridLayout) {
    QFont bold = font();
    bold.setBold(true);
    heading_->setFont(bold);
    set_heading(heading, {});
    grid_->setContentsMargins(0, 0, 0, 0);
    grid_->setHorizontalSpacing(column_gap);
    grid_->setVerticalSpacing(line_gap);
    grid_->setColumnMinimumWidth(0, word_width(font()));
    for (int column = 1; column <= 3; ++column) {
        grid_->setColumnMinimumWidth(column, number_width(font(), column));
    }
    grid_->setColumnStretch(0, 1);
    auto* const column = new QVBoxLayout(this);
    column->setContentsMargins(0, 0, 0, details_margin);
    column->setSpacing(line_gap);
    column->addWidget(heading_);
    column->addWidget(subtitle_);
    column->addLayout(grid_);
    hide();
}

void DetailTable::set_heading(const QString& heading, const QString& subtitle) {
    heading_->setText(heading);
    subtitle_->setText(subtitle);
    subtitle_->setVisible(!subtitle.isEmpty());
    setAccessibleName(heading);
    setAccessibleDescription(subtitle);
}

void DetailTable::set_lines(const RunData& run,
                            const std::vector<DetailLine>& lines,
                            const char* last) {
    while (const QLayoutItem* const item = grid_->takeAt(0)) {
        delete item->widget();
        delete item;
    }
    setVisible(!lines.empty());
    if (lines.empty()) {
        return;
    }
    const std::string both = run.predicted && run.measured ? last : "";
    add_row(0, {"", side_name(run, Side::Predicted), side_name(run, Side::Measured), both}, true);
    int row = 1;
    for (const DetailLine& line : lines) {
        add_row(row++, {line.name, line.predicted, line.measured, line.error}, false);
    }
}

void DetailTable::add_row(int row, const std::array<std::string, 4>& texts, bool is_header) {
    for (std::size_t column = 0; column < texts.size(); ++column) {
        QLabel* const label = selectable_label(this);
        label->setText(QString::fromStdString(texts[column]));
        label->setWordWrap(column == 0);
        if (const std::string_view meaning = meaning_of(texts[column]); column == 0) {
            const QString text =
                QString::fromUtf8(meaning.data(), static_cast<qsizetype>(meaning.size()));
            set_tip(*label, text);
            label->setAccessibleDescription(text);
        }
        label->setForegroundRole(is_header ? QPalette::PlaceholderText : QPalette::WindowText);
        if (column == 0) {
            grid_->addWidget(label, row, 0);
        } else {
            grid_->addWidget(label, row, static_cast<int>(column), Qt::AlignRight | Qt::AlignTop);
        }
    }
}

DetailsPanel::DetailsPanel(QWidget* parent)
    : QScrollArea(parent),
      step_(new DetailTable(tr("Step"))),
      ops_(new DetailTable(tr("By action"))),
      breakdown_(new DetailTable(tr("Breakdown of the step"))),
      whole_(new DetailTable(tr("All steps"))),
      selection_(new DetailTable(tr("Action"))),
      note_(faint_label(nullptr)) {
    setAccessibleName(tr("Details"));
    setFrameShape(QFrame::NoFrame);
    setWidgetResizable(true);

    auto* const content = new QWidget(this);
    auto* const column = new QVBoxLayout(content);
    column->setContentsMargins(details_margin, details_margin, details_margin, details_margin);
    column->setSpacing(0);
    column->addWidget(selection_);  // what was just clicked on is seen without scrolling
    note_->setContentsMargins(0, 0, 0, details_margin);
    column->addWidget(note_);
    for (DetailTable* const table : {step_, ops_, breakdown_, whole_}) {
        column->addWidget(table);
    }
    column->addStretch(1);
    setWidget(content);
}

/// Width with a column of names as wide as `name`.
int DetailsPanel::width_with(int name) const {
    int width = name + 2 * details_margin + verticalScrollBar()->sizeHint().width();
    for (int column = 1; column <= 3; ++column) {
        width += column_gap + number_width(font(), column);
    }
    return width;
}

QSize DetailsPanel::sizeHint() const {
    return {width_with(name_width(font())), QScrollArea::sizeHint().height()};
}

QSize DetailsPanel::minimumSizeHint() const {
    return {width_with(word_width(font())), QScrollArea::minimumSizeHint().height()};
}

void DetailsPanel::show_run(const RunData& run) {
    const int steps = run.measured ? run.measured->steps : 1;
    const QString means =
        tr("means over the ranks, which add up to the step; overhead includes dispatch");
    breakdown_->set_heading(
        tr("Breakdown of the step"),
        steps > 1
            ? tr("step %1, nearest the median; %2").arg(run.step_number(run.main_step())).arg(means)
            : means);
    breakdown_->set_lines(run, breakdown_lines(run), "difference");
    ops_->set_heading(tr("By action"), QString::fromStdString(op_heading(run)));
    const bool all = !run.measured || run.measured->left_out() == 0;
    const QString nothing = QString::fromStdString(says_nothing(run));
    whole_->set_heading(all ? tr("All steps") : tr("Quiet steps"),
                        tr("medians of %1").arg(QString::fromStdString(steps_words(run))) +
                            (nothing.isEmpty() ? QString() : tr(". ") + nothing));
    whole_->set_lines(run, run_lines(run));
    show_step(run, run.main_step());
    show_selection(run, std::nullopt);
    verticalScrollBar()->setValue(0);
}

void DetailsPanel::show_step(const RunData& run, int step) {
    const bool several = run.measured && run.measured->steps > 1;
    const bool main = several && step == run.main_step();
    step_->set_heading(several ? tr("Step %1").arg(run.step_number(step)) : tr("Step"),
                       main ? tr("nearest the median") : QString());
    step_->set_lines(run, step_lines(run, step));
    ops_->set_lines(run, op_lines(run, step));
}

void DetailsPanel::show_selection(const RunData& run, const std::optional<SpanRef>& selection) {
    const ActionDetails details = selection ? details_of(run, *selection) : ActionDetails{};
    selection_->set_heading(tr("Action %1").arg(QString::fromStdString(details.title)),
                            QString::fromStdString(details.subtitle));
    selection_->set_lines(run, details.lines);
    const bool invite = !selection && !run.empty();
    note_->setText(invite ? tr("Select an action to see its times.")
                          : QString::fromStdString(details.note));
    note_->setVisible(!note_->text().isEmpty());
    if (selection) {
        verticalScrollBar()->setValue(0);
    }
}

}  // namespace pipetwin::gui

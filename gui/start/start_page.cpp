// SPDX-License-Identifier: Apache-2.0
#include "gui/start/start_page.h"

#include <algorithm>
#include <memory>

#include <QCheckBox>
#include <QFile>
#include <QFileInfo>
#include <QGridLayout>
#include <QHBoxLayout>
#include <QLabel>
#include <QPushButton>
#include <QScrollArea>
#include <QStyleOptionButton>
#include <QStylePainter>
#include <QToolButton>
#include <QVBoxLayout>

#include "gui/base/plain_text.h"
#include "gui/start/examples.h"
#include "gui/start/task_button.h"

namespace pipetwin::gui {

namespace {

constexpr int page_margin = 28;
constexpr int page_spacing = 12;
constexpr int widest_column = 620;
constexpr int line_padding = 6;  ///< of a line's button, as its style says
constexpr double title_scale = 1.6;
constexpr double heading_scale = 1.1;

std::filesystem::path path_of(const QString& text) {
    return {QFile::encodeName(text).toStdString()};
}

/// Text of a button as it is: a single '&' would underline the letter behind it.
QString as_it_is(QString text) {
    return text.replace('&', QLatin1String("&&"));
}

QFont scaled_font(const QWidget& of, double scale) {
    QFont font = of.font();
    font.setPointSizeF(font.pointSizeF() * scale);
    font.setBold(true);
    return font;
}

/// A flat button whose text begins at its left edge, like a line of a list.
QPushButton* line_button(const QString& text, QWidget* parent) {
    auto* const button = new QPushButton(as_it_is(text), parent);
    button->setFlat(true);
    button->setCursor(Qt::PointingHandCursor);
    button->setStyleSheet(
        QStringLiteral("QPushButton { text-align: left; padding: 3px 6px; color: palette(link); }"
                       "QPushButton:disabled { color: palette(placeholder-text); }"
                       "QPushButton:focus, QPushButton:hover { text-decoration: underline; }"));
    button->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Fixed);
    return button;
}

/// A button with a second line that says what it does. QCommandLinkButton has such lines too, but
/// always at 9 points.
class BeginButton : public QPushButton {
  public:
    BeginButton(const QString& text, const QString& about, QWidget* parent)
        : QPushButton(text, parent), about_(about) {
        setObjectName(QStringLiteral("Begin"));
        setAccessibleName(text);
        setAccessibleDescription(about);
        setSizePolicy(QSizePolicy::Preferred, QSizePolicy::Fixed);
    }

    QSize sizeHint() const override {
        return {fontMetrics().horizontalAdvance(about_) + 2 * padding,
                2 * fontMetrics().lineSpacing() + 2 * padding};
    }

    QSize minimumSizeHint() const override {
        return {QFontMetrics(title_font()).horizontalAdvance(text()) + 2 * padding,
                sizeHint().height()};
    }

  protected:
    void paintEvent(QPaintEvent* /*event*/) override {
        QStylePainter painter(this);
        QStyleOptionButton option;
        initStyleOption(&option);
        option.text.clear();
        painter.drawControl(QStyle::CE_PushButton, option);
        const QRect lines = rect().adjusted(padding, padding, -padding, -padding);
        painter.setPen(palette().color(QPalette::ButtonText));
        painter.drawText(lines,
                         Qt::AlignLeft | Qt::AlignBottom,
                         fontMetrics().elidedText(about_, Qt::ElideRight, lines.width()));
        painter.setFont(title_font());
        painter.drawText(lines, Qt::AlignLeft | Qt::AlignTop, text());
    }

  private:
    static constexpr int padding = 10;

    QFont title_font() const {
        QFont bold = font();
        bold.setBold(true);
        return bold;
    }

    QString about_;
};

}  // namespace

StartPage::StartPage(RecentFiles recent, QWidget* parent)
    : QWidget(parent), recent_(recent), area_(new QScrollArea(this)) {
    setAccessibleName(tr("Start"));
    auto* const page = new QWidget(this);
    auto* const title = plain_label(page, tr("pipetwin"));
    title->setFont(scaled_font(*title, title_scale));
    auto* const about = plain_label(page,
                                    tr("Predicts, runs and explains pipeline-parallel training: "
                                       "what each rank does, when, and why it waits."));
    about->setWordWrap(true);
    auto* const columns = new QGridLayout;  // so that the headings have one line
    columns->setHorizontalSpacing(2 * page_margin);
    columns->setVerticalSpacing(0);
    columns->addWidget(heading(tr("Begin"), page), 0, 0);
    columns->addLayout(build_head_of_examples(page), 0, 1);
    columns->addWidget(build_buttons(), 1, 0, Qt::AlignTop);
    columns->addWidget(build_examples(), 1, 1, Qt::AlignTop);
    columns->setColumnStretch(0, 1);
    columns->setColumnStretch(1, 1);
    auto* const column = new QVBoxLayout(page);
    column->setContentsMargins(page_margin, page_margin / 2, page_margin, page_margin / 2);
    column->setSpacing(page_spacing);
    column->addWidget(title);
    column->addWidget(about);
    column->addLayout(build_tasks(page));
    column->addSpacing(page_spacing);
    column->addLayout(columns);
    column->addStretch(1);
    page->setMaximumWidth(2 * widest_column + 4 * page_margin);
    area_->setWidget(page);
    area_->setWidgetResizable(true);
    area_->setFrameShape(QFrame::NoFrame);
    area_->setAlignment(Qt::AlignHCenter | Qt::AlignTop);
    auto* const whole = new QVBoxLayout(this);
    whole->setContentsMargins(0, 0, 0, 0);
    whole->addWidget(area_);
    show_recent();
}

QLabel* StartPage::heading(const QString& text, QWidget* parent) {
    QLabel* const label = plain_label(parent, text);
    label->setFont(scaled_font(*label, heading_scale));
    return label;
}

/// What the program is for, in three pictures.
QLayout* StartPage::build_tasks(QWidget* parent) {
    auto* const row = new QHBoxLayout;
    row->setSpacing(page_margin);
    const auto add = [&](const QString& name, const QString& about, auto picture, auto act) {
        auto* const task = new TaskButton(name, about, picture, parent);
        connect(task, &QPushButton::clicked, this, act);
        row->addWidget(task, 1);
        tasks_.push_back(task);
    };
    add(tr("Plan a cluster"),
        tr("Which plan trains a model fastest on your nodes, with its memory and its evidence"),
        &paint_plans,
        [this] { emit plan_wanted(); });
    add(tr("Compare schedules"),
        tr("Two schedules on one time axis, and what makes one of them faster"),
        &paint_schedules,
        [this] { emit comparison_wanted(); });
    add(tr("Look at a run"),
        tr("What each rank of an example does, when, and why it waits; Open... shows yours"),
        &paint_run,
        [this] {
            const std::vector<Example> all = examples();
            const auto usual = std::ranges::find(all, QStringLiteral("gpt-text"), &Example::name);
            if (all.empty()) {
                emit open_wanted();
            } else {
                emit file_wanted((usual == all.end() ? all.front() : *usual).file);
            }
        });
    return row;
}

/// The ways to begin, and below them the recent files.
QWidget* StartPage::build_buttons() {
    auto* const left = new QWidget(this);
    auto* const column = new QVBoxLayout(left);
    column->setContentsMargins(0, column->spacing(), 0, 0);
    const auto add = [&](const QString& text, const QString& about, auto signal) {
        auto* const button = new BeginButton(text, about, left);
        connect(button, &QPushButton::clicked, this, signal);
        column->addWidget(button);
    };
    add(tr("Open..."),
        tr("A scenario, a schedule, a trace, a profile or a run folder"),
        &StartPage::open_wanted);
    add(tr("Playground"),
        tr("Try schedules and costs without a file"),
        &StartPage::playground_wanted);
    add(tr("Side by side..."),
        tr("Open several runs or scenarios in one picture"),
        &StartPage::compare_wanted);
    column->addSpacing(page_spacing);
    column->addWidget(build_recent());
    return left;
}

/// The heading of the examples, and beside it the button that opens several of them.
QLayout* StartPage::build_head_of_examples(QWidget* parent) {
    together_ = new QPushButton(parent);
    connect(together_, &QPushButton::clicked, this, [this] { emit several_wanted(ticked()); });
    auto* const head = new QHBoxLayout;
    head->addWidget(heading(tr("Examples"), parent), 1);
    head->addWidget(together_);
    return head;
}

QWidget* StartPage::build_examples() {
    auto* const right = new QWidget(this);
    auto* const column = new QVBoxLayout(right);
    column->setContentsMargins(0, 0, 0, 0);
    column->setSpacing(0);
    const std::vector<Example> all = examples();
    if (all.empty()) {
        column->addWidget(plain_label(right, tr("The scenarios of the program were not found.")));
    }
    for (const Example& example : all) {
        QPushButton* const button = line_button(example.name, right);
        button->setAccessibleDescription(example.about);
        set_tip(*button, tr("Simulate %1").arg(example.name));
        connect(button, &QPushButton::clicked, this, [this, file = example.file] {
            emit file_wanted(file);
        });
        auto* const tick = new QCheckBox(right);
        tick->setAccessibleName(tr("Tick %1").arg(example.name));
        set_tip(*tick, tr("Tick several examples to open them side by side"));
        connect(tick, &QCheckBox::toggled, this, &StartPage::count_ticked);
        ticks_.emplace_back(tick, example.file);
        auto* const line = new QHBoxLayout;
        line->setSpacing(0);
        line->addWidget(tick);
        line->addWidget(button, 1);
        auto* const about = plain_label(right, example.about);
        about->setForegroundRole(QPalette::PlaceholderText);
        about->setWordWrap(true);
        about->setContentsMargins(tick->sizeHint().width() + line_padding + 1, 0, 0, 0);
        column->addLayout(line);
        column->addWidget(about);
    }
    together_->setVisible(!all.empty());
    count_ticked();
    return right;
}

std::vector<std::filesystem::path> StartPage::ticked() const {
    std::vector<std::filesystem::path> files;
    for (const auto& [tick, file] : ticks_) {
        if (tick->isChecked()) {
            files.push_back(file);
        }
    }
    return files;
}

void StartPage::count_ticked() {
    const std::size_t count = ticked().size();
    together_->setEnabled(count > 0);
    together_->setText(count == 0 ? tr("Open ticked side by side")
                                  : tr("Open %1 side by side").arg(count));
}

QWidget* StartPage::build_recent() {
    auto* const box = new QWidget(this);
    recent_lines_ = new QVBoxLayout(box);
    recent_lines_->setContentsMargins(0, 0, 0, 0);
    recent_lines_->setSpacing(2);
    return box;
}

/// A recent file: a button to open it, or its name and "missing" where it is gone, and a button
/// that removes it from the list.
QWidget* StartPage::file_line(const QString& path) {
    auto* const line = new QWidget(this);
    auto* const row = new QHBoxLayout(line);
    row->setContentsMargins(0, 0, 0, 0);
    const QFileInfo info(path);
    const bool there = RecentFiles::is_there(path);
    QPushButton* const open = line_button(
        there ? tr("%1    %2").arg(info.fileName(), info.path()) : tr("%1    missing").arg(path),
        line);
    open->setEnabled(there);
    set_tip(*open, path);
    connect(open, &QPushButton::clicked, this, [this, path] { emit file_wanted(path_of(path)); });
    auto* const remove = new QToolButton(line);
    remove->setText(QStringLiteral("\u00d7"));
    remove->setAutoRaise(true);
    remove->setAccessibleName(tr("Remove %1 from the list").arg(info.fileName()));
    set_tip(*remove, tr("Remove from the list"));
    connect(remove, &QToolButton::clicked, this, [this, path] {
        recent_.remove(path);
        show_recent();
    });
    constexpr int picture_width = 64;
    QLabel* const picture = plain_label(line);
    picture->setFixedWidth(picture_width);
    if (const QImage image = recent_.picture(path); !image.isNull()) {
        picture->setPixmap(QPixmap::fromImage(image));
    }
    row->addWidget(picture);
    row->addWidget(open, 1);
    row->addWidget(remove);
    return line;
}

void StartPage::show_recent() {
    while (const std::unique_ptr<QLayoutItem> item{recent_lines_->takeAt(0)}) {
        if (item->widget() != nullptr) {
            item->widget()->hide();
            item->widget()->deleteLater();
        }
    }
    QWidget* const box = recent_lines_->parentWidget();
    recent_lines_->addWidget(heading(tr("Recent"), box));
    const QStringList paths = recent_.paths();
    if (paths.isEmpty()) {
        QLabel* const none = plain_label(box, tr("No file has been opened yet."));
        none->setForegroundRole(QPalette::PlaceholderText);
        recent_lines_->addWidget(none);
    }
    for (const QString& path : paths) {
        recent_lines_->addWidget(file_line(path));
    }
}

void StartPage::set_colors(const Palette& palette) {
    const QPalette colors = widget_palette(palette);
    for (TaskButton* const task : tasks_) {
        task->set_colors(palette);
    }
    setStyleSheet(QStringLiteral("QPushButton#Begin { border: 1px solid %1; border-radius: 5px;"
                                 "background: %2; color: %3; }"
                                 "QPushButton#Begin:focus, QPushButton#Begin:hover {"
                                 "border: 2px solid %4; }")
                      .arg(edge_color(colors).name(),
                           palette.background.name(),
                           palette.text.name(),
                           colors.color(QPalette::Link).name()));
}

}  // namespace pipetwin::gui

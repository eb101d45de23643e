// SPDX-License-Identifier: Apache-2.0
#include "gui/run/run_panel.h"

#include <algorithm>
#include <system_error>

#include <QCoreApplication>
#include <QDir>
#include <QFile>
#include <QFileDialog>
#include <QFileInfo>
#include <QFontDatabase>
#include <QGridLayout>
#include <QHBoxLayout>
#include <QLabel>
#include <QLineEdit>
#include <QPlainTextEdit>
#include <QPushButton>
#include <QRegularExpression>
#include <QStandardPaths>

#include "core/base/short_number.h"
#include "gui/base/plain_text.h"
#include "gui/run/loss_plot.h"

namespace pipetwin::gui {

namespace {

constexpr int most_log_lines = 5'000;
constexpr int milliseconds_to_end = 3'000;

QString command_line() {
    const QString beside = QCoreApplication::applicationDirPath() + QStringLiteral("/pipetwin");
    return QFileInfo(beside).isExecutable()
               ? beside
               : QStandardPaths::findExecutable(QStringLiteral("pipetwin"));
}

/// The first of STEM-NUMBER, STEM-(NUMBER + 1), ... that is not there.
QString first_free(const QString& stem, int number) {
    while (QFileInfo::exists(QStringLiteral("%1-%2").arg(stem).arg(number))) {
        ++number;
    }
    return QStringLiteral("%1-%2").arg(stem).arg(number);
}

/// The first of runs/NAME-1, runs/NAME-2, ... that is not there.
QString free_folder(const QString& name) {
    const bool can_write = QFileInfo(QDir::currentPath()).isWritable();
    return first_free(
        (can_write ? QDir::currentPath() : QDir::homePath()) + QStringLiteral("/runs/") + name, 1);
}

/// The next folder that is not there: NAME-3 for NAME-2, NAME-2 for NAME.
QString folder_after(const QString& folder) {
    static const QRegularExpression numbered(QStringLiteral("^(.*)-([0-9]{1,6})/*$"));
    const QRegularExpressionMatch match = numbered.match(folder);
    return match.hasMatch() ? first_free(match.captured(1), match.captured(2).toInt() + 1)
                            : first_free(QDir(folder).path(), 2);
}

bool holds_files(const QString& folder) {
    const QDir dir(folder);
    return dir.exists() && !dir.isEmpty();
}

}  // namespace

RunPanel::RunPanel(QString program, QWidget* parent)
    : QWidget(parent),
      program_(program.isEmpty() ? command_line() : std::move(program)),
      scenario_(new QLineEdit(this)),
      folder_(new QLineEdit(this)),
      start_(new QPushButton(tr("Start"), this)),
      stop_(new QPushButton(tr("Stop"), this)),
      watch_(new QPushButton(tr("Watch"), this)),
      report_(new QPushButton(tr("Open report"), this)),
      state_(plain_label(this)),
      plot_(new LossPlot(this)),
      log_(new QPlainTextEdit(this)) {
    build_form();
    setFocusProxy(scenario_);
    process_.setProcessChannelMode(QProcess::MergedChannels);
    connect(&process_, &QProcess::readyRead, this, &RunPanel::take_output);
    connect(&process_, &QProcess::finished, this, &RunPanel::take_end);
    connect(&process_, &QProcess::errorOccurred, this, [this](QProcess::ProcessError error) {
        if (error == QProcess::FailedToStart) {
            emit failed(tr("Cannot start %1: %2").arg(program_, process_.errorString()));
            feed_.stop();
            show_state();
        }
    });
    connect(&feed_, &LiveFeed::came, this, &RunPanel::take_update);
    connect(&feed_, &LiveFeed::watching_changed, this, [this] {
        show_state();
        emit watching_changed();
    });
    connect(start_, &QPushButton::clicked, this, &RunPanel::start);
    connect(stop_, &QPushButton::clicked, this, &RunPanel::stop_training);
    connect(report_, &QPushButton::clicked, this, [this] { emit report_wanted(report()); });
    connect(watch_, &QPushButton::clicked, this, [this] {
        if (feed_.is_watching() && !is_training()) {
            feed_.stop();
        } else {
            watch();
        }
    });
    show_state();
}

RunPanel::~RunPanel() {
    process_.disconnect(this);
    feed_.disconnect(this);
    if (is_training()) {
        process_.terminate();  // it ends its step and saves
        if (!process_.waitForFinished(milliseconds_to_end)) {
            process_.kill();
            process_.waitForFinished();
        }
    }
}

void RunPanel::build_form() {
    scenario_->setAccessibleName(tr("Scenario"));
    scenario_->setPlaceholderText(tr("a .toml file"));
    folder_->setAccessibleName(tr("Run folder"));
    folder_->setPlaceholderText(tr("a new folder"));
    log_->setAccessibleName(tr("Output of the training run"));
    log_->setReadOnly(true);
    log_->setFont(QFontDatabase::systemFont(QFontDatabase::FixedFont));
    log_->setPlaceholderText(
        tr("'Start' trains the scenario with 'pipetwin run' in a separate process, and shows its "
           "output here. 'Watch' follows a training run that another program writes into the run "
           "folder."));
    log_->setMaximumBlockCount(most_log_lines);
    log_->setTabChangesFocus(true);
    auto* const form = new QGridLayout;
    const auto add_line = [&](int row, const QString& text, QLineEdit* line, auto choose) {
        auto* const label = plain_label(this, text);
        label->setBuddy(line);
        auto* const button = new QPushButton(tr("..."), this);
        button->setAccessibleName(tr("Choose: %1").arg(text));
        button->setMaximumWidth(40);
        form->addWidget(label, row, 0);
        form->addWidget(line, row, 1);
        form->addWidget(button, row, 2);
        connect(button, &QPushButton::clicked, this, choose);
    };
    add_line(0, tr("Scenario"), scenario_, [this] {
        const QString file = QFileDialog::getOpenFileName(
            this, tr("Scenario"), {}, tr("Scenarios (*.toml);;All files (*)"));
        if (!file.isEmpty()) {
            scenario_->setText(file);
        }
    });
    add_line(1, tr("Run folder"), folder_, [this] {
        const QString chosen = QFileDialog::getExistingDirectory(this, tr("Run folder"));
        if (!chosen.isEmpty()) {
            folder_->setText(chosen);
        }
    });
    auto* const buttons = new QHBoxLayout;
    buttons->addWidget(start_);
    buttons->addWidget(stop_);
    buttons->addWidget(watch_);
    buttons->addWidget(report_);
    buttons->addStretch(1);
    state_->setWordWrap(true);
    auto* const left = new QVBoxLayout;
    left->addLayout(form);
    left->addLayout(buttons);
    left->addWidget(state_);
    left->addStretch(1);
    auto* const across = new QHBoxLayout(this);
    across->addLayout(left, 2);
    across->addWidget(plot_, 3);
    across->addWidget(log_, 3);
}

void RunPanel::set_colors(const Palette& palette) {
    plot_->set_colors(palette);
}

void RunPanel::set_scenario(const QString& file) {
    scenario_->setText(file);
}

void RunPanel::set_folder(const QString& folder) {
    folder_->setText(folder);
}

void RunPanel::prepare(const std::filesystem::path& scenario) {
    if (is_training()) {
        return;
    }
    const QString file = QFile::decodeName(QByteArray::fromStdString(scenario.string()));
    if (scenario_->text() != file || QFileInfo::exists(folder_->text())) {
        folder_->setText(free_folder(QFileInfo(file).completeBaseName()));
    }
    if (scenario_->text() != file) {
        log_->clear();  // it may hold the error of another scenario
    }
    scenario_->setText(file);
}

std::filesystem::path RunPanel::folder() const {
    return QFile::encodeName(used_folder_).toStdString();
}

std::filesystem::path RunPanel::report() const {
    return folder() / "report.html";
}

void RunPanel::start() {
    if (is_training()) {
        return;
    }
    if (program_.isEmpty() || scenario_->text().isEmpty() || folder_->text().isEmpty()) {
        emit failed(program_.isEmpty()
                        ? tr("The program 'pipetwin' is neither beside this program nor in PATH. "
                             "Install both together.")
                        : tr("Choose a scenario and a run folder first."));
        return;
    }
    if (holds_files(folder_->text())) {
        const QString taken = folder_->text();
        folder_->setText(folder_after(taken));
        emit failed(tr("The folder %1 is not empty. The run folder is now %2. Click Start again.")
                        .arg(taken, folder_->text()));
        return;
    }
    used_folder_ = folder_->text();
    log_->clear();
    plot_->clear();
    last_step_ = -1;
    told_to_stop_ = false;
    feed_.watch(folder(), true);
    process_.start(program_,
                   {QStringLiteral("run"),
                    scenario_->text(),
                    QStringLiteral("--out"),
                    used_folder_,
                    QStringLiteral("--live")});
    show_state();
}

void RunPanel::stop_training() {
    if (is_training()) {
        told_to_stop_ = true;
        process_.terminate();  // SIGTERM: the step is finished, everything is written
        show_state();
    }
}

void RunPanel::watch() {
    if (folder_->text().isEmpty()) {
        emit failed(tr("Enter the run folder of a training run that was started with --live."));
        return;
    }
    used_folder_ = folder_->text();
    plot_->clear();
    last_step_ = -1;
    feed_.watch(folder());
}

QString RunPanel::log() const {
    return log_->toPlainText();
}

void RunPanel::take_output() {
    QString text = QString::fromLocal8Bit(process_.readAll());
    text.replace('\r', '\n');
    while (text.endsWith('\n')) {
        text.chop(1);
    }
    if (!text.isEmpty()) {
        log_->appendPlainText(text);
    }
}

void RunPanel::take_end(int exit_code, QProcess::ExitStatus status) {
    take_output();
    if (status == QProcess::CrashExit) {
        feed_.stop();
        emit failed(
            tr("The training run was killed or crashed. Its files are in %1.").arg(used_folder_));
    } else if (exit_code != 0 && !told_to_stop_) {
        feed_.stop();
        const QString last = log().section('\n', -3);
        emit failed(tr("The training run ended with exit code %1: %2").arg(exit_code).arg(last));
    }
    if (folder_->text() == used_folder_ && holds_files(used_folder_)) {
        folder_->setText(folder_after(used_folder_));  // for the next run
    }
    show_state();
}

void RunPanel::take_update(const LiveUpdate& update) {
    if (update.restarted) {
        plot_->clear();
    }
    plot_->add(update.metrics);
    if (!update.metrics.empty()) {
        last_step_ = update.metrics.back().step;
        last_step_ms_ = update.metrics.back().step_ms;
    }
    if (!update.problem.empty()) {
        emit failed(QString::fromStdString(update.problem));
    }
    show_state();
    if (update.ended) {
        emit finished(folder());
    } else if (update.run != nullptr) {
        emit run_grew(update.run);
    }
}

void RunPanel::show_state() {
    const bool training = is_training();
    start_->setEnabled(!training);
    std::error_code failed;
    report_->setEnabled(!training && !used_folder_.isEmpty() &&
                        std::filesystem::exists(report(), failed));
    set_tip(*report_,
            report_->isEnabled() ? QString() : tr("A training run writes its report at its end"));
    stop_->setEnabled(training && !told_to_stop_);
    watch_->setEnabled(!training);
    watch_->setText(feed_.is_watching() && !training ? tr("Stop watching") : tr("Watch"));
    QString text = training && told_to_stop_ ? tr("Finishing the step and saving ...")
                   : training                ? tr("Training")
                   : feed_.is_watching()     ? tr("Watching")
                   : last_step_ >= 0         ? tr("Ended")
                                             : tr("No training run");
    if (last_step_ >= 0) {
        text += tr(", step %1, %2 ms")
                    .arg(last_step_)
                    .arg(QString::fromStdString(short_number(last_step_ms_)));
    } else if (training) {
        text += tr(": measuring costs");
    }
    if (!training && last_step_ >= 0 && used_folder_ != folder_->text()) {
        text += tr(", files in %1").arg(used_folder_);
    }
    state_->setText(text);
}

}  // namespace pipetwin::gui

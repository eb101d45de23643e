// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <QApplication>
#include <QClipboard>
#include <QFile>
#include <QLabel>

#include "gui/timeline/selection.h"
#include "gui/timeline/timeline_view.h"
#include "gui/view/timeline/place_in_run.h"
#include "gui/window/main_window.h"

/// Links to places of a run: commands that open the window there.
namespace pipetwin::gui {

namespace {

/// A word as a shell reads it back.
QString shell_quoted(const QString& word) {
    const bool is_plain =
        !word.isEmpty() && std::all_of(word.begin(), word.end(), [](QChar letter) {
            return letter.isLetterOrNumber() || QStringLiteral("_-./:=,+@%").contains(letter);
        });
    return is_plain ? word
                    : QLatin1Char('\'') + QString(word).replace('\'', QLatin1String("'\\''")) +
                          QLatin1Char('\'');
}

}  // namespace

/// The place is that of the selected action, else the step in sight.
QString MainWindow::link() const {
    if (run_->path.empty()) {
        return {};
    }
    LinkedPlace place;
    if (selection_->span()) {
        place = place_of(*run_, *selection_->span());
    } else {
        place.step = run_->step_number(timeline_->current_step());
    }
    const std::filesystem::path whole = std::filesystem::absolute(run_->path).lexically_normal();
    const QString file = QFile::decodeName(QByteArray::fromStdString(whole.string()));
    return tr("pipetwin view %1 --at %2")
        .arg(shell_quoted(file), QString::fromStdString(place_text(place)));
}

void MainWindow::copy_link() {
    const QString command = link();
    if (command.isEmpty()) {
        show_banner(tr("No file holds this run: no link leads to it."));
        return;
    }
    QApplication::clipboard()->setText(command);
    show_banner(tr("Copied: %1").arg(command));
}

QString MainWindow::banner_message() const {
    return banner_text_->text();
}

void MainWindow::go_to_when_read(const LinkedPlace& place) {
    wanted_place_ = std::make_unique<LinkedPlace>(place);
}

void MainWindow::go_to(const LinkedPlace& place) {
    const std::optional<int> step = step_of(*run_, place);
    if (!step) {
        show_banner(run_->empty() ? banner_message()
                                  : tr("The run has no step %1: it has %2 to %3.")
                                        .arg(place.step.value_or(0))
                                        .arg(run_->step_number(0))
                                        .arg(run_->step_number(run_->twin.step_count() - 1)));
        return;
    }
    const std::optional<SpanRef> action = action_at(*run_, place);
    if (action) {
        timeline_->show_action(*action);
    } else {
        timeline_->show_step(*step);
        if (place.rank) {
            show_banner(tr("The run has no rank %1: it has 0 to %2.")
                            .arg(*place.rank)
                            .arg(run_->twin.rank_count() - 1));
        }
    }
}

}  // namespace pipetwin::gui

// SPDX-License-Identifier: Apache-2.0
#include <clocale>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include <QApplication>
#include <QBuffer>
#include <QFile>
#include <QLocale>
#include <QScreen>
#include <QSettings>
#include <QStyle>

#include "core/base/printable.h"
#include "core/text/open_file.h"
#include "gui/base/application_icon.h"
#include "gui/base/options.h"
#include "gui/base/widget_style.h"
#include "gui/planning/planning_form.h"
#include "gui/planning/planning_page.h"
#include "gui/timeline/export_view.h"
#include "gui/timeline/timeline_view.h"
#include "gui/window/main_window.h"

namespace {

using namespace pipetwin::gui;

/// Prints lines; names of files in them reach a terminal as text and as nothing else.
void say(std::ostream& stream, std::string_view lines) {
    stream << pipetwin::printable_lines(lines) << std::flush;
}

/// Qt aborts the process when it finds no display; a sentence is kinder.
bool display_is_missing() {
    return qEnvironmentVariableIsEmpty("DISPLAY") &&
           qEnvironmentVariableIsEmpty("WAYLAND_DISPLAY") &&
           qEnvironmentVariableIsEmpty("QT_QPA_PLATFORM");
}

/// The off-screen platform complains of every wish for a window's size that it cannot pass on to a
/// screen.
void leave_out_complaints(QtMsgType /*type*/,
                          const QMessageLogContext& /*where*/,
                          const QString& text) {
    if (!text.contains(QLatin1String("propagateSizeHints"))) {
        say(std::cerr, text.toStdString() + '\n');
    }
}

const char* const side_by_side = "side-by-side";  ///< name of a page
const char* const plan_page = "plan";             ///< another one

/// Whether the run could be read whole; prints what could not.
bool is_complete(const RunData& run) {
    for (const std::string& problem : run.problems) {
        say(std::cerr, "error: " + problem + '\n');
    }
    return run.problems.empty();
}

/// Asks for the plan of the model or scenario of the command line; without one the page waits.
void ask_for_plan(MainWindow& window, const Options& options) {
    PlanningForm& form = window.planning().form();
    if (!options.cluster.empty()) {
        form.set_cluster(QString::fromStdString(options.cluster));
    }
    form.set_nodes(options.nodes);
    if (!options.runs.empty()) {
        form.set_model(QFile::decodeName(options.runs.front().c_str()));
        window.planning().ask();
    }
}

/// Reads the runs of the command line at once and shows them; false where something is wrong with
/// one.
bool show_runs(MainWindow& window, const Options& options) {
    if (options.view == plan_page) {
        ask_for_plan(window, options);
        return true;
    }
    const bool is_beside = options.view == side_by_side;
    RunData run =
        is_beside || options.runs.empty() ? RunData{} : load_runs(options.runs, options.replica);
    if (is_beside || run.hide_each_other) {
        bool complete = true;
        for (const std::filesystem::path& path : options.runs) {
            auto one = std::make_shared<const RunData>(load_run(path, options.replica));
            complete = is_complete(*one) && complete;
            window.compare(std::move(one));
        }
        return complete;
    }
    const bool complete = is_complete(run);
    window.show_run(std::move(run));
    if (options.has_place) {
        window.go_to(options.at);
    }
    return complete;
}

/// Reads and draws everything at once and on this thread: no user waits at the window.
int write_screenshot(MainWindow& window, const Options& options) {
    const bool complete = show_runs(window, options);
    window.show();
    QApplication::processEvents();
    window.show_view(QString::fromStdString(options.view));
    window.wait_for_workers();
    const std::string failed = write_drawing(
        *options.screenshot, [&](QBuffer& drawing) { window.grab().save(&drawing, "PNG"); });
    if (!failed.empty()) {
        say(std::cerr, "error: " + failed + '\n');
        return EXIT_FAILURE;
    }
    return complete ? EXIT_SUCCESS : EXIT_FAILURE;
}

/// Numbers read and look the same under every locale. Qt takes over the locale of the environment
/// for the C library, too, which then reads and writes decimal commas in many countries.
void use_plain_numbers() {
    std::setlocale(LC_NUMERIC, "C");  // NOLINT(concurrency-mt-unsafe): before any other thread
    QLocale::setDefault(QLocale::c());
}

/// The screen without what the desktop keeps for itself, and without the title of a window.
QSize room_for_a_window() {
    const int title = QApplication::style()->pixelMetric(QStyle::PM_TitleBarHeight);
    return QGuiApplication::primaryScreen()->availableSize() - QSize(0, title);
}

int run_program(int argc, char** argv, const Options& options) {
    QApplication::setApplicationName(QStringLiteral("pipetwin-gui"));
    QApplication::setOrganizationName(QStringLiteral("pipetwin"));
    QApplication::setStyle(make_widget_style());
    QApplication const application(argc, argv);
    QGuiApplication::setDesktopFileName(QStringLiteral("pipetwin-gui"));  // the application's id
    QApplication::setWindowIcon(application_icon());
    use_plain_numbers();
    QSettings settings;
    MainWindow window(options.screenshot ? nullptr : &settings);
    if (options.theme) {
        window.set_theme(*options.theme);
    }
    window.resize(first_size(options, room_for_a_window()));
    if (options.screenshot) {
        return write_screenshot(window, options);
    }
    window.timeline().set_animated(true);
    window.show_view(QString::fromStdString(options.view));
    if (options.view == plan_page) {
        ask_for_plan(window, options);
    } else if (options.view == side_by_side) {
        window.compare(options.runs, options.replica);
    } else if (!options.runs.empty()) {
        if (options.has_place) {
            window.go_to_when_read(options.at);
        }
        window.open_all(options.runs, options.replica);
    }
    window.show();
    return QApplication::exec();
}

}  // namespace

int main(int argc, char** argv) {
    pipetwin::take_size_limits_as_errors();
    const ParsedOptions parsed = parse_options({argv + 1, argv + argc});
    if (parsed.end) {
        say(parsed.end->exit_code == 0 ? std::cout : std::cerr, parsed.end->text);
        return parsed.end->exit_code;
    }
    if (parsed.options.screenshot) {
        qputenv("QT_QPA_PLATFORM", "offscreen");
        qInstallMessageHandler(leave_out_complaints);
    } else if (display_is_missing()) {
        say(std::cerr,
            "error: no display: neither DISPLAY nor WAYLAND_DISPLAY is set\n"
            "hint: pipetwin-gui --screenshot PICTURE.png FILE writes a picture without a "
            "display\n");
        return EXIT_FAILURE;
    }
    return run_program(argc, argv, parsed.options);
}

// SPDX-License-Identifier: Apache-2.0
#include "gui/start/open_dialog.h"

#include <algorithm>

#include <QDir>
#include <QFile>
#include <QFileInfo>
#include <QUrl>

#include "core/artifacts/file_kinds.h"
#include "gui/start/examples.h"

namespace pipetwin::gui {

namespace {

std::filesystem::path chosen_path(const QString& text) {
    return {QFile::encodeName(text).toStdString()};
}

}  // namespace

OpenDialog::OpenDialog(const QString& title, const QString& folder, QWidget* parent)
    : QFileDialog(parent, title, folder) {
    setFileMode(QFileDialog::ExistingFiles);
    setOption(QFileDialog::DontUseNativeDialog);  // which would only go into a run folder
    setNameFilters({tr("Scenarios, schedules, traces, profiles (*.toml *.csv *.json *.json.gz)"),
                    tr("All files (*)")});
    setLabelText(QFileDialog::FileName, tr("File or run folder:"));
    QList<QUrl> places{QUrl::fromLocalFile(QDir::homePath()),
                       QUrl::fromLocalFile(QDir::currentPath())};
    if (const QString shipped = QFile::decodeName(examples_folder().c_str()); !shipped.isEmpty()) {
        places << QUrl::fromLocalFile(shipped);
    }
    setSidebarUrls(places);
}

std::vector<std::filesystem::path> OpenDialog::ask() {
    chosen_.clear();
    return exec() == QDialog::Accepted ? chosen_ : std::vector<std::filesystem::path>();
}

void OpenDialog::accept() {
    const QStringList files = selectedFiles();
    const auto can_be_opened = [](const QString& file) {
        return QFileInfo(file).isFile() || kind_of_file(chosen_path(file)) == FileKind::RunFolder;
    };
    if (files.isEmpty() || !std::ranges::all_of(files, can_be_opened)) {
        QFileDialog::accept();  // goes into the folder, or says what is wrong
        return;
    }
    chosen_.clear();
    for (const QString& file : files) {
        chosen_.push_back(chosen_path(file));
    }
    QDialog::accept();
}

}  // namespace pipetwin::gui

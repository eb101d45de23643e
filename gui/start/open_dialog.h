// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <vector>

#include <QFileDialog>

namespace pipetwin::gui {

/// One dialog for everything that can be opened: files of every kind, and run folders, which it
/// takes as if they were files.
class OpenDialog : public QFileDialog {
    Q_OBJECT

  public:
    /// Begins in `folder`; "" is the current folder.
    OpenDialog(const QString& title, const QString& folder, QWidget* parent = nullptr);

    /// Asks; empty where nothing was chosen.
    std::vector<std::filesystem::path> ask();

    void accept() override;

  private:
    std::vector<std::filesystem::path> chosen_;
};

}  // namespace pipetwin::gui

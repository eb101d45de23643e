// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include <QFutureWatcher>
#include <QWidget>

#include "gui/base/palette.h"
#include "gui/side_by_side/run_tile.h"

class QLabel;
class QScrollArea;
class QVBoxLayout;

namespace pipetwin::gui {

class Legend;

/// Several runs below each other on one time axis, each with its name, its step time and its
/// bubble. All axes begin with their step; zooming and moving in one is done in all.
class SideBySidePage : public QWidget {
    Q_OBJECT

  public:
    explicit SideBySidePage(QWidget* parent = nullptr);
    ~SideBySidePage() override;

    void set_colors(const Palette& palette);

    /// Reads runs on a worker, one after the other, and adds each; `replica` as for `load_run`.
    /// `settled` follows.
    void open(std::vector<std::filesystem::path> paths, int replica = 0);
    /// Adds a run, or puts it in the place of the one that was read from the same paths.
    void add(std::shared_ptr<const RunData> run);
    void clear();

    /// The tiles, top to bottom.
    const std::vector<RunTile*>& tiles() const { return tiles_; }

    /// The part of the steps that is seen.
    const TimeRange& part() const { return part_; }
    void show_all_of_it();

  signals:
    /// A run was clicked: it becomes the main one.
    void chosen(std::shared_ptr<const pipetwin::gui::RunData> run);
    /// More runs are to be opened.
    void open_wanted();
    /// An example is to be added.
    void example_wanted(const std::filesystem::path& file);
    /// All runs that were asked for have been read.
    void settled();

  protected:
    bool eventFilter(QObject* watched, QEvent* event) override;

  private:
    using RunPointer = std::shared_ptr<const RunData>;

    QWidget* build_head();
    void read_next();
    void remove(RunTile* tile);
    RunTile* make_tile(RunPointer run);
    void zoom(double factor, double share);
    void pan(double share);
    void show_part();
    int row_height() const;
    void say_how_many();
    Duration longest() const;

    Palette palette_;
    QLabel* how_many_;
    Legend* legend_;
    QScrollArea* area_;
    QVBoxLayout* column_;
    std::vector<RunTile*> tiles_;
    TimeRange part_;
    /// What is still to be read.
    struct Unread {
        std::filesystem::path path;
        int replica = 0;
    };
    std::vector<Unread> unread_;
    QFutureWatcher<RunPointer> reading_;
    bool reads_ = false;  ///< what is being read is still wanted
};

}  // namespace pipetwin::gui

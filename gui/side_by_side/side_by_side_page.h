// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include <QFutureWatcher>
#include <QWidget>

#include "gui/base/palette.h"
#include "gui/side_by_side/run_tile.h"

class QLabel;
class QPushButton;
class QScrollArea;
class QVBoxLayout;

namespace pipetwin::gui {

class CompareRunsPanel;
class Legend;
struct RunHeadline;

/// The comparison: several runs below each other on one time axis, each with its name, its step
/// time, its bubble, and why its step differs from that of the first, and a table of their figures.
/// All axes begin with their step; zooming and moving in one is done in all.
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

    /// Makes a run the one that the others are compared with: it moves to the top.
    void make_first(const RunData& run);

    /// The pictures of all runs, below each other.
    QWidget& pictures();

    /// The table of figures.
    CompareRunsPanel& table() { return *table_; }
    /// Shows the table of figures, or hides it.
    void show_table(bool shown);

    /// The part of the steps that is seen.
    const TimeRange& part() const { return part_; }
    void show_all_of_it();

  signals:
    /// A run was clicked: it becomes the main one.
    void chosen(std::shared_ptr<const pipetwin::gui::RunData> run);
    /// More runs are to be opened.
    void open_wanted();
    /// A schedule of the playground's pipeline is to be added.
    void schedule_wanted(const QString& schedule);
    /// An example is to be added.
    void example_wanted(const std::filesystem::path& file);
    /// All runs that were asked for have been read.
    void settled();
    /// Every run says why its step differs from that of the first.
    void explained();

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
    RunTile* tile_of(const RunData& run) const;
    RunTile* tile_of(const RunHeadline& run) const;
    void explain();
    void finish_explaining();
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
    using Sentences = std::vector<std::pair<RunPointer, QString>>;

    CompareRunsPanel* table_;
    QPushButton* table_button_ = nullptr;
    QFutureWatcher<Sentences> explaining_;
    bool explains_again_ = false;  ///< the runs have changed since the worker began
    bool reads_ = false;           ///< what is being read is still wanted
};

}  // namespace pipetwin::gui

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/as_index.h"
#include "gui/view/run/run_data.h"
#include "sim/explain/causes.h"

/// Waits of the actions of one step, and their causes.
namespace pipetwin::gui {

/// Cause of a piece of a wait.
enum class WaitPart {
    Compute,     ///< an action made what was needed, here or on another rank
    RankBusy,    ///< a rank was busy with an action that its row puts first
    Link,        ///< a message was on its way, or waited for its link
    Room,        ///< a receiver had no room, or a stash was on its way to host memory or back
    Gradients,   ///< gradients were summed
    Unexplained  ///< of a measured step: not in its replay; below 0 where that waits longer
};
constexpr int wait_part_count = 6;

/// "compute", "rank busy", "link", "room", "gradients", "unexplained".
std::string_view words(WaitPart part);
/// The part of a wait that a reason of the simulator counts to.
WaitPart part_of(sim::Reason reason);

/// The wait before a cell of a row, as StepAnalysis counts it.
Duration wait_before(const RowIndex& row, int cell);

/// A wait and its parts, which sum to it.
struct WaitSplit {
    Duration wait{};
    std::array<Duration, wait_part_count> parts{};

    Duration& operator[](WaitPart part) { return parts[as_index(part)]; }
    Duration operator[](WaitPart part) const { return parts[as_index(part)]; }
};

/// A piece of time that something waited for, and the action that filled it, or the message of a
/// send, or the copy of a stash that an action makes or needs. Times of a measured step are those
/// of the replay.
struct WaitPiece {
    SpanRef ref;
    Action action;
    sim::Reason reason{};
    Duration begin{};
    Duration end{};
    std::string shared_link{};  ///< that made a message or copy wait or go slower; empty: none

    /// True if an action on its rank filled it: no message, no copy.
    bool on_rank() const;
};

/// A wait and the action that waited. After the last action of a rank `ref.cell` is the length of
/// its row.
struct IdleTime {
    SpanRef ref;
    Duration wait{};
};

/// A piece of the longest chain of a step; the pieces follow each other without gaps.
struct PathPiece {
    SpanRef ref;
    Action action;
    Duration begin{};
    Duration end{};
    bool host_copy = false;
};

/// Analysis of a step of one side: why its actions began when they did.
///
/// The wait of a message is from its begin to the moment at which it was ready. That of any other
/// action is all the time since the one before it in its row that is no message, or since the start
/// of the step, until it is ready; so the waits of a rank and its actions fill the step.
///
/// The causes follow from the rules of the simulator (sim/explain/causes.h). A predicted step is
/// simulated again. A measured one is replayed with the durations it had, and so is a predicted one
/// that the plan does not give; what such a replay waits less than the step did is unexplained.
/// Where no plan of the run has the step's actions, one is made from the step itself
/// (sim/explain/plan_of_step.h): that of a trace alone, for example. A step of which no file says
/// which rank has which stage has only the length of each wait and the sender of each message.
///
/// Never throws for what a run holds.
class StepAnalysis {
  public:
    /// Analyses a step of a side, which has to exist. `run` must outlive it, which the pointer
    /// ensures. O(actions), some microseconds for each: call it on a worker.
    StepAnalysis(std::shared_ptr<const RunData> run, Side side, int step);

    Side side() const { return side_; }
    int step() const { return step_; }
    const RunData& run() const { return *run_; }

    /// True if the rules are known: waits are split and there is a longest chain.
    bool has_causes() const { return causes_.has_value(); }
    /// The plan that the causes follow from; there has to be one (`has_causes`).
    const Plan& plan() const { return *plan_; }
    /// True if that plan is one of the run, else it is made from the step.
    bool knows_plan_of_run() const { return plan_ != nullptr && !own_plan_; }
    /// True if the step is the one that the plan gives, to the nanosecond.
    bool as_planned() const { return as_planned_; }
    /// One sentence on what is missing; "" where nothing is.
    const std::string& note() const { return note_; }

    /// The wait of an action of this side, in the step that is asked about, since one predicted
    /// step stands for all. For a reference to nothing this and the next answers are empty.
    Duration wait_of(const SpanRef& ref) const;
    /// The wait of an action, by cause.
    WaitSplit split_of(const SpanRef& ref) const;

    /// The action, or the end of the row, whose wait includes the wait of this message; any other
    /// action itself.
    SpanRef whose_wait(const SpanRef& ref) const;

    /// The pieces that filled an action's wait, the earliest first. They sum to the wait, without
    /// what is unexplained.
    std::vector<WaitPiece> pieces_of(const SpanRef& ref) const;

    /// The pieces that led to an action, past its wait back to the start of the step. O(pieces).
    std::vector<WaitPiece> chain_of(const SpanRef& ref) const;

    /// The action that had to end for this one to begin; what takes no time is passed over.
    std::optional<SpanRef> blocker_of(const SpanRef& ref) const;

    /// The action that this one blocks; of several the one that waited longest.
    std::optional<SpanRef> unblocked_by(const SpanRef& ref) const;

    /// The other end of a message; none for an action that is no message.
    std::optional<SpanRef> partner_of(const SpanRef& ref) const;

    /// Time by which an action could end later without making the predicted step longer. None where
    /// ranks or messages share something, or where the plan is not known.
    std::optional<Duration> slack_of(const SpanRef& ref) const;

    /// Every wait that takes time, the longest first; equal ones by rank and time.
    const std::vector<IdleTime>& idle_times() const { return idle_times_; }
    /// Sum of all waits, by cause. No part is below zero: of a wait for which the replay waits
    /// longer, each cause has its share.
    const WaitSplit& idle() const { return idle_; }
    /// [rank]: time that all ranks waited for the work of this rank, as in `idle`.
    const std::vector<Duration>& waited_for() const { return waited_for_; }

    const std::vector<PathPiece>& critical_path() const { return path_; }
    bool on_critical_path(const SpanRef& ref) const;

    /// Length of the step as it is drawn.
    Duration length() const { return length_; }
    /// Length of the step as the rules have it: the sum of the longest chain.
    Duration replayed_length() const;

    /// The step as the rules have it; without rows where they are not known.
    const Timeline& replayed() const { return replayed_; }

  private:
    /// An action of a rank, and its cell in the row.
    struct Place {
        Action action;
        int cell = 0;
    };
    /// The cell that another cell unblocked; {-1, -1}: none.
    struct Cell {
        int rank = -1;
        int cell = -1;
    };

    void find_plan();
    void replay();
    void know_places();
    void know_slack();
    void know_idle_times();
    void know_blockers();
    void know_path();

    static WaitSplit split_of(Duration wait, const std::vector<WaitPiece>& pieces);
    const RowIndex* row_of(const SpanRef& ref) const;
    std::optional<SpanRef> place_of(int rank, const Action& action, int step) const;
    std::vector<WaitPiece> pieces(const std::vector<sim::Cause>& causes, int step) const;
    Duration replayed_wait_begin(const SpanRef& ref) const;
    std::optional<SpanRef> find_blocker(const SpanRef& ref) const;
    std::optional<SpanRef> blocker_by_rows(const SpanRef& ref) const;
    std::optional<SpanRef> maker_of(const SpanRef& receive) const;
    std::optional<SpanRef> place_anywhere(const Action& action, int step) const;

    std::shared_ptr<const RunData> run_;
    Side side_;
    int step_;
    const StepRows* rows_;
    Duration length_{};
    std::string note_;
    std::shared_ptr<const Plan> own_plan_;  ///< made from the step
    const Plan* plan_ = nullptr;            ///< null where there is none with the step's actions
    Timeline replayed_;
    std::optional<sim::Causes> causes_;
    bool as_planned_ = false;  ///< the replay is the simulation of the plan
    std::vector<std::vector<Place>> places_;
    std::vector<std::vector<Duration>> slack_;
    std::vector<IdleTime> idle_times_;
    WaitSplit idle_;
    std::vector<Duration> waited_for_;
    std::vector<std::vector<Cell>> unblocked_;
    std::vector<PathPiece> path_;
    std::vector<std::vector<bool>> in_path_;
};

/// The analysis of a step, made or, while another holder keeps it, shared. Any thread; threads that
/// ask at the same time wait for each other.
std::shared_ptr<const StepAnalysis> analysis_of(const std::shared_ptr<const RunData>& run,
                                                Side side,
                                                int step);

}  // namespace pipetwin::gui

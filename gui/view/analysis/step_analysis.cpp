// SPDX-License-Identifier: Apache-2.0
#include "gui/view/analysis/step_analysis.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/schedule/edge.h"
#include "gui/view/run/planned_run.h"
#include "sim/explain/critical_path.h"
#include "sim/explain/plan_of_step.h"
#include "sim/explain/sensitivity.h"
#include "sim/explain/waits.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::gui {

namespace {

std::size_t index(int number) {
    return as_index(number);
}

/// A row of a drawn step and one of a replay answer the same questions.
struct Replayed {
    const std::vector<Span>& spans;
    Op op(int cell) const { return spans[index(cell)].action.op; }
    Duration begin(int cell) const { return spans[index(cell)].begin; }
    Duration end(int cell) const { return spans[index(cell)].end; }
};

struct Drawn {
    const RowIndex& row;
    Op op(int cell) const { return row.action(cell).op; }
    Duration begin(int cell) const { return row.begin(cell); }
    Duration end(int cell) const { return row.end(cell); }
};

/// Time at which the wait of a cell begins; `length` of the row is the place after it.
template <class Row>
Duration wait_begin(const Row& row, int length, int cell) {
    if (cell < length && is_message(row.op(cell))) {
        return row.begin(cell);
    }
    for (int before = cell - 1; before >= 0; --before) {
        if (!is_message(row.op(before))) {
            return row.end(before);
        }
    }
    return {};
}

bool same_actions(const Plan& plan, const StepRows& rows) {
    const auto& planned = plan->schedule.ranks;
    if (planned.size() != rows.ranks.size()) {
        return false;
    }
    for (std::size_t rank = 0; rank < planned.size(); ++rank) {
        const RowIndex& row = rows.ranks[rank];
        if (planned[rank].size() != index(row.size())) {
            return false;
        }
        for (int cell = 0; cell < row.size(); ++cell) {
            if (row.action(cell) != planned[rank][index(cell)]) {
                return false;
            }
        }
    }
    return true;
}

/// To the nanosecond.
bool same_times(const Timeline& timeline, const StepRows& rows) {
    for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
        for (int cell = 0; cell < rows.ranks[rank].size(); ++cell) {
            if (timeline.ranks[rank][index(cell)] != rows.ranks[rank][cell]) {
                return false;
            }
        }
    }
    return true;
}

constexpr const char* no_form =
    "No file says which rank computes which stage, so the causes of the waits are not known.";
constexpr const char* shortest_links =
    "The run has no plan, so each message counts with the shortest time of any message between its "
    "ranks.";

}  // namespace

std::string_view words(WaitPart part) {
    switch (part) {
        case WaitPart::Compute:
            return "compute";
        case WaitPart::RankBusy:
            return "rank busy";
        case WaitPart::Link:
            return "link";
        case WaitPart::Room:
            return "no room at the receiver";
        case WaitPart::Gradients:
            return "gradients";
        case WaitPart::Unexplained:
            return "unexplained";
    }
    PIPETWIN_EXPECT(false, "part out of range");
}

WaitPart part_of(sim::Reason reason) {
    switch (reason) {
        case sim::Reason::Compute:
            return WaitPart::Compute;
        case sim::Reason::RowOrder:
            return WaitPart::RankBusy;
        case sim::Reason::Latency:
        case sim::Reason::Transfer:
        case sim::Reason::LinkBusy:
            return WaitPart::Link;
        case sim::Reason::BackPressure:
        case sim::Reason::HostCopy:
            return WaitPart::Room;
        case sim::Reason::Reduction:
            return WaitPart::Gradients;
    }
    PIPETWIN_EXPECT(false, "reason out of range");
}

Duration wait_before(const RowIndex& row, int cell) {
    return row.ready(cell) - wait_begin(Drawn{row}, row.size(), cell);
}

bool WaitPiece::on_rank() const {
    return part_of(reason) != WaitPart::Link && reason != sim::Reason::HostCopy;
}

StepAnalysis::StepAnalysis(std::shared_ptr<const RunData> run, Side side, int step)
    : run_(std::move(run)), side_(side), step_(step), rows_(run_->twin.step(side, step)) {
    PIPETWIN_EXPECT(rows_ != nullptr, "the step is one of the side");
    for (const RowIndex& row : rows_->ranks) {
        length_ = std::max(length_, row.last_end());
    }
    replay();
    know_places();
    know_idle_times();
    know_blockers();
    if (has_causes()) {
        know_slack();
        know_path();
    }
}

/// A plan of the run that has the step's actions, else one that is made from the step.
void StepAnalysis::find_plan() {
    const Plan* const planned = run_->planned ? &run_->planned->plan : nullptr;
    const Plan* const own = run_->own_plan.get();
    for (const Plan* const candidate : {own, planned}) {
        if (candidate != nullptr && same_actions(*candidate, *rows_)) {
            plan_ = candidate;
            return;
        }
    }
    const std::optional<SideData>& data = run_->side(side_);
    if (!data || !data->form) {
        note_ = no_form;
        return;
    }
    own_plan_ = std::make_shared<const Plan>(
        sim::plan_of_step(rows_->timeline(), *data->form, data->channel_capacity));
    plan_ = own_plan_.get();
    if (side_ == Side::Measured) {
        note_ = shortest_links;
    }
}

void StepAnalysis::replay() {
    try {
        find_plan();
        if (plan_ == nullptr) {
            return;
        }
        if (side_ == Side::Predicted) {
            replayed_ = sim::simulate(*plan_);
            as_planned_ = same_times(replayed_, *rows_);
        }
        if (!as_planned_) {
            replayed_ = sim::replay(*plan_, sim::conditions_of(*plan_, rows_->timeline()));
        }
        causes_.emplace(*plan_, replayed_);
    } catch (const std::exception& error) {
        plan_ = nullptr;
        replayed_ = {};
        note_ = fmt::format("The step cannot be replayed: {}", error.what());
    }
}

void StepAnalysis::know_places() {
    for (const RowIndex& row : rows_->ranks) {
        auto& places = places_.emplace_back();
        places.reserve(index(row.size()));
        for (int cell = 0; cell < row.size(); ++cell) {
            places.push_back({.action = row.action(cell), .cell = cell});
            places.back().action.with_next = false;
        }
        std::ranges::sort(places, {}, &Place::action);
    }
}

/// Slack is that of the run's plan, whichever side is asked about.
void StepAnalysis::know_slack() {
    const bool known = as_planned_ || (side_ == Side::Measured && !own_plan_);
    if (known && !plan()->contention.any()) {
        slack_ = sim::Sensitivity(plan()).slack();
    }
}

namespace {

/// A part of `explained` as a part of `wait`, if the replay waits longer than the step did.
Duration within(Duration part, Duration wait, Duration explained) {
    if (explained <= wait) {
        return part;
    }
    const double share = to_seconds(part) / to_seconds(explained);
    return Duration{static_cast<std::int64_t>(share * static_cast<double>(wait.count()))};
}

/// A split whose parts are not below zero: where the replay waits longer than the step did, each
/// cause has its share of the step's wait.
WaitSplit within_wait(WaitSplit split) {
    if (split[WaitPart::Unexplained] >= Duration{}) {
        return split;
    }
    const Duration explained = split.wait - split[WaitPart::Unexplained];
    split[WaitPart::Unexplained] = {};
    Duration rest = split.wait;
    for (Duration& part : split.parts) {
        part = within(part, split.wait, explained);
        rest -= part;
    }
    *std::ranges::max_element(split.parts) += rest;
    return split;
}

}  // namespace

void StepAnalysis::know_idle_times() {
    waited_for_.resize(rows_->ranks.size());
    for (int rank = 0; std::cmp_less(rank, rows_->ranks.size()); ++rank) {
        const RowIndex& row = rows_->ranks[index(rank)];
        for (int cell = 0; cell <= row.size(); ++cell) {
            const SpanRef ref{.side = side_, .step = step_, .rank = rank, .cell = cell};
            const bool counts = cell == row.size() || !is_message(row.action(cell).op);
            const Duration wait = counts ? wait_of(ref) : Duration{};
            if (wait <= Duration{}) {
                continue;
            }
            idle_times_.push_back({.ref = ref, .wait = wait});
            const std::vector<WaitPiece> pieces = pieces_of(ref);
            const Duration explained = wait - split_of(wait, pieces)[WaitPart::Unexplained];
            for (const WaitPiece& piece : pieces) {
                waited_for_[index(piece.ref.rank)] +=
                    piece.on_rank() ? within(piece.end - piece.begin, wait, explained) : Duration{};
            }
            const WaitSplit split = within_wait(split_of(wait, pieces));
            idle_.wait += wait;
            for (std::size_t part = 0; part < split.parts.size(); ++part) {
                idle_.parts[part] += split.parts[part];
            }
        }
    }
    std::ranges::stable_sort(idle_times_, std::ranges::greater{}, &IdleTime::wait);
}

void StepAnalysis::know_blockers() {
    std::vector<std::vector<Duration>> longest;
    for (const RowIndex& row : rows_->ranks) {
        unblocked_.emplace_back(index(row.size()));
        longest.emplace_back(index(row.size()), Duration{-1});
    }
    for (int rank = 0; std::cmp_less(rank, rows_->ranks.size()); ++rank) {
        const RowIndex& row = rows_->ranks[index(rank)];
        for (int cell = 0; cell < row.size(); ++cell) {
            const SpanRef ref{.side = side_, .step = step_, .rank = rank, .cell = cell};
            if (is_message(row.action(cell).op) || !row.takes_time(cell)) {
                continue;
            }
            const std::optional<SpanRef> blocker = blocker_of(ref);
            if (!blocker) {
                continue;
            }
            const Duration wait = wait_of(ref);
            Duration& most = longest[index(blocker->rank)][index(blocker->cell)];
            if (wait > most) {
                most = wait;
                unblocked_[index(blocker->rank)][index(blocker->cell)] = {.rank = rank,
                                                                          .cell = cell};
            }
        }
    }
}

void StepAnalysis::know_path() {
    for (const RowIndex& row : rows_->ranks) {
        in_path_.emplace_back(index(row.size()), false);
    }
    for (const sim::CriticalStep& piece : sim::critical_path(plan(), replayed_)) {
        if (const auto ref = place_of(piece.rank, piece.action, step_)) {
            in_path_[index(ref->rank)][index(ref->cell)] = true;
            path_.push_back({.ref = *ref,
                             .action = piece.action,
                             .begin = piece.begin,
                             .end = piece.end,
                             .host_copy = piece.host_copy});
        }
    }
}

/// The row of an action; null for another side, rank or cell. The cell after the last is one.
const RowIndex* StepAnalysis::row_of(const SpanRef& ref) const {
    if (ref.side != side_ || ref.rank < 0 ||
        std::cmp_greater_equal(ref.rank, rows_->ranks.size())) {
        return nullptr;
    }
    const RowIndex& row = rows_->ranks[index(ref.rank)];
    return ref.cell >= 0 && ref.cell <= row.size() ? &row : nullptr;
}

std::optional<SpanRef> StepAnalysis::place_of(int rank, const Action& action, int step) const {
    if (rank < 0 || std::cmp_greater_equal(rank, places_.size())) {
        return std::nullopt;
    }
    Action wanted = action;
    wanted.with_next = false;
    const auto& places = places_[index(rank)];
    const auto found = std::ranges::lower_bound(places, wanted, {}, &Place::action);
    if (found == places.end() || found->action != wanted) {
        return std::nullopt;
    }
    return SpanRef{.side = side_, .step = step, .rank = rank, .cell = found->cell};
}

std::optional<SpanRef> StepAnalysis::place_anywhere(const Action& action, int step) const {
    for (int rank = 0; std::cmp_less(rank, places_.size()); ++rank) {
        if (const auto found = place_of(rank, action, step)) {
            return found;
        }
    }
    return std::nullopt;
}

Duration StepAnalysis::wait_of(const SpanRef& ref) const {
    const RowIndex* const row = row_of(ref);
    if (row == nullptr) {
        return {};
    }
    const Duration end = ref.cell == row->size() ? length_ : row->ready(ref.cell);
    return end - wait_begin(Drawn{*row}, row->size(), ref.cell);
}

SpanRef StepAnalysis::whose_wait(const SpanRef& ref) const {
    const RowIndex* const row = row_of(ref);
    SpanRef whose = ref;
    if (row == nullptr || ref.cell == row->size() || wait_of(ref) <= Duration{}) {
        return whose;
    }
    while (whose.cell < row->size() && is_message(row->action(whose.cell).op)) {
        ++whose.cell;
    }
    return whose;
}

WaitSplit StepAnalysis::split_of(const SpanRef& ref) const {
    return split_of(wait_of(ref), pieces_of(ref));
}

WaitSplit StepAnalysis::split_of(Duration wait, const std::vector<WaitPiece>& pieces) {
    WaitSplit split{.wait = wait};
    Duration explained{};
    for (const WaitPiece& piece : pieces) {
        split[part_of(piece.reason)] += piece.end - piece.begin;
        explained += piece.end - piece.begin;
    }
    split[WaitPart::Unexplained] = split.wait - explained;
    return split;
}

Duration StepAnalysis::replayed_wait_begin(const SpanRef& ref) const {
    const auto& row = replayed_.ranks[index(ref.rank)];
    return wait_begin(Replayed{row}, static_cast<int>(row.size()), ref.cell);
}

std::vector<WaitPiece> StepAnalysis::pieces(const std::vector<sim::Cause>& causes, int step) const {
    std::vector<WaitPiece> pieces;
    pieces.reserve(causes.size());
    for (const sim::Cause& cause : causes) {
        if (const auto ref = place_of(cause.rank, cause.action, step)) {
            pieces.push_back({.ref = *ref,
                              .action = cause.action,
                              .reason = cause.reason,
                              .begin = cause.begin,
                              .end = cause.end,
                              .shared_link = sim::shared_link_name(plan(), cause)});
        }
    }
    return pieces;
}

namespace {

std::vector<sim::Cause> causes_until(const sim::Causes& causes,
                                     const SpanRef& ref,
                                     int length,
                                     Duration until) {
    if (ref.cell == length) {
        const auto last = sim::last_span(causes.timeline());
        return last ? causes.of_end(*last, until) : std::vector<sim::Cause>{};
    }
    return causes.of_ready({.rank = static_cast<std::uint32_t>(ref.rank),
                            .cell = static_cast<std::uint32_t>(ref.cell)},
                           until);
}

}  // namespace

std::vector<WaitPiece> StepAnalysis::pieces_of(const SpanRef& ref) const {
    const RowIndex* const row = row_of(ref);
    if (row == nullptr || !causes_) {
        return {};
    }
    return pieces(causes_until(*causes_, ref, row->size(), replayed_wait_begin(ref)), ref.step);
}

std::vector<WaitPiece> StepAnalysis::chain_of(const SpanRef& ref) const {
    const RowIndex* const row = row_of(ref);
    if (row == nullptr || !causes_) {
        return {};
    }
    return pieces(causes_until(*causes_, ref, row->size(), Duration{}), ref.step);
}

std::optional<SpanRef> StepAnalysis::blocker_of(const SpanRef& ref) const {
    if (row_of(ref) == nullptr) {
        return std::nullopt;
    }
    return causes_ ? find_blocker(ref) : blocker_by_rows(ref);
}

/// Further and further back until there is an action behind the messages.
std::optional<SpanRef> StepAnalysis::find_blocker(const SpanRef& ref) const {
    const auto& row = replayed_.ranks[index(ref.rank)];
    const int length = static_cast<int>(row.size());
    const Duration time = ref.cell == length ? replayed_length() : row[index(ref.cell)].ready;
    constexpr int further = 64;
    Duration back{1};
    for (Duration until = time; until > Duration{}; back = std::min(time, back * further)) {
        until = std::max(Duration{}, time - back);
        const auto causes = pieces(causes_until(*causes_, ref, length, until), ref.step);
        for (auto piece = causes.rbegin(); piece != causes.rend(); ++piece) {
            if (piece->on_rank()) {
                return piece->ref;
            }
        }
    }
    return std::nullopt;
}

namespace {

/// The action before or after a place of a row that is no message; -1: none.
int next_action(const RowIndex& row, int cell, int direction) {
    for (cell += direction; cell >= 0 && cell < row.size(); cell += direction) {
        if (!is_message(row.action(cell).op)) {
            return cell;
        }
    }
    return -1;
}

}  // namespace

/// The action that made the message of a receive.
std::optional<SpanRef> StepAnalysis::maker_of(const SpanRef& receive) const {
    const bool receives = is_receive(row_of(receive)->action(receive.cell).op);
    std::optional<SpanRef> maker = receives ? partner_of(receive) : std::nullopt;
    if (maker) {
        maker->cell = next_action(*row_of(*maker), maker->cell, -1);
    }
    return maker && maker->cell >= 0 ? maker : std::nullopt;
}

/// The receive before an action in its row that waited longest says which message it needed.
std::optional<SpanRef> StepAnalysis::blocker_by_rows(const SpanRef& ref) const {
    const RowIndex& row = *row_of(ref);
    const int before = next_action(row, ref.cell, -1);
    const bool is_action = ref.cell < row.size();
    SpanRef at = ref;
    at.cell = is_action && is_message(row.action(ref.cell).op) ? ref.cell : before + 1;
    std::optional<SpanRef> blocker;
    Duration longest{};
    for (; at.cell < ref.cell + (is_action ? 1 : 0); ++at.cell) {
        const Duration wait = row.ready(at.cell) - row.begin(at.cell);
        const auto maker = wait > longest ? maker_of(at) : std::nullopt;
        if (maker) {
            longest = wait;
            blocker = maker;
        }
    }
    if (!blocker && before >= 0) {
        blocker = ref;
        blocker->cell = before;
    }
    return blocker;
}

std::optional<SpanRef> StepAnalysis::unblocked_by(const SpanRef& ref) const {
    const RowIndex* const row = row_of(ref);
    if (row == nullptr || ref.cell == row->size()) {
        return std::nullopt;
    }
    const Op op = row->action(ref.cell).op;
    if (is_send(op)) {
        return partner_of(ref);
    }
    if (is_receive(op)) {
        const int next = next_action(*row, ref.cell, +1);
        return next < 0 ? std::nullopt
                        : std::optional(SpanRef{
                              .side = side_, .step = ref.step, .rank = ref.rank, .cell = next});
    }
    const Cell& found = unblocked_[index(ref.rank)][index(ref.cell)];
    if (found.rank < 0) {
        return std::nullopt;
    }
    return SpanRef{.side = side_, .step = ref.step, .rank = found.rank, .cell = found.cell};
}

std::optional<SpanRef> StepAnalysis::partner_of(const SpanRef& ref) const {
    const RowIndex* const row = row_of(ref);
    if (row == nullptr || ref.cell == row->size() || !is_message(row->action(ref.cell).op)) {
        return std::nullopt;
    }
    return place_anywhere(other_end(row->action(ref.cell)), ref.step);
}

std::optional<Duration> StepAnalysis::slack_of(const SpanRef& ref) const {
    const RowIndex* const row = row_of(ref);
    if (row == nullptr || slack_.empty() || ref.cell == row->size()) {
        return std::nullopt;
    }
    return slack_[index(ref.rank)][index(ref.cell)];
}

bool StepAnalysis::on_critical_path(const SpanRef& ref) const {
    const RowIndex* const row = row_of(ref);
    return row != nullptr && ref.cell < row->size() && !in_path_.empty() &&
           in_path_[index(ref.rank)][index(ref.cell)];
}

Duration StepAnalysis::replayed_length() const {
    const auto last = sim::last_span(replayed_);
    return last ? replayed_.ranks[last->rank][last->cell].end : Duration{};
}

std::shared_ptr<const StepAnalysis> analysis_of(const std::shared_ptr<const RunData>& run,
                                                Side side,
                                                int step) {
    if (run == nullptr || run->twin.step(side, step) == nullptr) {
        return nullptr;
    }
    static std::mutex mutex;
    static std::vector<std::weak_ptr<const StepAnalysis>> known;
    const std::scoped_lock lock(mutex);
    const StepRows* const rows = run->twin.step(side, step);
    std::erase_if(known, [](const auto& analysis) { return analysis.expired(); });
    for (const auto& candidate : known) {
        const auto analysis = candidate.lock();
        if (analysis && &analysis->run() == run.get() && analysis->side() == side &&
            run->twin.step(side, analysis->step()) == rows) {
            return analysis;
        }
    }
    auto made = std::make_shared<const StepAnalysis>(run, side, step);
    known.emplace_back(made);
    return made;
}

}  // namespace pipetwin::gui

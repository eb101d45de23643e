// SPDX-License-Identifier: Apache-2.0
#include "exec/executor/watchdog.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/costs/contention.h"
#include "core/plan/offload.h"
#include "core/plan/plan.h"
#include "core/schedule/edge.h"

namespace pipetwin::exec {
namespace {

/// Looks within the least limit: a hang is found so much later at most.
constexpr int looks = 50;

/// All messages of a step over the links that they share, one after the other.
Duration time_on_shared_links(const Plan& plan) {
    const Contention& contention = plan->contention;
    Duration time{};
    for (std::size_t edge = 0; edge < contention.way_of_edge.size(); ++edge) {
        const Bytes bytes =
            plan.message_bytes(static_cast<int>(edge), 0) + plan->links[edge / 2].half_bandwidth;
        for (const int link : contention.way_of_edge[edge]) {
            time += plan.micro_batches() *
                    transfer_time(bytes, contention.shared_links[as_index(link)]);
        }
    }
    return time;
}

/// All messages that may lie in the channel before this one, on a link that sends one at a time.
Duration longest_transfer(const Plan& plan, const Action& action) {
    const int edge = edge_of(plan->schedule, action);
    const LinkCost& link = plan->links.at(as_index(edge / 2));
    const Bytes bytes = plan.message_bytes(edge, action.micro_batch);
    const int places = channel_places(
        plan->schedule, stages_of(action), plan->channel_capacity.value_or(plan.micro_batches()));
    const int most = std::min(places + 1, plan.micro_batches());
    return link.latency + most * transfer_time(bytes + link.half_bandwidth, link.bytes_per_second) +
           time_on_shared_links(plan);
}

/// What an action may wait for copies of stashes, each of which may wait for all others of its
/// rank.
std::vector<Duration> copy_times(const Plan& plan) {
    std::vector<Duration> times(plan->schedule.ranks.size());
    if (!plan->host_link) {
        return times;
    }
    const auto copies = stash_copies(plan);
    for (std::size_t rank = 0; rank < copies.size(); ++rank) {
        for (const StashCopy& copy : copies[rank]) {
            times[rank] += 2 * (plan->host_link->latency +
                                transfer_time(copy.bytes + plan->host_link->half_bandwidth,
                                              plan->host_link->bytes_per_second));
        }
    }
    return times;
}

Duration reduction_time(const Plan& plan, int stage) {
    if (plan->reductions.empty()) {
        return {};
    }
    const LinkCost& link = plan->reductions.at(as_index(stage));
    const Bytes bytes = plan.handed_over(stage);
    return link.latency + transfer_time(bytes + link.half_bandwidth, link.bytes_per_second);
}

Duration planned_time(const Plan& plan, const Action& action, Duration copies) {
    if (is_message(action.op)) {
        return longest_transfer(plan, action);
    }
    if (action.op == Op::ReduceGradient || uses_gradients(action.op)) {
        return plan.duration(action) + reduction_time(plan, action.stage) +
               plan.all_reduce_time(action.stage);
    }
    return plan.duration(action) + copies;
}

}  // namespace

Watchdog::Watchdog(const Plan& plan,
                   const HangLimits& limits,
                   std::function<std::string(int rank)> group_wait)
    : plan_(plan),
      limits_(limits),
      group_wait_(std::move(group_wait)),
      interval_(std::max(limits.least / looks, Duration(1))),
      awaited_(cross_rank_dependencies(plan->schedule, plan->channel_capacity.value_or(-1))),
      last_norms_(last_norms(plan->schedule)),
      stays_(plan->schedule.ranks.size()) {
    const std::vector<Duration> copies = copy_times(plan);
    for (std::size_t rank = 0; rank < plan->schedule.ranks.size(); ++rank) {
        std::vector<Duration>& expected = expected_.emplace_back();
        for (const Action& action : plan->schedule.ranks[rank]) {
            expected.push_back(planned_time(plan, action, copies[rank]));
        }
    }
}

void Watchdog::begin_step(TimePoint now) {
    std::ranges::fill(stays_, Stay{});
    last_look_ = now;
}

std::optional<Hang> Watchdog::look(std::span<const int> cells,
                                   TimePoint now,
                                   std::span<const char> waits_in_group) {
    const Duration passed = std::min<Duration>(now - last_look_, 2 * interval_);
    last_look_ = now;
    for (std::size_t rank = 0; rank < stays_.size(); ++rank) {
        if (stays_[rank].cell != cells[rank]) {
            stays_[rank] = {.cell = cells[rank]};
        } else {
            stays_[rank].time += passed;
        }
        stays_[rank].waits_in_group = !waits_in_group.empty() && waits_in_group[rank] != 0;
    }
    std::optional<int> worst;
    Duration most{};
    for (int rank = 0; rank < static_cast<int>(stays_.size()); ++rank) {
        Stay& stay = stays_[as_index(rank)];
        if (stay.time == Duration{} || is_excused(rank)) {
            continue;
        }
        stay.own += passed;
        if (const Duration beyond = stay.own - limit(rank); beyond > most) {
            most = beyond;
            worst = rank;
        }
    }
    if (!worst) {
        return std::nullopt;
    }
    Hang hang{.rank = *worst, .text = report(*worst)};
    if (is_in_row(*worst)) {
        hang.cell = stays_[as_index(*worst)].cell;
    }
    return hang;
}

void Watchdog::learn(const std::vector<Span>& row, int rank) {
    std::vector<Duration>& expected = expected_[as_index(rank)];
    for (std::size_t cell = 0; cell < row.size(); ++cell) {
        const Op op = row[cell].action.op;
        if (!is_send(op) && !is_receive(op)) {
            expected[cell] = std::max(expected[cell], row[cell].end - row[cell].begin);
        }
    }
}

const std::vector<Action>& Watchdog::row(int rank) const {
    return plan_->schedule.ranks[as_index(rank)];
}

bool Watchdog::is_in_row(int rank) const {
    const int cell = stays_[as_index(rank)].cell;
    return cell >= 0 && cell < static_cast<int>(row(rank).size());
}

/// What the action that the rank has turned to waits for: an update for the first rank that still
/// has norms to take, else for what stands in its row.
std::optional<Cell> Watchdog::awaited_by(int rank) const {
    const std::size_t index = as_index(rank);
    const std::size_t cell = as_index(stays_[index].cell);
    if (row(rank)[cell].op == Op::Optimizer) {
        for (std::size_t other = 0; other < last_norms_.size(); ++other) {
            if (other != index && last_norms_[other] >= 0 &&
                stays_[other].cell <= last_norms_[other]) {
                return Cell{.rank = static_cast<int>(other), .cell = last_norms_[other]};
            }
        }
    }
    return awaited_[index][cell];
}

/// The rank that has not come to where this one needs it.
std::optional<int> Watchdog::waits_for(int rank) const {
    const int cell = stays_[as_index(rank)].cell;
    if (cell == prepared) {
        const auto late = std::ranges::find(stays_, preparing, &Stay::cell);
        return late == stays_.end() ? std::nullopt
                                    : std::optional(static_cast<int>(late - stays_.begin()));
    }
    if (!is_in_row(rank)) {
        return std::nullopt;
    }
    const std::optional<Cell> other = awaited_by(rank);
    if (!other) {
        return std::nullopt;
    }
    // Where a send and its receive are one event, the sender is who has to act once both are there.
    const bool is_rendezvous =
        is_send(row(rank)[as_index(cell)].op) && plan_->channel_capacity == 0;
    const int seen = stays_[as_index(other->rank)].cell;
    const bool has_come = is_rendezvous ? seen >= other->cell : seen > other->cell;
    return has_come ? std::nullopt : std::optional(other->rank);
}

/// Whether a rank does not count as hanging: it has left, or a chain of waits of any length leads
/// from it to a rank that waits for no other.
bool Watchdog::is_excused(int rank) const {
    const int cell = stays_[as_index(rank)].cell;
    if (cell >= static_cast<int>(row(rank).size())) {
        return true;
    }
    std::optional<int> other = waits_for(rank);
    if (!other) {
        return false;
    }
    for (std::size_t links = 0; other && links < stays_.size(); ++links) {
        other = waits_for(*other);
    }
    return !other;
}

bool Watchdog::waits_for_replicas(int rank) const {
    if (plan_->replicas == 1 || !is_in_row(rank)) {
        return false;
    }
    const std::size_t cell = as_index(stays_[as_index(rank)].cell);
    const Op op = row(rank)[cell].op;
    return op == Op::ReduceGradient || uses_gradients(op);
}

Duration Watchdog::expected(int rank) const {
    return is_in_row(rank) ? expected_[as_index(rank)][as_index(stays_[as_index(rank)].cell)]
                           : Duration{};
}

Duration Watchdog::limit(int rank) const {
    const Duration least =
        is_first_step_ ? std::max(limits_.least, limits_.first_step) : limits_.least;
    const Duration alone = std::max(least, limits_.factor * expected(rank));
    // Another replica or device that holds this one up is found out by its own watchdog, and first.
    const bool waits_for_others = waits_for_replicas(rank) || stays_[as_index(rank)].waits_in_group;
    return waits_for_others ? 2 * alone : alone;
}

std::string Watchdog::report(int rank) const {
    const std::string wait = wait_in_group(rank);
    std::string text = fmt::format("it has hung for {}, {}",
                                   format_duration(stays_[as_index(rank)].own),
                                   wait.empty() ? "waiting for no other rank" : "in " + wait);
    if (is_in_row(rank)) {
        text += fmt::format("; it was expected to last {}", format_duration(expected(rank)));
    }
    for (int each = 0; each < static_cast<int>(stays_.size()); ++each) {
        text += "\n  " + line(each);
    }
    return text;
}

/// What the rank waits for in a group, where it did so at the last look; else empty.
std::string Watchdog::wait_in_group(int rank) const {
    return stays_[as_index(rank)].waits_in_group && group_wait_ ? group_wait_(rank) : std::string();
}

/// "rank 2: at 2RECV_F0 (...) for 10.2 s, waits for 1SEND_F0 of rank 1".
std::string Watchdog::line(int rank) const {
    const Stay& stay = stays_[as_index(rank)];
    if (stay.cell >= static_cast<int>(row(rank).size())) {
        return fmt::format(
            "rank {}: at the end of its row for {}", rank, format_duration(stay.time));
    }
    std::string text = fmt::format("rank {}: {} for {}",
                                   rank,
                                   is_in_row(rank) ? "at " + in_full(row(rank)[as_index(stay.cell)])
                                                   : "before its first action",
                                   format_duration(stay.time));
    const std::optional<int> other = waits_for(rank);
    if (!is_in_row(rank)) {
        return text + (other ? fmt::format(", waits for rank {}", *other) : "");
    }
    if (const std::string wait = wait_in_group(rank); !wait.empty()) {
        return text + ", waits in " + wait;
    }
    const std::optional<Cell> cell = awaited_by(rank);
    if (!cell) {
        return text + ", waits for no rank";
    }
    return text + fmt::format(", waits for {} of rank {}{}",
                              to_string(row(cell->rank)[as_index(cell->cell)]),
                              cell->rank,
                              other ? "" : ", which has come");
}

}  // namespace pipetwin::exec

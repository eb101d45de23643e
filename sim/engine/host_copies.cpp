// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/host_copies.h"

#include <algorithm>

#include "core/base/as_index.h"
#include "core/plan/offload.h"
#include "core/plan/plan.h"
#include "sim/engine/shared_links.h"

namespace pipetwin::sim {

HostCopies::HostCopies(const Plan& plan, const Conditions& conditions)
    : plan_(plan), conditions_(conditions), shares_(SharedLinks::shares_copies(conditions)) {
    if (!conditions.host_link) {
        return;
    }
    latency_ = conditions.host_link->latency;
    rows_.resize(2 * plan->schedule.ranks.size());
    carried_.resize(rows_.size());
    for (const auto& of_rank : stash_copies(plan)) {
        auto& cells = cells_.emplace_back(plan->schedule.ranks[copies_.size()].size());
        auto& copies = copies_.emplace_back();
        for (const StashCopy& copy : of_rank) {
            const auto number = static_cast<std::int32_t>(copies.size());
            cells[copy.forward].makes = number;
            cells[copy.before].lets_in = number;
            cells[copy.user].needs = number;
            const Duration usual = occupation(*conditions.host_link, copy.bytes);
            const auto lasts = [&](std::size_t cell) {
                return conditions.copy_factors.empty()
                           ? usual
                           : times(usual, factor_of(copies_.size() - 1, cell));
            };
            copies.push_back({.forward = copy.forward,
                              .user = copy.user,
                              .bytes = copy.bytes,
                              .out_occupation = lasts(copy.forward),
                              .in_occupation = lasts(copy.user)});
        }
    }
}

Duration HostCopies::came(int rank, std::size_t cell) const {
    const std::int32_t needed = cell_at(rank, cell).needs;
    return needed == none ? Duration{} : copies_[as_index(rank)][as_index(needed)].in;
}

void HostCopies::begins(int rank, std::size_t cell, Duration now) {
    const std::int32_t number = cell_at(rank, cell).lets_in;
    if (number == none) {
        return;
    }
    Copy& copy = copy_at(rank, number);
    if (shares_) {
        copy.let_in = now;
        if (copy.out != unknown) {
            wish(2 * rank + 1, number, std::max(now, copy.out));
        }
    } else {
        const auto& row = plan_->schedule.ranks[as_index(rank)];
        copy.in = carry(
            2 * as_index(rank) + 1, row[copy.user], std::max(now, copy.out), copy.in_occupation);
    }
}

void HostCopies::ends(int rank, std::size_t cell, Duration now) {
    const std::int32_t number = cell_at(rank, cell).makes;
    if (number == none) {
        return;
    }
    if (shares_) {
        wish(2 * rank, number, now);
    } else {
        Copy& copy = copy_at(rank, number);
        const auto& row = plan_->schedule.ranks[as_index(rank)];
        copy.out = carry(2 * as_index(rank), row[cell], now, copy.out_occupation);
    }
}

double HostCopies::factor_of(std::size_t rank, std::size_t cell) const {
    return conditions_.copy_factors.empty() ? 1 : conditions_.copy_factors[rank][cell];
}

void HostCopies::wish(int way, std::int32_t number, Duration earliest) {
    const int rank = way / 2;
    const Copy& copy = copy_at(rank, number);
    const std::size_t cell = way % 2 == 0 ? copy.forward : copy.user;
    wishes_.push_back({.way = way,
                       .action = plan_->schedule.ranks[as_index(rank)][cell],
                       .units = LinkTraffic::units_of(
                           *conditions_.host_link, copy.bytes, factor_of(as_index(rank), cell)),
                       .earliest = earliest});
    carried_[as_index(way)].push_back(number);
}

Duration HostCopies::through(int way, Duration begin, Duration now) {
    const std::int32_t number = carried_[as_index(way)].front();
    carried_[as_index(way)].pop_front();
    Copy& copy = copy_at(way / 2, number);
    const bool back = way % 2 == 1;
    const Duration end = now + latency_;
    const auto& row = plan_->schedule.ranks[as_index(way / 2)];
    rows_[as_index(way)].push_back(
        {.action = row[back ? copy.user : copy.forward], .begin = begin, .ready = now, .end = end});
    if (back) {
        copy.in = end;
    } else {
        copy.out = end;
        if (copy.let_in != unknown) {
            wish(way + 1, number, end);
        }
    }
    return end;
}

std::vector<std::vector<Span>> HostCopies::take_rows() {
    if (std::ranges::all_of(rows_, [](const auto& row) { return row.empty(); })) {
        rows_.clear();
    }
    return std::move(rows_);
}

Duration HostCopies::carry(std::size_t direction,
                           const Action& action,
                           Duration earliest,
                           Duration occupation) {
    auto& row = rows_[direction];
    const Duration begin = row.empty() ? earliest : std::max(earliest, row.back().ready);
    const Duration through = begin + occupation;
    const Duration end = through + latency_;
    row.push_back({.action = action, .begin = begin, .ready = through, .end = end});
    return end;
}

}  // namespace pipetwin::sim

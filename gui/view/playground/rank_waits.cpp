#include "gui/view/playground/rank_waits.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "gui/view/playground/closed_form.h"

namespace pipetwin::gui {

namespace {

constexpr int kinds_of_waits = 5;

/// Sums of one kind of wait of one rank.
struct Sum {
    Duration wait{};
    Duration on_links{};
    std::map<int, Duration> on_ranks{};
};

bool is_backward_op(Op op) {
    return op == Op::Backward || op == Op::BackwardInput || op == Op::BackwardWeight ||
           op == Op::Recompute;
}

/// The first cell that computes; the length of the row where none does.
int first_compute(const RowIndex& row) {
    int cell = 0;
    while (cell < row.size() && !pipetwin::is_compute(row.action(cell).op)) {
        ++cell;
    }
    return cell;
}

WaitFor kind_of(const RowIndex& row, int cell, int first) {
    if (cell == row.size()) {
        return WaitFor::End;
    }
    if (cell <= first) {
        return WaitFor::FirstInput;
    }
    const Op op = row.action(cell).op;
    return is_backward_op(op)  ? WaitFor::Gradient
           : op == Op::Forward ? WaitFor::Input
                               : WaitFor::Other;
}

/// Ranks that filled at least a sixth of the time that ranks filled, most first.
std::vector<int> named_ranks(const std::map<int, Duration>& on_ranks) {
    std::vector<std::pair<int, Duration>> sorted(on_ranks.begin(), on_ranks.end());
    std::ranges::stable_sort(sorted, std::ranges::greater{}, &std::pair<int, Duration>::second);
    Duration all{};
    for (const auto& [rank, time] : sorted) {
        all += time;
    }
    std::vector<int> ranks;
    for (const auto& [rank, time] : sorted) {
        if (6 * time >= all && time > Duration{}) {
            ranks.push_back(rank);
        }
    }
    return ranks;
}

/// "rank 3", "ranks 1 to 3", "ranks 0, 2 and 5".
std::string ranks_text(std::vector<int> ranks) {
    std::ranges::sort(ranks);
    const auto count = static_cast<int>(ranks.size());
    if (count == 1) {
        return fmt::format("rank {}", ranks.front());
    }
    if (count > 2 && ranks.back() - ranks.front() == count - 1) {
        return fmt::format("ranks {} to {}", ranks.front(), ranks.back());
    }
    const int last = ranks.back();
    ranks.pop_back();
    return fmt::format("ranks {} and {}", fmt::join(ranks, ", "), last);
}

std::string what_text(WaitFor what) {
    switch (what) {
        case WaitFor::FirstInput:
            return "before its first action";
        case WaitFor::Input:
            return "for outputs of earlier stages";
        case WaitFor::Gradient:
            return "for gradients of later stages";
        case WaitFor::Other:
            return "before its update";
        case WaitFor::End:
            return "at the end, with nothing left to do";
    }
    return "";
}

std::string part_text(const RankWait& part) {
    std::string text = fmt::format("{} {}", short_time(part.wait), what_text(part.what));
    if (2 * part.on_links >= part.wait) {
        return text + ", while messages are on their way";
    }
    if (!part.ranks.empty()) {
        text += fmt::format(", while {} {}",
                            ranks_text(part.ranks),
                            part.ranks.size() == 1 ? "computes" : "compute");
    }
    return text;
}

}  // namespace

std::vector<RankWaits> rank_waits(const StepAnalysis& analysis) {
    const StepRows& rows = *analysis.run().twin.step(analysis.side(), analysis.step());
    std::vector<std::array<Sum, kinds_of_waits>> sums(rows.ranks.size());
    for (const IdleTime& idle : analysis.idle_times()) {
        const RowIndex& row = rows.ranks[as_index(idle.ref.rank)];
        const WaitFor what = kind_of(row, idle.ref.cell, first_compute(row));
        Sum& sum = sums[as_index(idle.ref.rank)].at(as_index(static_cast<int>(what)));
        sum.wait += idle.wait;
        for (const WaitPiece& piece : analysis.pieces_of(idle.ref)) {
            if (part_of(piece.reason) == WaitPart::Link) {
                sum.on_links += piece.end - piece.begin;
            } else if (piece.on_rank() && piece.ref.rank != idle.ref.rank) {
                sum.on_ranks[piece.ref.rank] += piece.end - piece.begin;
            }
        }
    }
    std::vector<RankWaits> all;
    for (const auto& of_rank : sums) {
        RankWaits& waits = all.emplace_back();
        waits.rank = static_cast<int>(all.size()) - 1;
        for (int kind = 0; kind < kinds_of_waits; ++kind) {
            const Sum& sum = of_rank.at(as_index(kind));
            if (sum.wait > Duration{}) {
                waits.wait += sum.wait;
                waits.parts.push_back({.what = static_cast<WaitFor>(kind),
                                       .wait = sum.wait,
                                       .on_links = sum.on_links,
                                       .ranks = named_ranks(sum.on_ranks)});
            }
        }
        std::ranges::stable_sort(waits.parts, std::ranges::greater{}, &RankWait::wait);
    }
    return all;
}

std::string rank_sentence(const RankWaits& waits, Duration step) {
    if (waits.parts.empty()) {
        return fmt::format("Rank {} never waits.", waits.rank);
    }
    std::vector<std::string> parts;
    for (const RankWait& part : waits.parts) {
        parts.push_back(part_text(part));
    }
    const double share = step > Duration{} ? to_seconds(waits.wait) / to_seconds(step) : 0;
    return fmt::format("Rank {} waits {} of {} ({:.0f} %): {}.",
                       waits.rank,
                       short_time(waits.wait),
                       short_time(step),
                       100 * share,
                       fmt::join(parts, "; "));
}

}  // namespace pipetwin::gui

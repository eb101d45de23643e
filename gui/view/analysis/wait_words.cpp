// SPDX-License-Identifier: Apache-2.0
#include "gui/view/analysis/wait_words.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/short_number.h"

namespace pipetwin::gui {

namespace {

constexpr std::size_t most_named = 3;

std::string link_words(const StepAnalysis& analysis, const WaitPiece& piece) {
    if (!piece.shared_link.empty()) {
        return fmt::format("shared link '{}'", piece.shared_link);
    }
    const auto receive = analysis.partner_of(piece.ref);
    return receive ? fmt::format("link from rank {} to rank {}", piece.ref.rank, receive->rank)
                   : "link";
}

/// With "for" before it: "2B2 on rank 2 (compute)".
std::string for_what(const StepAnalysis& analysis, const WaitPiece& piece) {
    if (part_of(piece.reason) == WaitPart::Link) {
        return piece.reason == sim::Reason::LinkBusy
                   ? fmt::format("other messages on the {}", link_words(analysis, piece))
                   : fmt::format("the {}", link_words(analysis, piece));
    }
    if (piece.reason == sim::Reason::HostCopy) {
        return fmt::format("the copy of the stash of {}{}",
                           to_string(piece.action),
                           piece.shared_link.empty()
                               ? ""
                               : fmt::format(" over the {}", link_words(analysis, piece)));
    }
    return fmt::format(
        "{} on rank {} ({})", to_string(piece.action), piece.ref.rank, how(analysis, piece));
}

/// A reason of a wait: `what` of `ranks` (`how`).
struct Reasoned {
    std::string what;
    std::string how{};      ///< "" where there is nothing more to say
    std::set<int> ranks{};  ///< none where `what` names them
    Duration time{};
};

std::string plural_of(Op op) {
    return uses_gradients(op) && op != Op::ReduceGradient ? "updates of the weights"
                                                          : std::string(op_words(op)) + "s";
}

/// " of rank 2", " of ranks 1 and 3", " of ranks 0 to 6", " of 9 ranks"; "" of none.
std::string of_ranks(const std::set<int>& ranks) {
    constexpr std::size_t most_listed = 3;
    if (ranks.empty()) {
        return "";
    }
    const int first = *ranks.begin();
    const int last = *ranks.rbegin();
    if (ranks.size() == 1) {
        return fmt::format(" of rank {}", first);
    }
    if (ranks.size() <= most_listed) {
        return fmt::format(
            " of ranks {} and {}", fmt::join(ranks.begin(), std::prev(ranks.end()), ", "), last);
    }
    return std::cmp_equal(ranks.size(), last - first + 1)
               ? fmt::format(" of ranks {} to {}", first, last)
               : fmt::format(" of {} ranks", ranks.size());
}

/// With "for" before it: "backwards of ranks 1, 2 and 3 (compute)".
std::string words_of(const Reasoned& reason) {
    return reason.what + of_ranks(reason.ranks) +
           (reason.how.empty() ? "" : fmt::format(" ({})", reason.how));
}

/// By what the causes of a wait are put together: not at all, by kind and rank, or by kind.
enum class Grouping { None, ByKindAndRank, ByKind };

/// The reason that a piece of a wait counts to.
Reasoned reason_of(const StepAnalysis& analysis, const WaitPiece& piece, Grouping grouping) {
    if (part_of(piece.reason) == WaitPart::Link) {
        return {.what = grouping == Grouping::ByKind ? "links" : for_what(analysis, piece)};
    }
    if (grouping == Grouping::None) {
        return {.what = for_what(analysis, piece)};
    }
    if (piece.reason == sim::Reason::HostCopy) {
        return {.what = "copies of stashes", .ranks = {piece.ref.rank}};
    }
    return {
        .what = plural_of(piece.action.op), .how = how(analysis, piece), .ranks = {piece.ref.rank}};
}

/// Reasons of a wait, each once, the longest first.
std::vector<Reasoned> reasons_of(const StepAnalysis& analysis,
                                 const SpanRef& ref,
                                 Grouping grouping) {
    std::vector<Reasoned> reasons;
    for (const WaitPiece& piece : analysis.pieces_of(ref)) {
        const Reasoned reason = reason_of(analysis, piece, grouping);
        auto found = std::ranges::find_if(reasons, [&](const Reasoned& other) {
            return other.what == reason.what && other.how == reason.how &&
                   (grouping == Grouping::ByKind || other.ranks == reason.ranks);
        });
        if (found == reasons.end()) {
            found = reasons.insert(found, reason);
        }
        found->ranks.insert(reason.ranks.begin(), reason.ranks.end());
        found->time += piece.end - piece.begin;
    }
    std::ranges::stable_sort(reasons, std::ranges::greater{}, &Reasoned::time);
    return reasons;
}

std::string unexplained_words(Duration time) {
    return time > Duration{}
               ? short_time(time) + " unexplained"
               : short_time(-time) + " less than in the replay of the measured durations";
}

Duration rest_after(const std::vector<Reasoned>& reasons, std::size_t named) {
    Duration rest{};
    for (std::size_t i = named; i < reasons.size(); ++i) {
        rest += reasons[i].time;
    }
    return rest;
}

/// Number of reasons to name: so many that the others together are smaller than each of them, and
/// that a single one is not left.
std::size_t named_of(const std::vector<Reasoned>& reasons) {
    std::size_t named = std::min(most_named, reasons.size());
    while (named < reasons.size() && rest_after(reasons, named) >= reasons[named - 1].time) {
        ++named;
    }
    return named + 1 == reasons.size() ? named + 1 : named;
}

/// ": 1.610 ms for ..., 0.230 ms for ..."
std::string reason_words(const StepAnalysis& analysis, const SpanRef& ref) {
    std::vector<Reasoned> reasons = reasons_of(analysis, ref, Grouping::None);
    std::size_t named = named_of(reasons);
    for (const Grouping grouping : {Grouping::ByKindAndRank, Grouping::ByKind}) {
        if (named > most_named + 1) {
            reasons = reasons_of(analysis, ref, grouping);
            named = named_of(reasons);
        }
    }
    std::vector<std::string> parts;
    for (std::size_t i = 0; i < named; ++i) {
        parts.push_back(
            fmt::format("{} for {}", short_time(reasons[i].time), words_of(reasons[i])));
    }
    if (named < reasons.size()) {
        parts.push_back(fmt::format("{} for {} smaller causes together",
                                    short_time(rest_after(reasons, named)),
                                    reasons.size() - named));
    }
    const Duration unexplained = analysis.split_of(ref)[WaitPart::Unexplained];
    if (unexplained != Duration{}) {
        parts.push_back(unexplained_words(unexplained));
    }
    return fmt::format(": {}", fmt::join(parts, ", "));
}

std::string blocker_words(const StepAnalysis& analysis, const SpanRef& ref, const char* form) {
    const auto blocker = analysis.blocker_of(ref);
    const auto span = blocker ? analysis.run().twin.span(*blocker) : std::nullopt;
    return span ? fmt::format(fmt::runtime(form), to_string(span->action), blocker->rank) : "";
}

std::string slack_words(const StepAnalysis& analysis, const SpanRef& ref) {
    const auto slack = analysis.slack_of(ref);
    if (!slack) {
        return "";
    }
    const std::string action = who(analysis, ref);
    const char* const by_prediction =
        analysis.side() == Side::Predicted ? "" : " according to the prediction";
    return *slack == Duration{}
               ? fmt::format(" If {} took longer, so would the step{}.", action, by_prediction)
               : fmt::format(" {} could take {} longer without delaying the step{}.",
                             action,
                             short_time(*slack),
                             by_prediction);
}

}  // namespace

std::vector<int> percents(const std::vector<Duration>& parts, Duration whole) {
    std::vector<int> shares(parts.size());
    if (whole == Duration{}) {
        return shares;
    }
    const Duration sum = std::accumulate(parts.begin(), parts.end(), Duration{});
    auto left = static_cast<int>(std::lround(100 * to_seconds(sum) / to_seconds(whole)));
    for (std::size_t i = 0; i < parts.size(); ++i) {
        shares[i] = static_cast<int>(100 * parts[i] / whole);
        left -= shares[i];
    }
    std::vector<std::size_t> by_rest(parts.size());
    std::iota(by_rest.begin(), by_rest.end(), std::size_t{0});
    std::ranges::stable_sort(
        by_rest, std::ranges::greater(), [&](std::size_t i) { return 100 * parts[i] % whole; });
    for (int i = 0; i < left; ++i) {
        ++shares[by_rest[as_index(i)]];
    }
    return shares;
}

std::string how(const StepAnalysis& analysis, const WaitPiece& piece) {
    switch (piece.reason) {
        case sim::Reason::Compute:
            return "compute";
        case sim::Reason::RowOrder:
            return "rank busy";
        case sim::Reason::Latency:
        case sim::Reason::Transfer:
            return link_words(analysis, piece);
        case sim::Reason::LinkBusy:
            return link_words(analysis, piece) + ", busy";
        case sim::Reason::BackPressure:
            return "no room at the receiver";
        case sim::Reason::Reduction:
            return "gradients";
        case sim::Reason::HostCopy:
            return "copy of the stash";
    }
    PIPETWIN_EXPECT(false, "reason out of range");
}

std::string who(const StepAnalysis& analysis, const SpanRef& ref) {
    if (const auto span = analysis.run().twin.span(ref)) {
        return to_string(span->action);
    }
    return "end of the step";
}

std::string wait_sentence(const StepAnalysis& analysis, const SpanRef& ref) {
    const RowIndex* const row = analysis.run().twin.row(ref);
    const bool at_end = row != nullptr && ref.cell == row->size();
    if (ref.side != analysis.side() || (!at_end && !analysis.run().twin.span(ref))) {
        return "";
    }
    const Duration wait = analysis.wait_of(ref);
    std::string text =
        at_end ? fmt::format("Rank {} had no work left and", ref.rank) : who(analysis, ref);
    if (wait <= Duration{}) {
        text += " did not wait";
        text += blocker_words(analysis, ref, ": it followed {} on rank {}") + ".";
    } else {
        text += " waited " + short_time(wait);
        text += analysis.has_causes() ? reason_words(analysis, ref)
                                      : blocker_words(analysis, ref, ", last for {} on rank {}");
        text += ".";
    }
    return text + slack_words(analysis, ref);
}

namespace {

/// " Most idle: rank 2 (46.9 ms), rank 3 (31.0 ms)." Of ranks that do not all wait alike.
std::string idlest_words(const StepAnalysis& analysis, int ranks) {
    struct Rank {
        int rank = 0;
        Duration wait{};
    };
    std::vector<Rank> waits;
    for (int rank = 0; rank < ranks; ++rank) {
        waits.push_back({.rank = rank});
    }
    for (const IdleTime& idle : analysis.idle_times()) {
        waits[as_index(idle.ref.rank)].wait += idle.wait;
    }
    std::ranges::stable_sort(waits, std::ranges::greater{}, &Rank::wait);
    constexpr double much_more = 1.2;
    const Duration mean = analysis.idle().wait / std::max(1, ranks);
    std::vector<std::string> named;
    for (const Rank& rank : waits) {
        if (to_seconds(rank.wait) > much_more * to_seconds(mean) && named.size() < most_named) {
            named.push_back(fmt::format("rank {} ({})", rank.rank, short_time(rank.wait)));
        }
    }
    return named.empty() ? "" : fmt::format(" Most idle: {}.", fmt::join(named, ", "));
}

/// " Most waited for: rank 1 (81 %)." Where one rank holds the others up.
std::string most_waited_for_words(const StepAnalysis& analysis) {
    constexpr double much_more = 1.5;
    const std::vector<Duration>& times = analysis.waited_for();
    const Duration whole = analysis.idle().wait;
    const auto most = std::ranges::max_element(times);
    if (most == times.end() || whole <= Duration{} ||
        to_seconds(*most) * static_cast<double>(times.size()) <= much_more * to_seconds(whole)) {
        return "";
    }
    return fmt::format(" Most waited for: rank {} ({:.0f}\u00a0%).",
                       most - times.begin(),
                       100 * to_seconds(*most) / to_seconds(whole));
}

/// After "all of it": "for messages on their links".
std::string_view all_words(WaitPart part) {
    switch (part) {
        case WaitPart::Compute:
            return "for results of other ranks";
        case WaitPart::RankBusy:
            return "for ranks that were busy with other actions";
        case WaitPart::Link:
            return "for messages on their links";
        case WaitPart::Room:
            return "for room for messages or stashes";
        case WaitPart::Gradients:
            return "for sums of gradients";
        case WaitPart::Unexplained:
            return "unexplained";
    }
    PIPETWIN_EXPECT(false, "part of a wait out of range");
}

/// ". Causes: compute 61 %, link 39 %.": shares of the wait.
std::string cause_words(const WaitSplit& idle) {
    const std::vector<int> shares = percents({idle.parts.begin(), idle.parts.end()}, idle.wait);
    std::vector<std::string> parts;
    for (std::size_t number = 0; number < shares.size(); ++number) {
        const auto part = static_cast<WaitPart>(number);
        if (shares[number] == 100) {
            return fmt::format(", all of it {}.", all_words(part));
        }
        if (shares[number] != 0) {
            parts.push_back(fmt::format("{} {} %", words(part), shares[number]));
        }
    }
    return fmt::format(". Causes: {}.", fmt::join(parts, ", "));
}

}  // namespace

std::string idle_sentence(const StepAnalysis& analysis) {
    const WaitSplit& idle = analysis.idle();
    const auto ranks = static_cast<int>(analysis.run().twin.rank_count());
    const bool several = analysis.side() == Side::Measured && analysis.run().measured &&
                         analysis.run().measured->steps > 1;
    const std::string side = side_name(analysis.run(), analysis.side());
    const std::string step =
        several ? fmt::format("{} step {}", side, analysis.run().step_number(analysis.step()))
                : fmt::format("this {} step", side);
    if (idle.wait <= Duration{}) {
        return fmt::format("In {} of {} no rank waited.", step, short_time(analysis.length()));
    }
    return fmt::format("In {} each rank waited on average {} of {}{}{}{}",
                       step,
                       short_time(idle.wait / std::max(1, ranks)),
                       short_time(analysis.length()),
                       analysis.has_causes() ? cause_words(idle) : ".",
                       most_waited_for_words(analysis),
                       idlest_words(analysis, ranks));
}

}  // namespace pipetwin::gui

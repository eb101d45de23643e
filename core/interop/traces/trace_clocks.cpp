// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/trace_clocks.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"

namespace pipetwin {

namespace {

/// By how much the clock of the higher rank has to be moved, as its messages say.
struct ClockBounds {
    std::vector<Duration> least;  ///< of messages to the higher rank
    std::vector<Duration> most;   ///< of messages from it
};

/// The largest of the values (negated: the smallest), without the extreme two percent.
std::optional<Duration> largest_but_few(std::vector<Duration> values) {
    if (values.empty()) {
        return std::nullopt;
    }
    std::ranges::sort(values);
    return values[values.size() - 1 - values.size() / 50];
}

/// The move of the higher rank's clock against the lower one's.
Duration move_of(const ClockBounds& bounds) {
    const std::optional<Duration> least = largest_but_few(bounds.least);
    std::vector<Duration> negated;
    for (const Duration most : bounds.most) {
        negated.push_back(-most);
    }
    std::optional<Duration> most = largest_but_few(negated);
    if (most) {
        most = -*most;
    }
    const bool fits = (!least || *least <= Duration{}) && (!most || *most >= Duration{});
    if (fits) {
        return Duration{};
    }
    return least && most ? (*least + *most) / 2 : least ? *least : *most;
}

}  // namespace

ClockOffsets clock_offsets(int ranks, const std::vector<SentMessage>& messages) {
    std::map<std::pair<int, int>, ClockBounds> pairs;
    for (const SentMessage& message : messages) {
        const Duration early = message.departure - message.arrival;
        if (message.from < message.to) {
            pairs[{message.from, message.to}].least.push_back(early);
        } else if (message.to < message.from) {
            pairs[{message.to, message.from}].most.push_back(-early);
        }
    }
    std::map<int, std::map<int, Duration>> moves;  // [rank][neighbour]: against the rank's clock
    for (const auto& [pair, bounds] : pairs) {
        const Duration move = move_of(bounds);
        moves[pair.first][pair.second] = move;
        moves[pair.second][pair.first] = -move;
    }
    ClockOffsets offsets{.add = std::vector<Duration>(as_index(ranks)), .notes = {}};
    std::vector<bool> known(as_index(ranks), false);
    for (int first = 0; first < ranks; ++first) {
        if (known[as_index(first)]) {
            continue;
        }
        std::vector<int> reached{first};
        for (std::size_t i = 0; i < reached.size(); ++i) {
            const int rank = reached[i];
            known[as_index(rank)] = true;
            for (const auto& [neighbour, move] : moves[rank]) {
                if (!known[as_index(neighbour)]) {
                    known[as_index(neighbour)] = true;
                    offsets.add[as_index(neighbour)] = offsets.add[as_index(rank)] + move;
                    reached.push_back(neighbour);
                }
            }
        }
    }
    for (int rank = 0; rank < ranks; ++rank) {
        const Duration add = offsets.add[as_index(rank)];
        if (add != Duration{}) {
            offsets.notes.push_back(fmt::format(
                "rank {}: its clock was {} {} that of the first rank, as messages arrived before "
                "they had left; its times are moved",
                rank,
                format_duration(add < Duration{} ? -add : add),
                add < Duration{} ? "ahead of" : "behind"));
        }
    }
    return offsets;
}

}  // namespace pipetwin

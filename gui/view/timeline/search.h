// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gui/view/run/twin.h"

namespace pipetwin::gui {

/// Query of a search for actions. Every part that is there has to fit.
///
///     1B2        the backward of micro-batch 2 on stage 1
///     B2, 1B, B  the same on any stage, of any micro-batch, or both
///     rank 0     on that rank; "stage 3" and "mb 5" likewise
///     SEND_F2>3  the send of micro-batch 2 to stage 3; RECV_F<0: the receives from stage 0
///     opt        in any case of letters; words are those of traces: F B I W R SEND_F RECV_B OPT
///     ...
struct SearchQuery {
    std::optional<Op> op{};
    std::optional<int> stage{};
    std::optional<int> micro_batch{};
    std::optional<int> rank{};
    std::optional<int> peer{};  ///< stage at the other end of a message

    /// True if an action of a rank fits the query.
    bool matches(const Action& action, int of_rank) const;
    bool operator==(const SearchQuery&) const = default;
};

/// Reads a query; none for what is no query, and for the empty text.
std::optional<SearchQuery> parse_query(std::string_view text);

/// All actions of a step's side that match, rank by rank. O(actions).
std::vector<SpanRef> find_spans(const Twin& twin, Side side, int step, const SearchQuery& query);

/// The found action after (+1) or before (-1) `from` in time and then rank, round the end of the
/// step. None where nothing was found.
std::optional<SpanRef> next_found(const Twin& twin,
                                  const std::vector<SpanRef>& found,
                                  const std::optional<SpanRef>& from,
                                  int direction);

}  // namespace pipetwin::gui

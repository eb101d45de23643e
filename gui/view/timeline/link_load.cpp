// SPDX-License-Identifier: Apache-2.0
#include "gui/view/timeline/link_load.h"

#include <algorithm>
#include <cstddef>

#include "core/base/as_index.h"

namespace pipetwin::gui {

namespace {

/// Messages of a link follow each other: none begins before the one before has passed.
void add_messages(const std::vector<Span>& messages,
                  const ViewTransform& view,
                  std::vector<double>& shares) {
    const auto width = static_cast<double>(shares.size());
    const Duration left = view.origin;
    const auto first =
        std::ranges::partition_point(messages, [&](const Span& span) { return span.end <= left; });
    for (auto message = first; message != messages.end(); ++message) {
        const double begin = std::max(0.0, view.x_of(message->ready));
        const double end = std::min(width, view.x_of(message->end));
        if (begin >= width) {
            return;
        }
        for (auto x = static_cast<std::size_t>(begin);
             x < shares.size() && static_cast<double>(x) < end;
             ++x) {
            const auto pixel = static_cast<double>(x);
            shares[x] += std::min(end, pixel + 1) - std::max(begin, pixel);
        }
    }
}

void limit(std::vector<double>& shares) {
    for (double& share : shares) {
        share = std::min(1.0, share);
    }
}

}  // namespace

std::vector<int> ranks_of_stages(const StepRows& rows) {
    if (rows.links.empty()) {
        return {};
    }
    std::vector<int> ranks(rows.links.size() / 2 + 1, -1);
    std::size_t missing = ranks.size();
    // Round by round, as a row of few stages would have to be read to its end.
    bool any = true;
    for (int cell = 0; any && missing > 0; ++cell) {
        any = false;
        for (std::size_t rank = 0; rank < rows.ranks.size(); ++rank) {
            if (cell >= rows.ranks[rank].size()) {
                continue;
            }
            any = true;
            const std::size_t stage = as_index(rows.ranks[rank].action(cell).stage);
            if (stage < ranks.size() && ranks[stage] < 0) {
                ranks[stage] = static_cast<int>(rank);
                --missing;
            }
        }
    }
    return ranks;
}

LinkLoad link_load(const StepRows& rows, int rank, const ViewTransform& view, int width) {
    const std::size_t pixels = as_index(std::max(0, width));
    LinkLoad load{.forward = std::vector<double>(pixels), .backward = std::vector<double>(pixels)};
    const std::vector<int> ranks = ranks_of_stages(rows);
    for (std::size_t edge = 0; edge < rows.links.size(); ++edge) {
        const std::vector<Span>& messages = rows.links[edge];
        if (!messages.empty() && ranks[as_index(messages.front().action.stage)] == rank) {
            const bool forward = messages.front().action.op == Op::SendForward;
            add_messages(messages, view, forward ? load.forward : load.backward);
        }
    }
    limit(load.forward);
    limit(load.backward);
    return load;
}

}  // namespace pipetwin::gui

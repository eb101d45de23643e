// SPDX-License-Identifier: Apache-2.0
#include "gui/view/timeline/search.h"

#include <algorithm>
#include <charconv>
#include <tuple>

#include "core/base/ascii.h"

namespace pipetwin::gui {

namespace {

std::string upper(std::string_view text) {
    std::string result(text);
    std::ranges::transform(result, result.begin(), ascii::upper);
    return result;
}

std::vector<std::string> words_of(std::string_view text) {
    std::vector<std::string> words;
    std::string word;
    for (const char c : std::string(text) + ' ') {
        if (!ascii::is_blank(c)) {
            word += c;
        } else if (!word.empty()) {
            words.push_back(upper(std::exchange(word, {})));
        }
    }
    return words;
}

std::optional<int> number(std::string_view text) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    return whole && value >= 0 ? std::optional(value) : std::nullopt;
}

std::optional<Op> op_called(std::string_view word) {
    for (int op = 0; op < op_count; ++op) {
        if (op_text(static_cast<Op>(op)) == word) {
            return static_cast<Op>(op);
        }
    }
    return std::nullopt;
}

/// Takes ">3" of a send, or "<0" of a receive, from the end of a word. False where what stands
/// there is no stage.
bool take_peer(std::string_view& word, SearchQuery& query) {
    const std::size_t sign = word.find_first_of("<>");
    if (sign == std::string_view::npos) {
        return true;
    }
    query.peer = number(word.substr(sign + 1));
    word = word.substr(0, sign);
    return query.peer.has_value();
}

/// "1B2", "0SEND_F2>3" and their parts.
bool take_action(std::string_view word, SearchQuery& query) {
    const bool to_peer = word.find('>') != std::string_view::npos;
    if (!take_peer(word, query)) {
        return false;
    }
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    const auto first = std::ranges::find_if_not(word, is_digit);
    const std::string_view stage(word.begin(), first);
    const auto behind =
        std::find_if_not(word.rbegin(), std::make_reverse_iterator(first), is_digit).base();
    const std::string_view micro_batch(behind, word.end());
    const std::optional<Op> op = op_called(std::string_view(first, behind));
    if (!op || (query.peer && (to_peer ? !is_send(*op) : !is_receive(*op)))) {
        return false;
    }
    query.op = op;
    if (!stage.empty()) {
        query.stage = number(stage);
    }
    if (!micro_batch.empty()) {
        query.micro_batch = number(micro_batch);
    }
    return (stage.empty() || query.stage) && (micro_batch.empty() || query.micro_batch);
}

}  // namespace

bool SearchQuery::matches(const Action& action, int of_rank) const {
    return (!op || *op == action.op) && (!stage || *stage == action.stage) &&
           (!micro_batch || (has_micro_batch(action.op) && *micro_batch == action.micro_batch)) &&
           (!rank || *rank == of_rank) &&
           (!peer || (is_message(action.op) && *peer == peer_stage(action)));
}

std::optional<SearchQuery> parse_query(std::string_view text) {
    SearchQuery query;
    const std::vector<std::string> words = words_of(text);
    for (std::size_t i = 0; i < words.size(); ++i) {
        std::optional<int>* const place = words[i] == "RANK"    ? &query.rank
                                          : words[i] == "STAGE" ? &query.stage
                                          : words[i] == "MB"    ? &query.micro_batch
                                                                : nullptr;
        if (place == nullptr) {
            if (!take_action(words[i], query)) {
                return std::nullopt;
            }
            continue;
        }
        *place = ++i < words.size() ? number(words[i]) : std::nullopt;
        if (!*place) {
            return std::nullopt;
        }
    }
    return words.empty() ? std::nullopt : std::optional(query);
}

std::vector<SpanRef> find_spans(const Twin& twin, Side side, int step, const SearchQuery& query) {
    std::vector<SpanRef> found;
    for (int rank = 0; rank < twin.rank_count(); ++rank) {
        const RowIndex* const row = twin.row(side, step, rank);
        if (row == nullptr || (query.rank && *query.rank != rank)) {
            continue;
        }
        for (int cell = 0; cell < row->size(); ++cell) {
            if (query.matches(row->action(cell), rank)) {
                found.push_back({.side = side, .step = step, .rank = rank, .cell = cell});
            }
        }
    }
    return found;
}

std::optional<SpanRef> next_found(const Twin& twin,
                                  const std::vector<SpanRef>& found,
                                  const std::optional<SpanRef>& from,
                                  int direction) {
    if (found.empty()) {
        return std::nullopt;
    }
    std::vector<SpanRef> in_time = found;
    const auto key = [&](const SpanRef& ref) {
        return std::tuple(twin.row(ref)->begin(ref.cell), ref.rank, ref.cell);
    };
    std::ranges::sort(in_time, {}, key);
    if (!from || !twin.span(*from)) {
        return direction > 0 ? in_time.front() : in_time.back();
    }
    if (direction > 0) {
        const auto after = std::ranges::upper_bound(in_time, key(*from), {}, key);
        return after == in_time.end() ? in_time.front() : *after;
    }
    const auto before = std::ranges::lower_bound(in_time, key(*from), {}, key);
    return before == in_time.begin() ? in_time.back() : *std::prev(before);
}

}  // namespace pipetwin::gui

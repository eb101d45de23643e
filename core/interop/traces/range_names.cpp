// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/range_names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"

namespace pipetwin {

namespace {

using std::string_view;

constexpr string_view range_prefix = "PP:";
/// Largest number of a stage or micro-batch in a name, as a schedule file may have at most.
constexpr int largest_number = 262'143;

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/// A number of digits alone; none if it is too large.
std::optional<int> number_of(string_view digits) {
    int value = 0;
    const char* const end = digits.data() + digits.size();
    const auto [rest, status] = std::from_chars(digits.data(), end, value);
    const bool whole = !digits.empty() && std::ranges::all_of(digits, is_digit);
    return whole && status == std::errc{} && rest == end && value <= largest_number
               ? std::optional(value)
               : std::nullopt;
}

/// The word of an action ("F", "SEND_F", "BW"); none if there is no such word.
std::optional<NamedAction> action_of(string_view word) {
    if (word == "BW") {
        return NamedAction{.op = Op::Backward, .is_whole_backward = true};
    }
    for (int i = 0; i < op_count; ++i) {
        if (op_text(static_cast<Op>(i)) == word) {
            return NamedAction{.op = static_cast<Op>(i)};
        }
    }
    return std::nullopt;
}

/// "2F0" and "(0F1;0B0)OVERLAP_F_B"; none for what is no action.
std::optional<NamedAction> torch_action(string_view text) {
    if (text.starts_with('(')) {
        return NamedAction{.is_pair = true};
    }
    const auto* const word_begin = std::ranges::find_if_not(text, is_digit);
    const auto* const word_end = std::find_if(word_begin, text.end(), is_digit);
    std::optional<NamedAction> action = action_of(string_view(word_begin, word_end));
    const std::optional<int> stage = number_of(string_view(text.begin(), word_begin));
    if (!action || !stage) {
        return std::nullopt;
    }
    action->stage = stage;
    if (word_end != text.end()) {
        action->micro_batch = number_of(string_view(word_end, text.end()));
        if (!action->micro_batch) {
            return std::nullopt;
        }
    }
    return action;
}

/// "Forward 3" and "Backward 3".
std::optional<NamedAction> plain_action(string_view name) {
    constexpr std::array<std::pair<string_view, Op>, 2> words{
        {{"Forward ", Op::Forward}, {"Backward ", Op::Backward}}};
    for (const auto& [word, op] : words) {
        if (name.starts_with(word)) {
            if (const auto micro_batch = number_of(name.substr(word.size()))) {
                return NamedAction{.op = op, .micro_batch = micro_batch, .is_short = true};
            }
        }
    }
    return std::nullopt;
}

}  // namespace

RangeNames::RangeNames(std::vector<Pattern> patterns) {
    for (const Pattern& pattern : patterns) {
        patterns_.push_back(tokens_of(pattern));
    }
}

RangeNames::Tokens RangeNames::tokens_of(const Pattern& pattern) {
    const auto refuse = [&pattern](std::string what) {
        throw Error(ErrorKind::Usage,
                    "",
                    fmt::format("pattern '{}': {}", pattern.text, what),
                    "a pattern is the name of a range, with * for any text, and {stage} and "
                    "{micro_batch} for numbers: 'stage {stage} forward {micro_batch}'");
    };
    Tokens tokens{.op = pattern.op, .text = pattern.text, .stage = pattern.stage, .pieces = {}};
    string_view rest = pattern.text;
    if (rest.empty()) {
        refuse("it is empty, and so no name of a range");
    }
    while (!rest.empty()) {
        if (rest.front() == '*') {
            tokens.pieces.push_back({.token = Token::Any, .text = {}});
            rest.remove_prefix(1);
        } else if (rest.front() == '{') {
            const string_view field = rest.substr(0, std::min(rest.find('}'), rest.size() - 1) + 1);
            if (field != "{stage}" && field != "{micro_batch}") {
                refuse(fmt::format("'{}' is not a field, expected {{stage}} or {{micro_batch}}",
                                   field));
            }
            tokens.pieces.push_back(
                {.token = field == "{stage}" ? Token::Stage : Token::MicroBatch, .text = {}});
            rest.remove_prefix(field.size());
        } else {
            const string_view text = rest.substr(0, rest.find_first_of("*{"));
            tokens.pieces.push_back({.token = Token::Text, .text = std::string(text)});
            rest.remove_prefix(text.size());
        }
    }
    return tokens;
}

RangeNames::Fit RangeNames::fit_of(const std::vector<Piece>& pieces,
                                   std::size_t piece,
                                   string_view rest,
                                   NamedAction& action) {
    if (piece == pieces.size()) {
        return rest.empty() ? Fit::Yes : Fit::No;
    }
    const Piece& here = pieces[piece];
    if (here.token == Token::Text) {
        return rest.starts_with(here.text)
                   ? fit_of(pieces, piece + 1, rest.substr(here.text.size()), action)
                   : Fit::No;
    }
    if (here.token == Token::Any) {
        if (piece + 1 == pieces.size()) {
            return Fit::Yes;
        }
        // The earliest place at which the pieces up to the next '*' fit leaves the most to that
        // one: if the rest fits nowhere behind it, it fits behind no later place. So the time is
        // that of the name's length times the pattern's, however many '*' there are.
        for (std::size_t skipped = 0; skipped <= rest.size(); ++skipped) {
            const Fit fit = fit_of(pieces, piece + 1, rest.substr(skipped), action);
            if (fit != Fit::No) {
                return fit;
            }
        }
        return Fit::Never;
    }
    const auto digits =
        static_cast<std::size_t>(std::ranges::find_if_not(rest, is_digit) - rest.begin());
    const std::optional<int> number = number_of(rest.substr(0, digits));
    if (!number) {
        return Fit::No;
    }
    const Fit fit = fit_of(pieces, piece + 1, rest.substr(digits), action);
    if (fit == Fit::Yes) {
        (here.token == Token::Stage ? action.stage : action.micro_batch) = number;
    }
    return fit;
}

string_view RangeNames::pattern_of(Op op) const {
    const auto found = std::ranges::find(patterns_, op, &Tokens::op);
    return found == patterns_.end() ? string_view() : string_view(found->text);
}

std::optional<NamedAction> RangeNames::find(string_view name) const {
    for (const Tokens& pattern : patterns_) {
        NamedAction action{.op = pattern.op, .stage = pattern.stage};
        if (name.size() <= 4096 && fit_of(pattern.pieces, 0, name, action) == Fit::Yes) {
            return action;
        }
    }
    if (are_patterns()) {
        return std::nullopt;
    }
    if (!name.starts_with(range_prefix)) {
        return plain_action(name);
    }
    std::optional<NamedAction> action = torch_action(name.substr(range_prefix.size()));
    if (!action) {
        throw Error(ErrorKind::BadInput,
                    "",
                    fmt::format("range '{}', expected PP: and an action", name.substr(0, 60)),
                    "an action is stage, word and micro-batch, as in PP:2F0");
    }
    return action;
}

}  // namespace pipetwin

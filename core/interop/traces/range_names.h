// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/schedule/action.h"

namespace pipetwin {

/// An action as the name of a range says it.
struct NamedAction {
    Op op{};
    std::optional<int> stage{};        ///< none: the only stage of the trace's rank
    std::optional<int> micro_batch{};  ///< none: the name does not say it
    bool is_whole_backward = false;    ///< BW, of PyTorch's older dialect
    bool is_pair = false;              ///< two actions issued together; `op` says nothing then
    bool is_short = false;             ///< "Forward 3", which names no stage
};

/// True for F, B, I and W: the actions whose times are costs of a stage.
constexpr bool is_cost(Op op) {
    return is_compute(op) && op != Op::Recompute;
}

/// The names of ranges that stand for actions: PyTorch's own, or patterns.
class RangeNames {
  public:
    /// One pattern and the action that it stands for. In `text`, `*` is any text, `{stage}` and
    /// `{micro_batch}` are numbers.
    struct Pattern {
        Op op{};
        std::string text;
        std::optional<int> stage{};  ///< of every range of such a name that does not say its own
    };

    /// Names as torch.distributed.pipelining writes them: "PP:2F0" (stage, action, micro-batch),
    /// and "Forward 3", "Backward 3" of its GPipe schedule, which leave the stage out.
    RangeNames() = default;

    /// Names by pattern, and no others. Throws Error(Usage) for a pattern that is empty or has a
    /// field that is not known.
    explicit RangeNames(std::vector<Pattern> patterns);

    /// The action that a name stands for; none where it stands for none. Throws Error(BadInput)
    /// without a place for a name that begins with "PP:" and is no action.
    std::optional<NamedAction> find(std::string_view name) const;

    /// Whether the names are given as patterns.
    bool are_patterns() const { return !patterns_.empty(); }

    /// The pattern of an action as it was given; empty if there is none.
    std::string_view pattern_of(Op op) const;

    /// Makes readers keep the operators of autograd (`TraceEvents::operators`), too.
    void keep_operators() { keeps_operators_ = true; }
    bool keeps_operators() const { return keeps_operators_; }

  private:
    enum class Token { Text, Any, Stage, MicroBatch };
    struct Piece {
        Token token{};
        std::string text;  ///< of Token::Text
    };
    struct Tokens {
        Op op{};
        std::string text;  ///< as it was given
        std::optional<int> stage{};
        std::vector<Piece> pieces;
    };

    static Tokens tokens_of(const Pattern& pattern);
    /// Whether a text fits the pieces of a pattern. Never: it would not, either, if a '*' before
    /// them stood for more.
    enum class Fit { Yes, No, Never };
    static Fit fit_of(const std::vector<Piece>& pieces,
                      std::size_t piece,
                      std::string_view rest,
                      NamedAction& action);

    std::vector<Tokens> patterns_;
    bool keeps_operators_ = false;
};

}  // namespace pipetwin

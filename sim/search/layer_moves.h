// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "core/base/error.h"
#include "sim/search/candidate.h"
#include "sim/search/search_state.h"

namespace pipetwin::sim {

/// What is asked of a candidate whose layers move between its pieces.
struct MovesQuestion {
    Candidate candidate;
    /// Partitions to begin with; an empty one stands for what `partition = "auto"` begins with.
    std::vector<std::vector<int>> starts{};
    std::int64_t actions = 0;  ///< that may be simulated, from each start

    bool operator==(const MovesQuestion&) const = default;
};

/// Moves layers between the pieces of candidates, of several at the same time.
class LayerMoves {
  public:
    /// Keeps a reference.
    explicit LayerMoves(SearchState& state) : state_(state) {}

    /// The partitions that were found from each start, and the actions that were simulated.
    struct Found {
        std::vector<std::vector<int>> partitions{};
        std::int64_t simulated = 0;
    };

    /// Answers questions at the same time, for `take`: of several about a candidate the first.
    void prepare(std::span<const MovesQuestion> questions);
    /// Whether a question about the candidate was answered that was not taken.
    bool is_prepared(const Candidate& candidate) const { return answers_.contains(candidate); }
    /// The answer to a question, whether it was prepared or not. Throws as make_plan where the
    /// candidate is no plan.
    Found take(const MovesQuestion& question);
    /// Drops what was not taken.
    void forget() { answers_.clear(); }

  private:
    struct Answer {
        MovesQuestion question{};
        Found found{};
        std::optional<Error> refusal{};
    };

    Answer answer(const MovesQuestion& question, KnownPartitions& tried) const;

    SearchState& state_;
    std::map<Candidate, Answer> answers_{};
};

}  // namespace pipetwin::sim

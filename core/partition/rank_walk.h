// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/as_index.h"
#include "core/partition/rank_partition.h"

/// The recurrence of `rank_partition`, for one piece to a rank or two.
namespace pipetwin {

/// How the pieces of a chain lie on its ranks.
enum class RankPlacement {
    One,   ///< piece r on rank r
    Loop,  ///< pieces r and p + r on rank r
    V,     ///< pieces r and 2 p - 1 - r on rank r
    Other
};
RankPlacement rank_placement(const RankChain& chain);

/// Whether splits keep a limit, rank by rank. The placement is not `Other`.
class RankWalk {
  public:
    /// Keeps a reference to the chain.
    RankWalk(const RankChain& chain, RankPlacement placement);

    /// Whether the second piece of a rank may be empty: then every split that keeps the limit is
    /// found, and some with empty pieces. Else none is empty, and every rank leaves layers enough
    /// for those to come; a split may be missed that leaves other layers.
    enum class Empty { Second, None };

    /// Whether a split keeps the limit. For a loop `middle` is the first layer of the second
    /// pieces.
    bool keeps(std::int64_t limit, Empty empty, int middle = 0);

    /// The sizes of the pieces of the last `keeps`, which has returned true.
    std::vector<int> sizes() const;

  private:
    struct Room {  ///< what is left of a quantity for the second piece of a rank
        const RankQuantity* quantity;
        const std::vector<std::int64_t>* before;
        std::int64_t left;
    };

    void extend(int rank, int from);
    bool leaves_room(int rank, int from, int to);
    int most_second(int second, int most) const;
    bool allows_second(int second, int next) const;
    bool leaves_little(int rank, int first, int second) const;
    int end_of(int from) const;

    const RankChain& chain_;
    RankPlacement placement_;
    int ranks_;
    int layers_;
    std::int64_t limit_ = 0;
    int least_second_ = 0;  ///< layers of a second piece
    int middle_ = 0;        ///< for a loop
    int last_ = 0;          ///< of the last `keeps`: the layers that the first pieces have together
    std::vector<Room> room_{};
    bool has_alternatives_ = false;
    std::array<bool, 2> fails_{};  ///< [alternative] whether the first piece is too much for it
    std::vector<int> second_;      ///< [rank][a] the most layers of the second pieces; -1: none
    std::vector<int> before_;      ///< [rank][a] the a' that it comes from
};

}  // namespace pipetwin

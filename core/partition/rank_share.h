// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/partition/rank_partition.h"

/// What limits leave for all ranks of a chain together, however many pieces each of them has.
namespace pipetwin {

/// A relaxation of `rank_partition`: a rank may take any layers, in parts, whether they are
/// neighbours or not. By duality of linear programs, for any values v of the layers, and factors x,
/// y >= 0 of a rank such that for each layer i and each piece p of the rank
///
///     v(i) <= x work(i, p) + y memory(i, p)
///
/// the layers of the rank are worth no more than x (limit of its work) + y (limit of its memory);
/// where the work is the same on every piece, less by what the rank would need more layers of a
/// kind for than there are. A split keeps the limits only if all ranks together reach the sum of v.
/// Tried are values between the share of the first quantity and the share of the memory.
class RankShare {
  public:
    /// Keeps a reference to the chain. Its pieces are not empty.
    explicit RankShare(const RankChain& chain);

    /// False where no split has a `largest` up to `limit` and keeps the other limits.
    bool keeps(std::int64_t limit);

    /// About how many steps one call of `keeps` takes.
    double steps() const;

  private:
    /// One quantity of one rank: what each kind of layer has of it, in each of its pieces.
    struct Room {
        std::vector<double> of_kind;  ///< [piece of the rank * kinds + kind]
        std::vector<double> least;    ///< [kind]: on the piece that has least of it
        double limit = 0;             ///< without what the rank has besides
        bool is_asked = false;        ///< the limit is what `keeps` is asked for
    };
    /// The quantities that a rank keeps together.
    struct Alternative {
        std::vector<Room> rooms;
    };
    struct Kind {
        double count = 0;
        std::vector<double> worth;  ///< [values that are tried]
    };

    /// Which factor y of the memory: that which was best last, for another rank or limit; or the
    /// best, which takes longer.
    enum class Factor { Last, Best };

    Room room_of(const RankQuantity& quantity, int rank) const;
    void find_kinds();
    void find_values();
    bool reach(std::int64_t limit, std::size_t values, Factor factor);
    double worth_of(const Alternative& of,
                    std::int64_t limit,
                    std::size_t values,
                    Factor factor,
                    std::vector<double>& last) const;
    double worth_of(const Room& work,
                    const Room* memory,
                    std::int64_t limit,
                    std::size_t values,
                    Factor factor,
                    double& last) const;

    const RankChain& chain_;
    std::vector<std::vector<int>> pieces_of_rank_;
    std::vector<int> first_layer_of_kind_{};
    std::vector<Kind> kinds_{};
    std::vector<std::vector<Alternative>> ranks_{};
    std::size_t first_tried_ = 0;  ///< the values that showed last that a limit is not kept
    /// [values][alternative][work * rooms + memory]: the factor that was best last; -1: not known.
    std::vector<std::vector<std::vector<double>>> last_factors_{};
};

}  // namespace pipetwin

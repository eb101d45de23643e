// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/base/as_index.h"
#include "core/scenario/planner.h"
#include "core/timeline/timeline.h"
#include "sim/explain/causes.h"

/// What the longest chain of one partition's step says of other partitions.
namespace pipetwin::sim {

/// Times of layers on the device of each piece, added up: [piece][i] of the layers before i.
struct PieceTimes {
    std::vector<std::vector<double>> forward{};  ///< nanoseconds, as the next two
    std::vector<std::vector<double>> backward_input{};
    std::vector<std::vector<double>> backward_weight{};
};

/// `kind_of_piece`: the kind of device, an index of the costs.
PieceTimes piece_times(const LayerCosts& costs, std::span<const int> kind_of_piece);

/// Some layers less in one piece, as many more in another; the boundaries between them move along.
struct Move {
    int from = 0;
    int to = 0;
    int layers = 1;  ///< up to `most_moved`
};
constexpr int most_moved = 2;

/// The longest chain of a step: how many actions of each piece are in it, and the time of all else,
/// messages most of all. The step of another partition with the same rows takes about as long as
/// this chain does with that partition's pieces, or longer.
struct StepPath {
    /// Actions of a piece that are in the chain, as numbers of forwards and of both gradients.
    struct Counts {
        double forward = 0;
        double backward_input = 0;
        double backward_weight = 0;
    };
    std::vector<Counts> of_piece{};
    double all_else = 0;  ///< nanoseconds
};

/// The path of a simulated step that takes `step`. `first_layers`: [piece] of its partition, and
/// the number of layers at the end.
StepPath step_path(const Causes& causes,
                   Duration step,
                   const PieceTimes& times,
                   std::span<const int> first_layers);

/// How long the chains of several steps take with the pieces of one partition, and after moves.
class PathLengths {
  public:
    PathLengths(std::span<const StepPath> paths,
                const PieceTimes& times,
                std::span<const int> first_layers);

    /// The longest after a move; as soon as one takes longer than `most`, that one.
    double longest_after(const Move& move, double most) const;

  private:
    struct Path {
        double length = 0;
        std::size_t first_sum = 0;  ///< index of the path's part of `sums_`
    };
    std::size_t pieces_;
    std::vector<Path> paths_{};  ///< the longest first
    /// [path][down by 2, 1; up by 1, 2][k]: what moving each of the first k boundaries adds.
    std::vector<double> sums_{};
};

}  // namespace pipetwin::sim

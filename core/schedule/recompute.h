// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pipetwin {

/// Micro-batches of a stage whose forward is run again before their backward: none, all, or all but
/// the last.
enum class Recompute { None, Always, ExceptLast };
/// Layers that keep less than their backward needs, and compute the rest again within it: no action
/// of the schedule is added.
enum class LayerRecompute {
    None,
    Selective,  ///< core attention: scores, softmax, and the products with them
    Block       ///< every block but its input; embedding and head keep everything
};

/// What layers compute again within their backward.
struct LayerRecomputeRules {
    LayerRecompute mode = LayerRecompute::None;
    int blocks = 1;  ///< Block: of a stage, that are computed again together
    /// Block: what makes nothing that the backward reads is not computed again, at a block's end.
    bool stops_early = false;

    bool operator==(const LayerRecomputeRules&) const = default;
};

/// Time of an R relative to the receive of the gradient that its backward needs.
enum class RecomputeTiming {
    Eager,  ///< R before the gradient is received: it may run while the gradient is still on its
            ///< way
    Lazy,   ///< R after the gradient was received
};

/// The word in scenarios: "none", "always" or "except-last".
std::string_view to_string(Recompute recompute);
/// The word in scenarios: "none", "selective" or "block".
std::string_view to_string(LayerRecompute recompute);
/// The word in scenarios: "eager" or "lazy".
std::string_view to_string(RecomputeTiming timing);

/// Whether the mode recomputes this micro-batch: `ExceptLast` leaves out micro_batches - 1.
bool recomputes(Recompute recompute, int micro_batch, int micro_batches);

/// The mode of every piece of the model: one for all of them, or one for each.
///
/// Modes that are all alike are one for all, however they were given, so equal rules compare equal.
class RecomputeRules {
  public:
    /// One mode for all pieces. Implicit: wherever a rule is wanted, a mode is one.
    // NOLINTNEXTLINE(google-explicit-constructor)
    RecomputeRules(Recompute everywhere = Recompute::None) : of_piece_{everywhere} {}

    /// [piece], in model order; at least one.
    explicit RecomputeRules(std::vector<Recompute> of_piece);

    /// The mode of a piece, which exists.
    Recompute of(int piece) const;

    /// The one mode of all pieces; none where they differ.
    std::optional<Recompute> everywhere() const;

    /// [piece]; one alone where all pieces are alike.
    const std::vector<Recompute>& modes() const { return of_piece_; }

    /// Whether there is a mode for each of that many pieces.
    bool fits(int pieces) const;

    /// Returns the rules as they apply to steps of this many micro-batches: with one alone,
    /// `ExceptLast` becomes `None`.
    RecomputeRules at(int micro_batches) const;

    bool operator==(const RecomputeRules&) const = default;

  private:
    std::vector<Recompute> of_piece_;
};

/// "always", or "always on stages 0-1, none on stage 2" where the pieces differ.
std::string to_string(const RecomputeRules& rules);

}  // namespace pipetwin

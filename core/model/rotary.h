// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pipetwin {

/// Positions that turn queries and keys (RoPE: Su et al., arXiv 2104.09864). Numbers i and i + half
/// of a head of 2 * half numbers are a pair; at position t it is turned by the angle t f_i:
///
///   (a, b) --> (a cos - b sin, b cos + a sin),   f_i = base^(-i / half), scaled for long contexts
///
/// Pairs lie as in Hugging Face's Llama ("rotate_half").
struct Rotary {
    double base = 0;    ///< 0: nothing is turned
    double factor = 1;  ///< slow frequencies are divided by it; 1: none is
    /// Positions of the training before contexts were made longer; 0: all frequencies are divided.
    /// Else those that turn less than `low_frequency` times in so many positions are divided, those
    /// that turn more than `high_frequency` times stay, and between them it changes gradually
    /// (Llama 3.1).
    int context = 0;
    double low_frequency = 1;
    double high_frequency = 4;

    bool is_there() const { return base > 0; }

    bool operator==(const Rotary&) const = default;
};

/// Radians from one position to the next of pair number `pair` in heads of `head_size` numbers.
double rotary_frequency(const Rotary& rotary, int pair, int head_size);

}  // namespace pipetwin

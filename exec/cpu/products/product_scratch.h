// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/as_index.h"
#include "core/base/units.h"

namespace pipetwin::exec {

/// Length of the blocks into which the inner dimension of a product is cut. Bits depend on no other
/// cut.
inline constexpr std::int64_t block_depth = 384;

/// Use of scratch memory: for panels of a and b, for sums of a product that are not rounded yet,
/// for the scores of a head of an attention in bf16, for what windows over an image read, and for
/// sums over windows.
enum class ScratchUse { A, B, C, Scores, Windows, WindowSums };
/// Scratch memory of the calling thread, of at least `bytes`. It grows to the largest request, and
/// is kept until the thread ends.
void* product_scratch(ScratchUse use, std::size_t bytes);
/// All scratch memory that the calling thread has.
Bytes product_scratch_held();

/// Scratch of the calling thread for panels of the left operand: at least `numbers`.
template <class Real>
Real* a_scratch(std::int64_t numbers) {
    return static_cast<Real*>(product_scratch(ScratchUse::A, as_index(numbers) * sizeof(Real)));
}
/// Scratch of the calling thread for panels of the right operand: at least `numbers`.
template <class Real>
Real* b_scratch(std::int64_t numbers) {
    return static_cast<Real*>(product_scratch(ScratchUse::B, as_index(numbers) * sizeof(Real)));
}
/// Scratch of the calling thread for sums of a product that are not rounded yet: at least
/// `numbers`.
template <class Real>
Real* c_scratch(std::int64_t numbers) {
    return static_cast<Real*>(product_scratch(ScratchUse::C, as_index(numbers) * sizeof(Real)));
}
/// Scratch of the calling thread for the scores of a head of an attention in bf16: at least
/// `numbers`.
template <class Real>
Real* score_scratch(std::int64_t numbers) {
    return static_cast<Real*>(
        product_scratch(ScratchUse::Scores, as_index(numbers) * sizeof(Real)));
}

}  // namespace pipetwin::exec

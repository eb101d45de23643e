#pragma once

#include <cstddef>
#include <cstdint>

namespace pipetwin::exec {

/// Into so many numbers the inner dimension of a product is cut: the only cut that its bits know.
inline constexpr std::int64_t block_depth = 384;

/// Room of the calling thread: for panels of a and b, for sums of a product that are not rounded
/// yet, and for the scores of a head of an attention in bf16. It grows to what was needed most, and
/// is kept until the thread ends.
enum class ScratchUse { A, B, C, Scores };
void* product_scratch(ScratchUse use, std::size_t bytes);

template <class Real>
Real* a_scratch(std::int64_t numbers) {
    return static_cast<Real*>(
        product_scratch(ScratchUse::A, static_cast<std::size_t>(numbers) * sizeof(Real)));
}
template <class Real>
Real* b_scratch(std::int64_t numbers) {
    return static_cast<Real*>(
        product_scratch(ScratchUse::B, static_cast<std::size_t>(numbers) * sizeof(Real)));
}
template <class Real>
Real* c_scratch(std::int64_t numbers) {
    return static_cast<Real*>(
        product_scratch(ScratchUse::C, static_cast<std::size_t>(numbers) * sizeof(Real)));
}
template <class Real>
Real* score_scratch(std::int64_t numbers) {
    return static_cast<Real*>(
        product_scratch(ScratchUse::Scores, static_cast<std::size_t>(numbers) * sizeof(Real)));
}

}  // namespace pipetwin::exec

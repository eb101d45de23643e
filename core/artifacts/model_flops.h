// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "core/costs/profile.h"

namespace pipetwin {

struct SettledScenario;

/// Ways to count the operations of a training step, for TFLOP/s and for MFU. All count two for each
/// multiplication of a matrix product with its addition, and three forwards.
enum class FlopsCount {
    /// All pairs of a query and a key, seen or not: Chowdhery et al. 2022 (PaLM), appendix B.
    Palm,
    /// Half of causal core attention: num_floating_point_operations of Megatron-LM's
    /// megatron/training/training.py (core 0.12 and later).
    Megatron,
    /// All pairs of causal attention, and what recompute computes again: Narayanan et al. 2021,
    /// section 5.1.
    Hardware
};

/// That of a utilisation where none is named.
inline constexpr FlopsCount default_flops_count = FlopsCount::Megatron;

inline constexpr std::array flops_counts{
    FlopsCount::Palm, FlopsCount::Megatron, FlopsCount::Hardware};

/// "palm", "megatron" or "hardware".
std::string_view to_string(FlopsCount count);

std::optional<FlopsCount> flops_count_named(std::string_view word);

/// Operations of a step of the scenario for one sample. None: not known, for the reason of
/// `why_unknown`.
std::optional<double> model_flops(FlopsCount count,
                                  const SettledScenario& scenario,
                                  const Profile& profile);

/// Why `model_flops` is not known.
struct UnknownFlops {
    std::string reason;
    std::string known;  ///< the counts that are, "palm or megatron"; empty: none
};
UnknownFlops why_unknown(FlopsCount count, const Profile& profile);

}  // namespace pipetwin

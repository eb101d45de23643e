// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/costs/layer_division.h"
#include "core/interop/megatron_flags.h"

/// How Megatron-LM divides samples and experts among devices, in the words of a scenario.
namespace pipetwin {

/// What of flags a scenario says otherwise, a text for each; empty: nothing.
std::vector<std::string> division_warnings(const MegatronFlags& flags);

/// The lines of a scenario's [pipeline] that divide samples and experts, and number devices.
std::string division_lines(const MegatronFlags& flags);

/// The lines of its [training] on rows of experts.
std::string expert_lines(const MegatronFlags& flags);

/// Devices of a node that share heads, and the ring of them, that
/// --hierarchical-context-parallel-sizes asks for. `in_node`: devices of a node that have parts of
/// one sample.
std::vector<int> hierarchical_sizes(int context, int in_node);

/// Sets what the flags say of `dispatch`.
void set_dispatch(ExpertDispatch dispatch, MegatronFlags& flags);

/// Rows to a multiple of which --moe-router-padding-for-quantization fills up those of an expert
/// (megatron/core/fp8_utils.py), by the number type of the products; 1: none in 16 bits.
int rows_of_padding(std::string_view precision);

}  // namespace pipetwin

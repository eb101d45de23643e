// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

/// Which stack of training software the flags of a run of Megatron speak of.
namespace pipetwin {

struct CoreAttention;
struct MegatronFlags;

/// A stack, and what it was chosen by.
struct FlagsStack {
    std::string name;  ///< empty: none of Megatron's has products of the device in the precision
    std::string why;   ///< for people: "--tp-comm-overlap: messages are beside products in it"
};

/// The newest of Megatron's stacks that has products of the device in that precision, and is as the
/// flags say: with standard attention where the run has it, without messages beside products where
/// Transformer Engine is turned off, with them where --tp-comm-overlap is given. Where there is
/// none, the newest without these conditions.
FlagsStack megatron_stack(const MegatronFlags& flags,
                          const CoreAttention& attention,
                          std::string_view device,
                          std::string_view precision);

/// The number type of products by --fp8-recipe: "fp8", "mxfp8" or "fp8-block".
std::string_view megatron_narrow_type(const MegatronFlags& flags);

}  // namespace pipetwin

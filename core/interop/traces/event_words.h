// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/units.h"

/// Times and names as profilers write them.
namespace pipetwin {

/// Largest number of a rank.
constexpr int largest_traced_rank = 262'143;

/// Microseconds that are written as "123.4567", rounded to nanoseconds; none where the text is no
/// such number, or is beyond `most`.
std::optional<Duration> microseconds_of(std::string_view text, std::int64_t most);

/// "send" or "recv" of "nccl:send 0->1", "c10d::recv_" and the like; empty of other names.
std::string_view message_word(std::string_view name);

/// The ranks of "nccl:send 0->1", which rank 0 wrote, and of "nccl:recv 1<-0", which rank 1 wrote:
/// the sender and the receiver; -1 where the name does not say them.
std::pair<int, int> ends_of_message(std::string_view name);

/// The number in a name behind its first words, as 5 of "ProfilerStep#5" behind "ProfilerStep#";
/// none where the name is another one.
std::optional<int> number_behind(std::string_view name, std::string_view lead);

}  // namespace pipetwin

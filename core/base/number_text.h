#pragma once

#include <cstdint>
#include <string>
#include <string_view>

/// Numbers in sentences of messages, tables and windows.
namespace pipetwin {

/// A number with its noun: "1 rank", "2 ranks", "8 micro-batches".
std::string counted(std::int64_t count, std::string_view word);

/// A share as a percentage with one decimal: "15.8 %".
std::string rounded_percent(double share);

}  // namespace pipetwin

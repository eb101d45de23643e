// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

/// Which of the stacks that come with the program fits a device, a precision and a framework.
namespace pipetwin {

struct Stack;

/// The newest stack of a framework ("megatron") that has products of the device (empty: of any) in
/// that precision, and `fits` (null: any does); of one year the last by name. Empty: there is none.
std::string newest_stack(std::string_view framework,
                         std::string_view device,
                         std::string_view precision = "bf16",
                         bool (*fits)(const Stack& stack) = nullptr);

/// The word for an estimate without a stack, with rates of the device alone.
inline constexpr std::string_view no_stack = "none";

/// The name of the stack that `word` names, or the absolute path of its file; empty for `no_stack`.
std::string stack_named(std::string_view word);

/// The stack to estimate with, as `stack_named` says it: `named`, unless that is `no_stack`; where
/// nothing is named the newest of the framework. Empty: none.
std::string chosen_stack(const std::optional<std::string>& named,
                         std::string_view framework,
                         std::string_view device,
                         std::string_view precision);

/// The other stack that has products of the device in that precision: of those that share a
/// framework with `stack`, else of all, the newest. Empty: there is none.
std::string nearest_stack_with(const Stack& stack,
                               std::string_view device,
                               std::string_view precision);

/// Throws Error(BadInput) at `asked_by` for a stack without products of the device in that
/// precision, naming the nearest that has them.
void expect_products(const Stack& stack,
                     std::string_view device,
                     std::string_view precision,
                     std::string_view asked_by);

}  // namespace pipetwin

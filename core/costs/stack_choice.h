// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

/// Which of the stacks that come with the program fits a device, a precision and a framework.
namespace pipetwin {

struct Stack;

/// The newest stack of a framework ("megatron") that has products of the device in that precision;
/// of one year the last by name. Empty: there is none.
std::string newest_stack(std::string_view framework,
                         std::string_view device,
                         std::string_view precision = "bf16");

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

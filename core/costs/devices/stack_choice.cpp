// SPDX-License-Identifier: Apache-2.0
#include "core/costs/devices/stack_choice.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack.h"

namespace pipetwin {

namespace {

/// The name of the newest stack that `fits`; empty: none does.
template <class Fits>
std::string newest_that(const Fits& fits) {
    std::pair<int, std::string> newest;
    for (const std::string& name : stack_names()) {
        const std::shared_ptr<const Stack> stack = find_stack(name);
        if (fits(*stack)) {
            newest = std::max(newest, std::pair(stack->year, name));
        }
    }
    return newest.second;
}

bool is_of(const Stack& stack, std::string_view framework) {
    return std::ranges::find(stack.frameworks, framework) != stack.frameworks.end();
}

}  // namespace

std::string newest_stack(std::string_view framework,
                         std::string_view device,
                         std::string_view precision,
                         bool (*fits)(const Stack& stack)) {
    return newest_that([&](const Stack& stack) {
        const std::vector<std::string> devices =
            device.empty() ? stack.devices() : std::vector{std::string(device)};
        return is_of(stack, framework) && (fits == nullptr || fits(stack)) &&
               std::ranges::any_of(devices, [&](const std::string& one) {
                   return stack.products_of(one, precision).has_value();
               });
    });
}

std::string stack_named(std::string_view word) {
    if (word == no_stack) {
        return {};
    }
    return is_stack_file(word) ? std::filesystem::absolute(word).lexically_normal().string()
                               : std::string(word);
}

std::string chosen_stack(const std::optional<std::string>& named,
                         std::string_view framework,
                         std::string_view device,
                         std::string_view precision) {
    return named ? stack_named(*named) : newest_stack(framework, device, precision);
}

std::string nearest_stack_with(const Stack& stack,
                               std::string_view device,
                               std::string_view precision) {
    const auto has_products = [&](const Stack& other) {
        return other.name != stack.name && other.products_of(device, precision);
    };
    const std::string related = newest_that([&](const Stack& other) {
        return has_products(other) &&
               std::ranges::any_of(other.frameworks, [&stack](const std::string& framework) {
                   return is_of(stack, framework);
               });
    });
    return related.empty() ? newest_that(has_products) : related;
}

void expect_products(const Stack& stack,
                     std::string_view device,
                     std::string_view precision,
                     std::string_view asked_by) {
    if (stack.products_of(device, precision)) {
        return;
    }
    const std::vector<std::string> precisions = stack.precisions_of(device);
    const std::string nearest = nearest_stack_with(stack, device, precision);
    throw Error(ErrorKind::BadInput,
                std::string(asked_by),
                precisions.empty()
                    ? fmt::format("'{}' says nothing of the device '{}', only of {}",
                                  stack.name,
                                  device,
                                  fmt::join(stack.devices(), ", "))
                    : fmt::format("'{}' says nothing of products in {} on '{}', only in {}",
                                  stack.name,
                                  precision,
                                  device,
                                  fmt::join(precisions, ", ")),
                nearest.empty() ? fmt::format("no stack has products in {} on '{}': choose another "
                                              "precision, or leave the stack out",
                                              precision,
                                              device)
                                : fmt::format("the nearest stack that has them is '{}'", nearest));
}

}  // namespace pipetwin

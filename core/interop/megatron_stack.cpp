// SPDX-License-Identifier: Apache-2.0
#include "core/interop/megatron_stack.h"

#include <fmt/format.h>

#include "core/costs/devices/kernel_kinds.h"
#include "core/costs/devices/number_type.h"
#include "core/costs/devices/stack.h"
#include "core/costs/devices/stack_choice.h"
#include "core/interop/megatron_flags.h"
#include "core/interop/megatron_model.h"

namespace pipetwin {

namespace {

constexpr std::string_view framework = "megatron";

/// What the flags ask of a stack.
struct Condition {
    bool (*holds)(const Stack& stack) = nullptr;  ///< null: nothing
    std::string_view words{};                     ///< "a stack with standard attention"
    std::string why{};                            ///< the flag
};

Condition condition_of(const MegatronFlags& flags, const CoreAttention& attention) {
    if (attention.is_standard) {
        return {.holds =
                    [](const Stack& stack) {
                        return stack.kernels.attention == AttentionKernels::Standard;
                    },
                .words = "standard attention",
                .why = attention.reason};
    }
    if (flags.transformer_kernels == "local") {
        return {.holds = [](const Stack& stack) { return !stack.overlap.tensor.value; },
                .words = "no messages beside products",
                .why = "--transformer-impl local"};
    }
    if (flags.tensor_overlap) {
        return {.holds = [](const Stack& stack) { return stack.overlap.tensor.value; },
                .words = "messages beside products",
                .why = "--tp-comm-overlap"};
    }
    return {};
}

}  // namespace

FlagsStack megatron_stack(const MegatronFlags& flags,
                          const CoreAttention& attention,
                          std::string_view device,
                          std::string_view precision) {
    const std::string newest = newest_stack(framework, device, precision);
    const Condition condition = condition_of(flags, attention);
    if (condition.holds != nullptr && !newest.empty()) {
        const std::string fitting = newest_stack(framework, device, precision, condition.holds);
        return fitting.empty()
                   ? FlagsStack{newest,
                                fmt::format("the newest that knows {}, as none with {} does ({})",
                                            device,
                                            condition.words,
                                            condition.why)}
                   : FlagsStack{fitting,
                                fmt::format("{}: the newest with {} that knows {}",
                                            condition.why,
                                            condition.words,
                                            device)};
    }
    return {newest,
            has_narrow_products(precision)
                ? fmt::format("the newest that knows products in {} on {}", precision, device)
                : fmt::format("the newest that knows {}", device)};
}

std::string_view megatron_narrow_type(const MegatronFlags& flags) {
    const std::string recipe = flags.fp8_recipe.value_or("");
    return recipe == "mxfp8" ? "mxfp8" : recipe == "blockwise" ? "fp8-block" : "fp8";
}

}  // namespace pipetwin

// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/trace_events.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/base/word_list.h"

namespace pipetwin {

namespace {

/// A name in small letters, as far as it can decide.
std::string lower_begin(std::string_view name) {
    return lower_case(name.substr(0, 512));
}

template <std::size_t count>
bool has_any(std::string_view text, const std::array<std::string_view, count>& words) {
    return std::ranges::any_of(
        words, [text](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

}  // namespace

KernelWork kernel_work(std::string_view name, std::string_view collective) {
    constexpr std::array<std::string_view, 10> libraries{"nccl",
                                                         "rccl",
                                                         "msccl",
                                                         "oneccl",
                                                         "xccl",
                                                         "hccl",
                                                         "hcom_",
                                                         "ccl::",
                                                         "nvshmem",
                                                         "userbuffers"};
    constexpr std::array<std::string_view, 10> collectives{"allreduce",
                                                           "all_reduce",
                                                           "allgather",
                                                           "all_gather",
                                                           "reducescatter",
                                                           "reduce_scatter",
                                                           "alltoall",
                                                           "all_to_all",
                                                           "broadcast_kernel_ccl",
                                                           "cross_device_reduce"};
    constexpr std::array<std::string_view, 4> messages{"sendrecv", "send_recv", "pt2pt", "p2p_"};
    const std::string kernel = lower_begin(name);
    const std::string said = lower_begin(collective);
    if (said == "send") {
        return KernelWork::Send;
    }
    if (said == "recv" || said == "receive") {
        return KernelWork::Receive;
    }
    const bool of_messages = has_any(kernel, messages);
    if (!said.empty() && said != "coalesced") {
        return KernelWork::Collective;
    }
    if (of_messages) {
        return KernelWork::PointToPoint;
    }
    if (has_any(kernel, collectives)) {
        return KernelWork::Collective;
    }
    if (!has_any(kernel, libraries)) {
        return said.empty() ? KernelWork::Compute : KernelWork::Communication;
    }
    const bool names_one = has_any(kernel, std::array<std::string_view, 2>{"broadcast", "reduce_"});
    return names_one ? KernelWork::Collective : KernelWork::Communication;
}

bool is_named_backward(std::string_view kernel) {
    constexpr std::array<std::string_view, 6> words{
        "backward", "bwd", "dgrad", "wgrad", "_grad_kernel", "bprop"};
    return has_any(lower_begin(kernel), words);
}

bool is_named_optimizer(std::string_view kernel) {
    constexpr std::array<std::string_view, 6> words{
        "adam", "multi_tensor", "multitensor", "optimizer", "sgd_", "lamb"};
    const std::string name = lower_begin(kernel);
    return has_any(name, words) && name.find("lambda") == std::string::npos;
}

}  // namespace pipetwin

// SPDX-License-Identifier: Apache-2.0
#include "exec/executor/backend.h"

#include <array>
#include <limits>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/model.h"
#include "core/scenario/scenario_words.h"
#include "exec/device/paced_device.h"
#include "exec/executor/executor_options.h"
#include "exec/gpu/cuda_module.h"

namespace pipetwin::exec {

namespace {

constexpr BackendTraits cpu_traits{
    .device = "the CPU",
    .on_cores = true,
    .measured_on = Backend::Cpu,
    .make_device = [](const Plan&, int, const ExecutorOptions&) { return make_cpu_device(); },
};

constexpr BackendTraits paced_traits{
    .device = "a paced device",
    .is_emulated = true,
    .offloads = true,
    .measured_on = Backend::Cpu,
    .make_device = [](const Plan&, int, const ExecutorOptions&) { return make_paced_device(); },
};

constexpr BackendTraits cuda_traits{
    .device = "the GPU",
    .has_memory = true,
    .needs_gpu = true,
    .offloads = true,
    .replays_actions = true,
    .marks_take_time = true,
    .groups_share_process = false,
    .parameter_alignment = 128,  // cuBLASLt's products are chosen for multiples of 256 bytes
    .has_fp64 = false,
    .trains_experts = false,
    .softmax = SoftmaxKept::LogSums,
    .pads_vocabulary = true,
    .measured_on = Backend::Cuda,
    .make_device =
        [](const Plan& plan, int rank, const ExecutorOptions& options) {
            return make_whole_gpu(plan, rank, options.place.gpu);
        },
    .make_devices =
        [](const Plan& plan, const ExecutorOptions& options) {
            return make_gpu_parts(plan, options.gpu_shares, options.gpu_units);
        },
    .require = &require_cuda,
    .check_memory =
        [](const SettledScenario& scenario, const PlanOf& plan_of, const RankOnGpu* own) {
            own != nullptr ? check_gpu_memory(scenario, plan_of, *own)
                           : check_gpu_memory(scenario, plan_of);
        },
};

constexpr std::array all_traits{cpu_traits, paced_traits, cuda_traits};  // in the order of Backend
static_assert(all_traits.size() == words::backends.size(), "every backend has a row");

}  // namespace

const BackendTraits& traits(Backend backend) {
    const std::size_t index = as_index(backend);
    PIPETWIN_EXPECT(index < all_traits.size(), "backend out of range");
    return all_traits.at(index);
}

std::vector<Backend> every_backend() {
    std::vector<Backend> all;
    for (std::size_t i = 0; i < all_traits.size(); ++i) {
        all.push_back(static_cast<Backend>(i));
    }
    return all;
}

std::string backends_where(bool BackendTraits::*trait) {
    std::string text;
    for (const Backend backend : every_backend()) {
        if (traits(backend).*trait) {
            text += fmt::format(
                "{}\"{}\"", text.empty() ? "" : " or ", words::backends.at(as_index(backend)));
        }
    }
    return text;
}

NumberFormat number_format(Precision precision, Backend backend) {
    NumberFormat format;
    switch (precision) {
        case Precision::Fp32:
            format.real = DType::F32;
            break;
        case Precision::Fp64:
            format.real = DType::F64;
            break;
        case Precision::Bf16:
            format.real = DType::BF16;
            break;
    }
    format.softmax = traits(backend).softmax;
    return format;
}

// cuBLASLt's kernels for tensor cores read rows 16 bytes at a time, which are 8 numbers of bf16: a
// row of 50257 begins anywhere. Their tiles are 64 columns wide or a multiple of it.
int vocabulary_padding(int vocabulary) {
    constexpr int tile = 64;
    constexpr int load = 8;
    constexpr int largest = std::numeric_limits<int>::max() - tile;
    const auto up_to = [vocabulary](int multiple) {
        return (multiple - vocabulary % multiple) % multiple;
    };
    if (vocabulary > largest) {
        return 0;
    }
    return up_to(tile) <= vocabulary / 8 ? up_to(tile) : up_to(load);
}

Model model_on(Backend backend, const Model& model, int devices) {
    return traits(backend).pads_vocabulary && devices == 1
               ? model.with_padded_vocabulary(vocabulary_padding)
               : model;
}

}  // namespace pipetwin::exec

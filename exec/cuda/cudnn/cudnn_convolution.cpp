// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/cudnn/cudnn_convolution.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <iterator>
#include <span>
#include <vector>

#include "core/base/as_index.h"
#include "exec/cuda/cudnn/cudnn_convolution_graph.h"
#include "exec/cuda/cudnn/cudnn_plan.h"

namespace pipetwin::cuda {
namespace {

/// 9.0: the first release whose backend has the numerical notes that are asked for here.
constexpr std::size_t least_version_for_convolutions = 90000;

bool are_equal(const CudnnConvolution& a, const CudnnConvolution& b) {
    static_assert(std::has_unique_object_representations_v<Window>, "compared byte by byte");
    return a.real == b.real && a.direction == b.direction && a.adds == b.adds &&
           std::memcmp(&a.window, &b.window, sizeof(Window)) == 0;
}

/// The reason why cuDNN is not asked for a plan; empty: it is.
std::string why_it_cannot_convolve(const CudnnConvolution& convolution, std::size_t version) {
    if (version < least_version_for_convolutions) {
        return "cuDNN " + text_of_cudnn_version(version) + " is older than " +
               text_of_cudnn_version(least_version_for_convolutions);
    }
    const Window& w = convolution.window;
    if (std::min({w.samples, w.in_height, w.in_width, w.out_height, w.out_width}) < 1) {
        return "there is no pixel";
    }
    if (!margins_of(w)) {
        return "cuDNN cuts no edges off";
    }
    return {};
}

}  // namespace

struct CudnnConvolutions::Impl {
    /// A convolution that was asked for, and what came of it.
    struct Known {
        CudnnConvolution convolution;
        std::string why_not;  ///< there is no plan
        std::optional<CudnnGraph> graph;
        std::optional<CudnnPlan> plan;
    };

    const Known& known_of(const CudnnConvolution& convolution, int* number = nullptr);
    Known ask(const CudnnConvolution& convolution);

    CudnnLoaded loaded;
    bool wanted = true;
    std::optional<CudnnHandle> handle;
    cudaStream_t stream_of_handle = nullptr;
    std::deque<Known> known;
};

const CudnnConvolutions::Impl::Known& CudnnConvolutions::Impl::known_of(
    const CudnnConvolution& convolution, int* number) {
    auto found = std::ranges::find_if(
        known, [&](const Known& one) { return are_equal(one.convolution, convolution); });
    if (found == known.end()) {
        known.push_back(ask(convolution));
        found = std::prev(known.end());
    }
    if (number != nullptr) {
        *number = static_cast<int>(found - known.begin());
    }
    return *found;
}

CudnnConvolutions::Impl::Known CudnnConvolutions::Impl::ask(const CudnnConvolution& convolution) {
    Known answer{.convolution = convolution, .why_not = {}, .graph = {}, .plan = {}};
    if (!wanted) {
        answer.why_not = "they were asked for";
        return answer;
    }
    if (loaded.functions == nullptr) {
        answer.why_not = loaded.why_not;
        return answer;
    }
    const CudnnFunctions& cudnn = *loaded.functions;
    answer.why_not = why_it_cannot_convolve(convolution, cudnn.get_version());
    if (!answer.why_not.empty()) {
        return answer;
    }
    try {
        if (!handle) {
            handle.emplace(cudnn);
        }
        answer.graph = convolution_graph(cudnn, handle->get(), convolution);
        const std::vector<cudnnBackendNumericalNote_t> refused = refused_notes(convolution.real);
        answer.plan = choose_plan(cudnn,
                                  {.handle = handle->get()},
                                  answer.graph->graph,
                                  {.workspace_bytes = most_workspace_bytes, .refused = refused});
    } catch (const CudaFailure& failure) {
        answer.why_not = failure.text();
        answer.graph.reset();
    }
    return answer;
}

CudnnConvolutions::CudnnConvolutions(CudnnLoaded loaded, bool wanted)
    : impl_(std::make_unique<Impl>()) {
    impl_->loaded = std::move(loaded);
    impl_->wanted = wanted;
}

CudnnConvolutions::~CudnnConvolutions() = default;

std::optional<CudnnConvolutions::Plan> CudnnConvolutions::plan(
    const CudnnConvolution& convolution) {
    int number = 0;
    const Impl::Known& found = impl_->known_of(convolution, &number);
    if (!found.plan) {
        return std::nullopt;
    }
    return Plan{.number = number, .workspace_bytes = found.plan->workspace_bytes};
}

std::string CudnnConvolutions::describe(const CudnnConvolution& convolution) {
    const Impl::Known& found = impl_->known_of(convolution);
    return found.plan ? "cuDNN " + text_of_cudnn_version(impl_->loaded.functions->get_version())
                      : "own kernels: " + found.why_not;
}

std::string CudnnConvolutions::summary() const {
    const auto without = std::ranges::count_if(
        impl_->known, [](const Impl::Known& one) { return !one.plan.has_value(); });
    const auto all = std::ssize(impl_->known);
    if (without == all) {
        return all == 0 ? "none was asked for" : "own kernels: " + impl_->known.front().why_not;
    }
    std::string text = std::to_string(all - without) + " of " + std::to_string(all) +
                       " run on cuDNN " +
                       text_of_cudnn_version(impl_->loaded.functions->get_version());
    if (without > 0) {
        const auto first = std::ranges::find_if(
            impl_->known, [](const Impl::Known& one) { return !one.plan.has_value(); });
        text += ", the others on own kernels, the first of them since " + first->why_not;
    }
    return text;
}

cudaError_t CudnnConvolutions::run(int number, const Operands& operands, cudaStream_t stream) {
    const CudnnFunctions& cudnn = *impl_->loaded.functions;
    const Impl::Known& call = impl_->known.at(as_index(number));
    if (stream != impl_->stream_of_handle) {
        check_cudnn(cudnn, "cudnnSetStream", cudnn.set_stream(impl_->handle->get(), stream));
        impl_->stream_of_handle = stream;
    }
    using enum ConvolutionTensor;
    const std::array names{static_cast<std::int64_t>(Image),
                           static_cast<std::int64_t>(Filters),
                           static_cast<std::int64_t>(Result)};
    // cuDNN knows which of them it writes.
    const std::array addresses{const_cast<void*>(operands.image),
                               const_cast<void*>(operands.filters),
                               const_cast<void*>(operands.result)};
    CudnnDescriptor pack(cudnn, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const std::int64_t>(names));
    pack.set_pointers(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, addresses);
    pack.set_pointers(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, std::span(&operands.workspace, 1));
    pack.finalize();
    check_cudnn(cudnn,
                "cudnnBackendExecute",
                cudnn.execute(impl_->handle->get(), call.plan->plan.get(), pack.get()));
    return cudaSuccess;
}

}  // namespace pipetwin::cuda

// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/cudnn/cudnn_attention.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <limits>
#include <tuple>
#include <vector>

#include "core/base/as_index.h"
#include "exec/cuda/cudnn/cudnn_graph.h"
#include "exec/cuda/cudnn/cudnn_plan.h"
#include "exec/cuda/runtime/owned.h"

namespace pipetwin::cuda {
namespace {

/// 9.10.2. NVIDIA's frontend refuses attention on the two releases before, for wrong results.
constexpr std::size_t least_version = 91002;

/// The last one whose backward is wrong without a mask for what lies beyond the last of positions
/// that are no multiple of 128. Source: the frontend, which adds such a mask up to there.
constexpr std::size_t last_version_without_padding = 91500;

/// A workspace may take 1 / workspaces_in_memory of the device's memory; the backward has 2 bytes
/// in it for each pair of positions. The free memory does not count: what is taken may depend on
/// shape and device alone, or stages would have other bits in another partition.
constexpr std::size_t workspaces_in_memory = 64;

constexpr std::int64_t bf16_bytes = 2;

bool is_backward(AttentionDirection direction) {
    return direction == AttentionDirection::Backward;
}

/// The reason why cuDNN is not asked for a plan; empty: it is.
std::string why_not_asked(const AttentionShape& shape,
                          AttentionDirection direction,
                          int compute_capability,
                          std::size_t version) {
    if (version < least_version) {
        return "cuDNN " + text_of_cudnn_version(version) + " is older than " +
               text_of_cudnn_version(least_version);
    }
    if (shape.samples < 1 || shape.positions < 2 || shape.key_positions() < 2 || shape.heads < 1 ||
        shape.key_value_heads < 1 || shape.heads % shape.key_value_heads != 0 ||
        shape.head_size % 8 != 0) {
        return "cuDNN wants two positions and heads of a multiple of 8";
    }
    if (is_backward(direction) && compute_capability >= 100) {
        return "cuDNN's backward repeats its bits on Ampere to Hopper only";
    }
    if (is_backward(direction) && version <= last_version_without_padding && shape.is_causal() &&
        shape.positions % 128 != 0) {
        return "cuDNN " + text_of_cudnn_version(version) +
               " has no backward for positions that are no multiple of 128";
    }
    return {};
}

/// A number, `count` times on the device.
Owned<std::int32_t*, cudaFree> same_on_device(int count, std::int32_t number) {
    const std::vector<std::int32_t> numbers(as_index(count), number);
    const std::size_t bytes = numbers.size() * sizeof(std::int32_t);
    void* memory = nullptr;
    PIPETWIN_CUDA_CHECK(cudaMalloc(&memory, bytes));
    Owned<std::int32_t*, cudaFree> owned(static_cast<std::int32_t*>(memory));
    PIPETWIN_CUDA_CHECK(cudaMemcpy(memory, numbers.data(), bytes, cudaMemcpyHostToDevice));
    return owned;
}

std::size_t workspace_limit(const CudnnAttention::Options& options) {
    if (options.most_workspace > 0) {
        return options.most_workspace;
    }
    std::size_t left = 0;
    std::size_t total = 0;
    PIPETWIN_CUDA_CHECK(cudaMemGetInfo(&left, &total));
    return total / workspaces_in_memory;
}

int largest_divisor(int of, std::size_t limit) {
    int found = 1;
    for (int divisor = 2; divisor <= of; ++divisor) {
        if (of % divisor == 0 && static_cast<std::size_t>(divisor) <= limit) {
            found = divisor;
        }
    }
    return found;
}

/// What a plan computes at once: the whole problem, or where the workspace of its backward would be
/// beyond the limit as many samples as fit, or of one sample as many heads. Samples and heads do
/// not depend on each other.
AttentionProblem part_within(const AttentionProblem& problem,
                             AttentionDirection direction,
                             std::size_t limit) {
    if (!is_backward(direction)) {
        return problem;
    }
    const AttentionShape& shape = problem.shape;
    const auto whole_tiles = [](int positions) {
        return std::size_t{128} * as_index((positions + 127) / 128);
    };
    const std::size_t keys = whole_tiles(shape.key_positions());
    // 2 bytes for each pair of positions, and for what each head of a group gives to dK and dV.
    const std::size_t of_head = 2 * whole_tiles(shape.positions) * keys +
                                (shape.group() > 1 ? 4 * keys * as_index(shape.head_size) : 0);
    const std::size_t of_group = of_head * as_index(shape.group());
    const std::size_t groups = limit / of_group;
    const int heads = shape.key_value_heads;
    return groups >= as_index(heads)
               ? problem.part(largest_divisor(shape.samples, groups / as_index(heads)), heads)
               : problem.part(1, largest_divisor(heads, groups));
}

}  // namespace

bool AttentionProblem::operator==(const AttentionProblem& other) const {
    const auto all = [](const AttentionProblem& of) {
        const AttentionShape& sizes = of.shape;
        return std::tuple(sizes.samples,
                          sizes.positions,
                          sizes.heads,
                          sizes.key_value_heads,
                          sizes.head_size,
                          sizes.padded_keys,
                          of.whole.samples,
                          of.whole.heads,
                          of.q_stride,
                          of.k_stride,
                          of.dq_stride,
                          of.dk_stride);
    };
    return all(*this) == all(other);
}

struct CudnnAttention::Impl {
    /// An answer, whatever it is.
    struct Known {
        AttentionProblem problem;
        AttentionDirection direction;
        AttentionProblem part;  ///< of it, that one run of the plan computes
        std::string why_not = {};
        std::optional<CudnnGraph> graph = {};
        std::optional<CudnnPlan> plan = {};
        bool was_tried = false;
        /// The positions of each sample of a part, for a plan that asks for the number of queries
        /// of each.
        Owned<std::int32_t*, cudaFree> query_lengths = {};
    };
    struct Operand {
        AttentionTensor name;
        const void* address;
        std::int64_t sample_bytes;  ///< from one sample to the next
        std::int64_t group_bytes;   ///< from one group of heads to the next
    };

    /// Makes operands of the matrices of a problem.
    class Operands {
      public:
        explicit Operands(const AttentionProblem& of) : of_(of) {}
        const AttentionProblem& problem() const { return of_; }

        Operand queries(AttentionTensor name, const void* address, std::int64_t stride) const {
            return rows(name, address, of_.whole.positions * stride, of_.whole.group());
        }
        Operand keys(AttentionTensor name, const void* address, std::int64_t stride) const {
            return rows(name, address, of_.whole.key_positions() * stride, 1);
        }
        Operand context(AttentionTensor name, const void* address) const {
            return queries(name, address, of_.whole.query_width());
        }
        /// An fp32 number for each query of each head.
        Operand numbers(AttentionTensor name, const void* address) const {
            const std::int64_t of_head = std::int64_t{4} * of_.whole.positions;
            return {name, address, of_.whole.heads * of_head, of_.whole.group() * of_head};
        }
        Operand lengths(const std::int32_t* address) const {
            return {AttentionTensor::KeyLengths, address, sizeof *address, 0};
        }

      private:
        Operand rows(AttentionTensor name,
                     const void* address,
                     std::int64_t sample,
                     std::int64_t heads) const {
            return {name, address, bf16_bytes * sample, bf16_bytes * heads * of_.whole.head_size};
        }

        const AttentionProblem& of_;
    };

    int number_of(const AttentionProblem& problem, AttentionDirection direction);
    Known ask(const AttentionProblem& problem, AttentionDirection direction);
    Operands operands_of(int number) const { return Operands(known.at(as_index(number)).problem); }
    void run(int number,
             std::initializer_list<Operand> operands,
             void* workspace,
             cudaStream_t stream);
    /// The first sample and group of heads of a part.
    struct Begin {
        int sample = 0;
        int group = 0;
    };
    void run_part(const Known& call,
                  std::initializer_list<Operand> operands,
                  const Begin& begin,
                  void* workspace) const;

    CudnnLoaded loaded;
    Options options;
    std::optional<CudnnHandle> handle;
    cudaStream_t stream_of_handle = nullptr;
    std::deque<Known> known;
};

int CudnnAttention::Impl::number_of(const AttentionProblem& problem, AttentionDirection direction) {
    const auto found = std::ranges::find_if(known, [&](const Known& one) {
        return one.direction == direction && one.problem == problem;
    });
    if (found != known.end()) {
        return static_cast<int>(found - known.begin());
    }
    known.push_back(ask(problem, direction));
    return static_cast<int>(known.size()) - 1;
}

CudnnAttention::Impl::Known CudnnAttention::Impl::ask(const AttentionProblem& problem,
                                                      AttentionDirection direction) {
    Known answer{.problem = problem, .direction = direction, .part = problem};
    if (!options.wanted) {
        answer.why_not = "they were asked for";
        return answer;
    }
    if (loaded.functions == nullptr) {
        answer.why_not = loaded.why_not;
        return answer;
    }
    const CudnnFunctions& cudnn = *loaded.functions;
    answer.why_not =
        why_not_asked(problem.shape, direction, options.compute_capability, cudnn.get_version());
    if (!answer.why_not.empty()) {
        return answer;
    }
    try {
        if (!handle) {
            handle.emplace(cudnn);
        }
        const std::size_t limit = workspace_limit(options);
        answer.part = part_within(problem, direction, limit);
        answer.graph = attention_graph(cudnn, handle->get(), answer.part, direction);
        answer.plan = choose_plan(
            cudnn, {.handle = handle->get()}, answer.graph->graph, {.workspace_bytes = limit});
        if (!problem.shape.is_causal()) {
            const AttentionShape& part = answer.part.shape;
            answer.query_lengths = same_on_device(part.samples, part.positions);
        }
    } catch (const CudaFailure& failure) {
        answer.why_not = failure.text();
        answer.plan.reset();
        answer.graph.reset();
    }
    return answer;
}

void CudnnAttention::Impl::run(int number,
                               std::initializer_list<Operand> operands,
                               void* workspace,
                               cudaStream_t stream) {
    const CudnnFunctions& cudnn = *loaded.functions;
    const Known& call = known.at(as_index(number));
    if (stream != stream_of_handle) {
        check_cudnn(cudnn, "cudnnSetStream", cudnn.set_stream(handle->get(), stream));
        stream_of_handle = stream;
    }
    const AttentionShape& whole = call.problem.shape;
    const AttentionShape& part = call.part.shape;
    for (int sample = 0; sample < whole.samples; sample += part.samples) {
        for (int group = 0; group < whole.key_value_heads; group += part.key_value_heads) {
            run_part(call, operands, {.sample = sample, .group = group}, workspace);
        }
    }
}

void CudnnAttention::Impl::run_part(const Known& call,
                                    std::initializer_list<Operand> operands,
                                    const Begin& begin,
                                    void* workspace) const {
    const CudnnFunctions& cudnn = *loaded.functions;
    auto scale =
        static_cast<float>(1 / std::sqrt(static_cast<double>(call.problem.shape.head_size)));
    float one = 1;
    float minus_infinity = -std::numeric_limits<float>::infinity();
    std::vector<std::int64_t> names;
    std::vector<void*> addresses;
    const auto add = [&](AttentionTensor name, void* address) {
        names.push_back(static_cast<std::int64_t>(name));
        addresses.push_back(address);
    };
    for (const Operand& operand : operands) {
        if (operand.name != AttentionTensor::KeyLengths || call.query_lengths) {
            const auto* const address = static_cast<const std::byte*>(operand.address) +
                                        begin.sample * operand.sample_bytes +
                                        begin.group * operand.group_bytes;
            add(operand.name, const_cast<std::byte*>(address));  // cuDNN knows which it writes
        }
    }
    if (call.query_lengths) {
        add(AttentionTensor::QueryLengths, call.query_lengths.get());
    }
    add(AttentionTensor::Scale, &scale);
    add(AttentionTensor::MinusInfinity, &minus_infinity);
    if (is_backward(call.direction)) {
        add(AttentionTensor::One, &one);
    }
    CudnnDescriptor pack(cudnn, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const std::int64_t>(names));
    pack.set_pointers(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, addresses);
    pack.set_pointers(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, std::span(&workspace, 1));
    pack.finalize();
    check_cudnn(cudnn,
                "cudnnBackendExecute",
                cudnn.execute(handle->get(), call.plan->plan.get(), pack.get()));
}

CudnnAttention::CudnnAttention(CudnnLoaded loaded, const Options& options)
    : impl_(std::make_unique<Impl>()) {
    impl_->loaded = std::move(loaded);
    impl_->options = options;
}

CudnnAttention::~CudnnAttention() = default;

std::optional<CudnnAttention::Plan> CudnnAttention::plan(const AttentionProblem& problem,
                                                         AttentionDirection direction) {
    const int number = impl_->number_of(problem, direction);
    const auto& found = impl_->known[as_index(number)].plan;
    if (!found) {
        return std::nullopt;
    }
    return Plan{.number = number,
                .workspace_bytes = found->workspace_bytes,
                .was_tried = impl_->known[as_index(number)].was_tried};
}

std::string CudnnAttention::describe(const AttentionProblem& problem,
                                     AttentionDirection direction) {
    const std::size_t number = as_index(impl_->number_of(problem, direction));
    const Impl::Known& found = impl_->known[number];
    return found.plan ? "cuDNN " + text_of_cudnn_version(impl_->loaded.functions->get_version())
                      : "own kernels: " + found.why_not;
}

namespace {

/// The values behind their keys, or the gradients of both.
const void* values_of(const void* keys, const AttentionShape& shape) {
    return static_cast<const std::byte*>(keys) + bf16_bytes * shape.key_width();
}

}  // namespace

template <class Run>
bool CudnnAttention::passes(int number, cudaStream_t stream, const Run& run) {
    Impl::Known& call = impl_->known.at(as_index(number));
    try {
        run();
        PIPETWIN_CUDA_CHECK(cudaStreamSynchronize(stream));
        call.was_tried = true;
    } catch (const CudaFailure& failure) {
        call.why_not = failure.text();
        call.plan.reset();
        call.graph.reset();
    }
    return call.was_tried;
}

bool CudnnAttention::passes(int number, const Forward& operands, cudaStream_t stream) {
    return passes(number, stream, [&] { forward(number, operands, stream); });
}

bool CudnnAttention::passes(int number, const Backward& operands, cudaStream_t stream) {
    return passes(number, stream, [&] { backward(number, operands, stream); });
}

cudaError_t CudnnAttention::forward(int number, const Forward& operands, cudaStream_t stream) {
    using enum AttentionTensor;
    const AttentionInputs& from = operands.inputs;
    const Impl::Operands make = impl_->operands_of(number);
    const AttentionProblem& of = make.problem();
    impl_->run(number,
               {make.queries(Q, from.q, of.q_stride),
                make.keys(K, from.k, of.k_stride),
                make.keys(V, values_of(from.k, of.whole), of.k_stride),
                make.lengths(from.lengths),
                make.context(Context, operands.context),
                make.numbers(LogSums, operands.log_sums)},
               operands.workspace,
               stream);
    return cudaSuccess;
}

cudaError_t CudnnAttention::backward(int number, const Backward& operands, cudaStream_t stream) {
    using enum AttentionTensor;
    const AttentionInputs& from = operands.inputs;
    const AttentionGradients& to = operands.gradients;
    const Impl::Operands make = impl_->operands_of(number);
    const AttentionProblem& of = make.problem();
    impl_->run(number,
               {make.queries(Q, from.q, of.q_stride),
                make.keys(K, from.k, of.k_stride),
                make.keys(V, values_of(from.k, of.whole), of.k_stride),
                make.lengths(from.lengths),
                make.context(Context, operands.context),
                make.numbers(LogSums, operands.log_sums),
                make.context(DContext, operands.dcontext),
                make.queries(DQ, to.dq, of.dq_stride),
                make.keys(DK, to.dk, of.dk_stride),
                make.keys(DV, values_of(to.dk, of.whole), of.dk_stride),
                make.numbers(RowDots, operands.row_dots)},
               operands.workspace,
               stream);
    return cudaSuccess;
}

}  // namespace pipetwin::cuda

// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/kernels/dispatch.h"

// Bound by memory; bytes per element in fp32 (and 2 more in bf16, for the value): Sgd reads 8 and
// writes 4, Momentum and RmsProp read 12 and write 8, Adam and RmsPropMomentum read 16 and write
// 12; an average reads 8 and writes 4.
namespace pipetwin::cuda {
namespace {

constexpr int block_size = 256;
constexpr int pack = 4;  // 16 bytes of fp32

// The sums of squares alone.
struct NoUpdate {
    static constexpr int slots = 0;
};
// A rule that follows the gradient of an L2 term, too.
template <class Rule>
struct Decayed {
    static constexpr int slots = Rule::slots;
    static __device__ __forceinline__ void apply(const UpdateFactors& f,
                                                 float g,
                                                 exec::UpdatedNumber<float>& w) {
        Rule::apply(f, g + f.weight_decay * w.value, w);
    }
};

// Up to `pack` neighbours: at once, or where that is not possible one by one.
struct Access {
    int count;
    bool at_once;

    template <class T>
    __device__ __forceinline__ Pack<T, pack> load(const T* from) const {
        if (at_once) {
            return load_pack<T, pack>(from);
        }
        Pack<T, pack> values{};
        PIPETWIN_UNROLL  // registers have no index
            for (int k = 0; k < pack; ++k) {
            if (k < count) {
                values.at[k] = from[k];
            }
        }
        return values;
    }
    template <class T>
    __device__ __forceinline__ void store(T* to, const Pack<T, pack>& values) const {
        if (at_once) {
            store_pack<T, pack>(to, values);
            return;
        }
        PIPETWIN_UNROLL
        for (int k = 0; k < pack; ++k) {
            if (k < count) {
                to[k] = values.at[k];
            }
        }
    }
};

__device__ __forceinline__ bool is_aligned(const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

// A block per chunk; chunk_squares[chunk] = the sum of the squares of its gradient. Where `Value`
// is not float, the tensor's masters are updated and then rounded.
template <class Rule, class Value>
__global__ void __launch_bounds__(block_size) update_kernel(Updates o) {
    constexpr bool updates = !std::is_same_v<Rule, NoUpdate>;
    constexpr bool has_master = updates && sizeof(Value) < sizeof(float);
    const UpdateChunk chunk = o.chunks[blockIdx.x];
    const UpdateTensor& tensor = o.tensors[chunk.tensor];
    const UpdateFactors factors = updates ? *o.factors : UpdateFactors{};
    const float* const gradient = tensor.gradient;
    float* const first = tensor.first;
    float* const second = tensor.second;
    auto* const rounded = static_cast<Value*>(tensor.value);
    float* const value =
        sizeof(Value) < sizeof(float) ? tensor.master : static_cast<float*>(tensor.value);
    const bool aligned = is_aligned(gradient) && is_aligned(value) && is_aligned(rounded) &&
                         is_aligned(first) && is_aligned(second);
    const std::int64_t begin = chunk.index * update_chunk_size;
    const std::int64_t behind = begin + update_chunk_size;
    const std::int64_t end = behind < tensor.size ? behind : tensor.size;
    const std::int64_t columns = tensor.counted.columns;  // that count; 0: all
    double squares = 0;
    for (std::int64_t i = begin + static_cast<std::int64_t>(threadIdx.x) * pack; i < end;
         i += block_size * pack) {
        const bool full = end - i >= pack;
        const Access access{full ? pack : static_cast<int>(end - i), full && aligned};
        const Pack<float, pack> g = access.load(gradient + i);
        Pack<float, pack> w{};
        if constexpr (updates) {
            w = access.load(value + i);
        }
        Pack<float, pack> m{};
        Pack<float, pack> v{};
        if constexpr (Rule::slots > 0) {
            m = access.load(first + i);
        }
        if constexpr (Rule::slots > 1) {
            v = access.load(second + i);
        }
        PIPETWIN_UNROLL
        for (int k = 0; k < pack; ++k) {
            if (columns == 0 || (tensor.counted.first + i + k) % tensor.counted.of < columns) {
                squares += static_cast<double>(g.at[k]) * static_cast<double>(g.at[k]);
            }
            if constexpr (updates) {
                exec::UpdatedNumber<float> number{w.at[k], m.at[k], v.at[k]};
                Rule::apply(factors, factors.gradient_scale * g.at[k], number);
                w.at[k] = number.value;
                m.at[k] = number.first;
                v.at[k] = number.second;
            }
        }
        if constexpr (updates) {
            access.store(value + i, w);
        }
        if constexpr (Rule::slots > 0) {
            access.store(first + i, m);
        }
        if constexpr (Rule::slots > 1) {
            access.store(second + i, v);
        }
        if constexpr (has_master) {
            Pack<Value, pack> result;
            PIPETWIN_UNROLL
            for (int k = 0; k < pack; ++k) {
                result.at[k] = from_float<Value>(w.at[k]);
            }
            access.store(rounded + i, result);
        }
    }
    squares = block_sum(squares);
    if (threadIdx.x == 0) {
        o.chunk_squares[blockIdx.x] = squares;
    }
}

// A block per tensor.
__global__ void __launch_bounds__(block_size) squares_kernel(Updates o) {
    const UpdateTensor& tensor = o.tensors[blockIdx.x];
    const std::int64_t chunks = (tensor.size + update_chunk_size - 1) / update_chunk_size;
    double sum = 0;
    for (std::int64_t i = threadIdx.x; i < chunks; i += block_size) {
        sum += o.chunk_squares[tensor.first_chunk + i];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0 && tensor.squares != nullptr) {
        *tensor.squares = sum;
    }
}

// A block per chunk.
__global__ void __launch_bounds__(block_size) average_kernel(Updates o) {
    const UpdateChunk chunk = o.chunks[blockIdx.x];
    const UpdateTensor& tensor = o.tensors[chunk.tensor];
    const float take = o.factors->take_first;
    const float* const value =
        tensor.master != nullptr ? tensor.master : static_cast<const float*>(tensor.value);
    float* const mean = tensor.first;
    const bool aligned = is_aligned(value) && is_aligned(mean);
    const std::int64_t begin = chunk.index * update_chunk_size;
    const std::int64_t behind = begin + update_chunk_size;
    const std::int64_t end = behind < tensor.size ? behind : tensor.size;
    for (std::int64_t i = begin + static_cast<std::int64_t>(threadIdx.x) * pack; i < end;
         i += block_size * pack) {
        const bool full = end - i >= pack;
        const Access access{full ? pack : static_cast<int>(end - i), full && aligned};
        const Pack<float, pack> w = access.load(value + i);
        Pack<float, pack> a = access.load(mean + i);
        PIPETWIN_UNROLL
        for (int k = 0; k < pack; ++k) {
            a.at[k] += take * (w.at[k] - a.at[k]);
        }
        access.store(mean + i, a);
    }
}

template <class Rule>
cudaError_t update_by(Real real, const Updates& updates, cudaStream_t stream) {
    if (updates.chunk_count > 0) {
        const cudaError_t error = with_real(real, [=](auto zero) {
            return launch<update_kernel<Rule, decltype(zero)>>(
                static_cast<unsigned>(updates.chunk_count), block_size, 0, stream, updates);
        });
        if (error != cudaSuccess) {
            return error;
        }
    }
    if (updates.tensor_count <= 0) {
        return cudaSuccess;
    }
    return launch<squares_kernel>(
        static_cast<unsigned>(updates.tensor_count), block_size, 0, stream, updates);
}

}  // namespace

std::vector<UpdateChunk> update_chunks(std::vector<UpdateTensor>& tensors) {
    std::vector<UpdateChunk> chunks;
    for (std::size_t t = 0; t < tensors.size(); ++t) {
        tensors[t].first_chunk = static_cast<std::int64_t>(chunks.size());
        const std::int64_t count = ceil_div(tensors[t].size, update_chunk_size);
        for (std::int64_t index = 0; index < count; ++index) {
            chunks.push_back({static_cast<std::int32_t>(t), static_cast<std::int32_t>(index)});
        }
    }
    return chunks;
}

cudaError_t update(Real real,
                   exec::UpdateRule rule,
                   WeightDecay decay,
                   const Updates& updates,
                   cudaStream_t stream) {
    return exec::with_rule(rule, [&](auto formula) {
        using Rule = decltype(formula);
        return decay == WeightDecay::Yes ? update_by<Decayed<Rule>>(real, updates, stream)
                                         : update_by<Rule>(real, updates, stream);
    });
}

cudaError_t sum_squares(const Updates& updates, cudaStream_t stream) {
    return update_by<NoUpdate>(Real::F32, updates, stream);
}

cudaError_t average(const Updates& updates, cudaStream_t stream) {
    if (updates.chunk_count <= 0) {
        return cudaSuccess;
    }
    return launch<average_kernel>(
        static_cast<unsigned>(updates.chunk_count), block_size, 0, stream, updates);
}

}  // namespace pipetwin::cuda

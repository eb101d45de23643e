#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/cpu/bfloat16.h"
#include "exec/device/kernels.h"

/// The CPU's kernels on bare pointers, for T = float, double and BFloat16, of which only memory is
/// made. `n` rows, `width` columns, row-major; what each computes stands in exec/device/kernels.h.
namespace pipetwin::exec {

// elementwise.cpp
template <class T, class Sum>
void add(const T* x, Sum* y, std::size_t size);
/// y[r] = skip[r] + bias; either may be null, not both.
template <class T>
void lay_out(const T* skip, const T* bias, T* y, std::size_t n, std::size_t width);
/// sums += the sum of the rows.
template <class T>
void add_rows(const T* x, Computed<T>* sums, std::size_t n, std::size_t width);
template <class T>
void gelu_forward(const T* x, T* y, std::size_t size);
template <class T>
void gelu_backward(const T* x, const T* dy, T* dx, std::size_t size);

// dropout.cpp
/// One sample, of `size` numbers, with the bits of `key`; y = skip + x scale where it is kept.
/// `skip` may be null.
template <class T>
struct DropoutOperands {
    std::size_t size = 0;
    std::uint64_t key = 0;
    std::uint32_t threshold = 0;
    double scale = 1;
    const T* x = nullptr;
    const T* skip = nullptr;
};
template <class T>
void dropout(const DropoutOperands<T>& o, T* y);

// layer_norm.cpp
template <class T>
struct LayerNormOperands {
    std::size_t n = 0;
    std::size_t width = 0;
    const T* x = nullptr;
    const T* gain = nullptr;
    const T* bias = nullptr;
    const T* dy = nullptr;
    const T* skip = nullptr;
};
template <class T>
void layer_norm_forward(const LayerNormOperands<T>& o, T* y, Computed<T>* statistics);
template <class T>
void layer_norm_backward_input(const LayerNormOperands<T>& o, const Computed<T>* statistics, T* dx);
template <class T>
void layer_norm_backward_weight(const LayerNormOperands<T>& o,
                                const Computed<T>* statistics,
                                Computed<T>* dgain,
                                Computed<T>* dbias);

// attention.cpp
template <class T>
void attention_forward(const AttentionShape& shape, const T* qkv, T* probabilities, T* context);
template <class T>
void attention_backward(const AttentionShape& shape,
                        const T* probabilities,
                        const T* dcontext,
                        T* qkv,
                        std::byte* scratch);

// cross_entropy.cpp
template <class T>
double cross_entropy_forward(const T* x,
                             const std::int32_t* targets,
                             Computed<T>* log_sums,
                             std::size_t n,
                             std::size_t width);
template <class T>
struct CrossEntropyOperands {
    std::size_t n = 0;
    std::size_t width = 0;
    const T* x = nullptr;
    const std::int32_t* targets = nullptr;
    const Computed<T>* log_sums = nullptr;
    double scale = 0;
};
template <class T>
void cross_entropy_backward(const CrossEntropyOperands<T>& o, T* dx);

// updates.cpp
template <class T>
struct UpdateOperands {
    std::size_t size = 0;
    T* value = nullptr;
    const Computed<T>* gradient = nullptr;
    Computed<T>* first = nullptr;
    Computed<T>* second = nullptr;
    Computed<T>* master = nullptr;  ///< where it has another type than the value
    double gradient_scale = 1;
};
template <class T>
double sum_squares(const T* gradient, std::size_t size);
template <class T>
double sgd(const UpdateOperands<T>& p, double rate);
template <class T>
double momentum(const UpdateOperands<T>& p, double rate, double mu);
template <class T>
double rmsprop(const UpdateOperands<T>& p, double rate, double decay, double epsilon);
template <class T>
double adam(const UpdateOperands<T>& p, const AdamFactors& factors);

}  // namespace pipetwin::exec

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/training_sizes.h"

#include <cstddef>
#include <string_view>
#include <vector>

#include "exec/cpu/products/products.h"

namespace pipetwin::bench {

/// The type of CBLAS's sgemm.
using Sgemm = void (*)(
    int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*, int);

/// A product of the step, and what it took. In bf16 its result is bf16, but for gradients of
/// weights, which are fp32.
struct Gemm {
    std::string_view name;
    int m;
    int n;
    int k;
    exec::Transposed a;
    exec::Transposed b;
    int times;
    std::vector<double> own{};     ///< seconds
    std::vector<double> blas{};    ///< seconds
    std::vector<double> onednn{};  ///< seconds
};

/// What a step's products take when they are called bare, and its other passes at the bandwidth of
/// a copy. Measured round by round among the steps, so that all see the same machine.
class Ceiling {
  public:
    /// `real`: the type of activations and weights, fp32 or bf16.
    Ceiling(const Sizes& sizes, long parameters, exec::DType real);

    void measure();
    /// Seconds of processor time.
    double step() const;
    void print() const;

  private:
    static constexpr std::size_t room = std::size_t{1} << 24U;

    double passes() const;
    void measure(Gemm& p);

    Sizes sizes_;
    exec::DType real_;
    double bytes_;
    Sgemm sgemm_;
    std::vector<Gemm> gemms_;
    std::vector<float> a_ = std::vector<float>(room, 0.5F);
    std::vector<float> b_ = std::vector<float>(room, 0.25F);
    std::vector<float> c_ = std::vector<float>(room, 0);
    std::vector<double> attention_;  ///< seconds
    std::vector<double> copy_;       ///< seconds
};

}  // namespace pipetwin::bench

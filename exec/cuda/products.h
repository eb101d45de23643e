#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <cuda_runtime_api.h>

#include "exec/cuda/kernels.h"

namespace pipetwin::cuda {

/// d = a b + c for row-major matrices without gaps, by cuBLASLt. In fp32 without TF32; sums of bf16
/// products are fp32.
struct Product {
    std::int32_t m = 0;  ///< rows of d
    std::int32_t n = 0;  ///< columns of d
    std::int32_t k = 0;
    bool a_transposed = false;  ///< a is (k, m), else (m, k)
    bool b_transposed = false;  ///< b is (n, k), else (k, n)
    Real factors = Real::F32;   ///< of a and b
    Real result = Real::F32;    ///< of c and d
    bool has_bias = false;      ///< a row of `factors`' type is added to every row of d
    bool adds = false;          ///< c is there; it may be d

    bool operator==(const Product&) const = default;
};

/// The products of one device, each with the algorithm that cuBLASLt found for its sizes.
class Products {
  public:
    /// Bytes that an algorithm may work in; NVIDIA recommends so many for Hopper.
    static constexpr std::size_t workspace_bytes = std::size_t{32} << 20U;

    /// `workspace` is device memory of that size; null: algorithms that need none. Algorithms are
    /// chosen for so many multiprocessors, 0: for all that the device has.
    Products(void* workspace, int multiprocessors);
    ~Products();

    /// The number of a product, for `multiply`. Throws CudaFailure where cuBLASLt knows no way.
    int number_of(const Product& product);

    /// `number` from `number_of`; c null where the product does not add, bias null where it has
    /// none. Throws CudaFailure. Returns success: it is called by a CommandList.
    cudaError_t multiply(int number,
                         const void* a,
                         const void* b,
                         const void* c,
                         const void* bias,
                         void* d,
                         cudaStream_t stream);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace pipetwin::cuda

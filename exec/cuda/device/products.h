// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include <cuda_runtime_api.h>

#include "exec/cuda/kernels/kernels.h"

namespace pipetwin::cuda {

/// d = a b, or a b + c, for row-major matrices without gaps, by cuBLASLt. In fp32 without TF32;
/// sums of bf16 products are fp32. Both have one algorithm: the first micro-batch of a step writes
/// a gradient, the others add to it, and what each gives must have the same bits.
struct Product {
    std::int32_t m = 0;  ///< rows of d
    std::int32_t n = 0;  ///< columns of d
    std::int32_t k = 0;
    bool a_transposed = false;  ///< a is (k, m), else (m, k)
    bool b_transposed = false;  ///< b is (n, k), else (k, n)
    Real factors = Real::F32;   ///< of a and b
    Real result = Real::F32;    ///< of c and d
    bool has_bias = false;      ///< a row of `result`'s type is added to every row of d
    /// What is done to the sum s = a b + c and the bias before it is stored, with the tanh form of
    /// GELU and a matrix `aux` of the result's shape and type.
    enum class Epilogue : std::uint8_t {
        None,
        Gelu,         ///< aux = s, d = gelu(s)
        GeluGradient  ///< d = s gelu'(aux)
    };
    Epilogue epilogue = Epilogue::None;

    bool operator==(const Product&) const = default;
};

/// The products of one device, each with the algorithm that cuBLASLt found for its sizes.
///
/// The bits of a result follow from the product, the device and the version of cuBLASLt: algorithms
/// are chosen for the device as a whole, whatever part of it they will run on, and those that
/// divide a sum keep the parts in fp32 and add them in a step of its own.
class Products {
  public:
    /// Bytes of workspace that an algorithm may use; NVIDIA recommends 32 MiB for Hopper.
    static constexpr std::size_t workspace_bytes = std::size_t{32} << 20U;

    /// All operands begin at multiples of it, as blocks of DeviceMemory do: algorithms are chosen
    /// for it.
    static constexpr std::size_t operand_alignment = 256;

    /// `workspace` is device memory of that size; null: algorithms that need none. The current
    /// device has `multiprocessors`.
    Products(void* workspace, int multiprocessors);
    Products(const Products&) = delete;
    Products& operator=(const Products&) = delete;
    ~Products();

    /// The number of a product, for `multiply`. Throws CudaFailure where cuBLASLt knows no way.
    int number_of(const Product& product);

    /// The number of a product with an epilogue; none where cuBLASLt knows no way, which depends on
    /// the product, the device and the version alone.
    std::optional<int> number_if_known(const Product& product);

    /// Addresses on the device. `bias` null where the product has none.
    struct Operands {
        const void* a = nullptr;
        const void* b = nullptr;
        const void* c = nullptr;  ///< may be d; null: nothing is added, and d is not read
        const void* bias = nullptr;
        void* d = nullptr;
        void* aux_out = nullptr;       ///< of Epilogue::Gelu
        const void* aux_in = nullptr;  ///< of Epilogue::GeluGradient
    };
    /// Computes a product; `number` is from `number_of`. Throws CudaFailure. Returns success: it is
    /// called by a CommandList.
    cudaError_t multiply(int number, const Operands& operands, cudaStream_t stream);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace pipetwin::cuda

// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/device/products.h"
#include "exec/cuda/runtime/green_context.h"
#include "exec/cuda/runtime/owned.h"
#include "tests/exec/cuda/kernels/kernel_test.h"

namespace pipetwin::cuda {
namespace gpu_shares_test {

using namespace test;  // NOLINT(google-build-using-namespace): the tests' own words

int multiprocessors_of_device() {
    int count = 0;
    PIPETWIN_CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0));
    return count;
}

/// The result on the device's current part.
Numbers result_of(Product product, cudaStream_t stream) {
    const DeviceArray<std::byte> workspace(Products::workspace_bytes);
    Products products(workspace.data(), multiprocessors_of_device());
    const auto matrix = [](Real real, std::int64_t size, std::uint64_t seed) {
        Operand operand({real}, size);
        operand.repeat(rounded(real, random_numbers(10'007, seed)));
        return operand;
    };
    const Operand a = matrix(product.factors, std::int64_t{product.m} * product.k, 1);
    const Operand b = matrix(product.factors, std::int64_t{product.k} * product.n, 2);
    const Operand d = matrix(product.result, std::int64_t{product.m} * product.n, 3);
    const Products::Operands operands{.a = a.data(),
                                      .b = b.data(),
                                      .c = product.a_transposed ? d.data() : nullptr,
                                      .d = d.data()};
    // What is read and written above was on another stream.
    PIPETWIN_CUDA_CHECK(cudaDeviceSynchronize());
    EXPECT_EQ(products.multiply(products.number_of(product), operands, stream), cudaSuccess);
    PIPETWIN_CUDA_CHECK(cudaStreamSynchronize(stream));
    return d.numbers();
}

TEST(CudaProductsOnShares, HaveTheBitsOfTheWholeDevice) {
    constexpr int rows = 4096;
    for (const Real real : {Real::F32, Real::BF16}) {
        for (const auto& [inputs, outputs] : {std::pair{768, 768}, {768, 2304}, {3072, 768}}) {
            const Product forward{
                .m = rows, .n = outputs, .k = inputs, .factors = real, .result = real};
            const Product weight{.m = inputs,
                                 .n = outputs,
                                 .k = rows,
                                 .a_transposed = true,
                                 .factors = real,
                                 .result = Real::F32};
            for (const Product& product : {forward, weight}) {
                PIPETWIN_CUDA_CHECK(cudaSetDevice(0));
                Numbers whole;
                {
                    const Stream stream = make_stream();
                    whole = result_of(product, stream.get());
                }
                for (const int ranks : {2, 4}) {
                    const auto parts = cut_evenly(0, ranks);
                    parts.back()->enter();
                    EXPECT_EQ(result_of(product, parts.back()->stream()) == whole, true)
                        << "a share of " << parts.back()->multiprocessors() << " multiprocessors, ("
                        << product.m << ", " << product.k << ") by (" << product.k << ", "
                        << product.n << ")";
                    PIPETWIN_CUDA_CHECK(cudaSetDevice(0));
                }
            }
        }
    }
}

}  // namespace gpu_shares_test
}  // namespace pipetwin::cuda

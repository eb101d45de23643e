// SPDX-License-Identifier: Apache-2.0
#include "tests/exec/cuda/module/device_checks.h"

#include <cstddef>
#include <vector>

#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/runtime/check_libraries.h"
#include "exec/cuda/runtime/owned.h"

namespace pipetwin::cuda {
namespace {

/// Whole numbers from 0 to modulus - 1 in a fixed order.
std::vector<float> whole_numbers(std::size_t size, std::size_t modulus) {
    std::vector<float> values(size);
    for (std::size_t i = 0; i < size; ++i) {
        values[i] = static_cast<float>(i * 7 % modulus);
    }
    return values;
}

void expect_equal(const std::vector<float>& found, const std::vector<float>& expected) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
        if (found.at(i) != expected[i]) {
            throw CudaFailure("element " + std::to_string(i) + " of " +
                              std::to_string(expected.size()) + " is " + std::to_string(found[i]) +
                              ", expected " + std::to_string(expected[i]));
        }
    }
}

/// Row-major: a (rows, inner), b (inner, columns), c = a * b (rows, columns).
struct Shape {
    std::size_t rows;
    std::size_t inner;
    std::size_t columns;
};

std::vector<float> product_on_cpu(const Shape& shape,
                                  const std::vector<float>& a,
                                  const std::vector<float>& b) {
    std::vector<float> c(shape.rows * shape.columns);
    for (std::size_t row = 0; row < shape.rows; ++row) {
        for (std::size_t k = 0; k < shape.inner; ++k) {
            for (std::size_t column = 0; column < shape.columns; ++column) {
                c[row * shape.columns + column] +=
                    a[row * shape.inner + k] * b[k * shape.columns + column];
            }
        }
    }
    return c;
}

MatrixLayout row_major(std::size_t rows, std::size_t columns) {
    cublasLtMatrixLayout_t layout = nullptr;
    // cuBLAS counts by columns: a row-major (rows, columns) matrix is its column-major (columns,
    // rows) one.
    PIPETWIN_CUBLAS_CHECK(cublasLtMatrixLayoutCreate(
        &layout, CUDA_R_32F, columns, rows, static_cast<std::int64_t>(columns)));
    return MatrixLayout(layout);
}

/// One algorithm for c = a * b; `layouts` are those of b, a and c (see row_major).
cublasLtMatmulAlgo_t choose_algorithm(const CublasHandle& handle,
                                      const MatmulDesc& operation,
                                      const MatrixLayout& b,
                                      const MatrixLayout& a,
                                      const MatrixLayout& c) {
    cublasLtMatmulPreference_t made = nullptr;
    PIPETWIN_CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&made));
    const MatmulPreference no_workspace(made);
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    PIPETWIN_CUBLAS_CHECK(cublasLtMatmulAlgoGetHeuristic(handle.get(),
                                                         operation.get(),
                                                         b.get(),
                                                         a.get(),
                                                         c.get(),
                                                         c.get(),
                                                         no_workspace.get(),
                                                         1,
                                                         &found,
                                                         &count));
    if (count == 0) {
        throw CudaFailure("cublasLtMatmulAlgoGetHeuristic found no algorithm");
    }
    return found.algo;
}

/// c = a * b on the device, read by cuBLAS as c' = b' * a'.
void multiply(const Shape& shape,
              const DeviceBuffer& a,
              const DeviceBuffer& b,
              const DeviceBuffer& c,
              const Stream& stream) {
    cublasLtHandle_t made_handle = nullptr;
    PIPETWIN_CUBLAS_CHECK(cublasLtCreate(&made_handle));
    const CublasHandle handle(made_handle);
    cublasLtMatmulDesc_t made_operation = nullptr;
    PIPETWIN_CUBLAS_CHECK(
        cublasLtMatmulDescCreate(&made_operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const MatmulDesc operation(made_operation);
    const MatrixLayout layout_a = row_major(shape.rows, shape.inner);
    const MatrixLayout layout_b = row_major(shape.inner, shape.columns);
    const MatrixLayout layout_c = row_major(shape.rows, shape.columns);
    const cublasLtMatmulAlgo_t algorithm =
        choose_algorithm(handle, operation, layout_b, layout_a, layout_c);
    const float one = 1;
    const float zero = 0;
    PIPETWIN_CUBLAS_CHECK(cublasLtMatmul(handle.get(),
                                         operation.get(),
                                         &one,
                                         b.data(),
                                         layout_b.get(),
                                         a.data(),
                                         layout_a.get(),
                                         &zero,
                                         c.data(),
                                         layout_c.get(),
                                         c.data(),
                                         layout_c.get(),
                                         &algorithm,
                                         nullptr,
                                         0,
                                         stream.get()));
    // The handle goes with this scope, and the product must not outlive it.
    PIPETWIN_CUDA_CHECK(cudaStreamSynchronize(stream.get()));
}

OwnedCommunicator make_lonely_communicator() {
    ncclUniqueId id{};
    PIPETWIN_NCCL_CHECK(ncclGetUniqueId(&id));
    ncclComm_t communicator = nullptr;
    PIPETWIN_NCCL_CHECK(ncclCommInitRank(&communicator, 1, id, 0));
    return OwnedCommunicator(communicator);
}

}  // namespace

std::string check_buffer() {
    const std::vector<float> values = whole_numbers(std::size_t{1} << 20U, 4093);
    const Stream stream = make_stream();
    const DeviceBuffer buffer(values, stream);
    expect_equal(buffer.to_host(stream), values);
    return std::to_string(values.size()) + " floats there and back";
}

std::string check_kernel() {
    constexpr std::size_t size = 100'003;  // no multiple of a block
    const std::vector<float> x = whole_numbers(size, 4093);
    std::vector<float> expected = whole_numbers(size, 127);
    const Stream stream = make_stream();
    const DeviceBuffer device_x(x, stream);
    const DeviceBuffer device_y(expected, stream);
    PIPETWIN_CUDA_CHECK(add(Real::F32,
                            static_cast<std::int64_t>(size),
                            device_x.data(),
                            device_y.data(),
                            stream.get()));
    for (std::size_t i = 0; i < size; ++i) {
        expected[i] += x[i];
    }
    expect_equal(device_y.to_host(stream), expected);
    return "y += x over " + std::to_string(size) + " floats";
}

std::string check_product() {
    const Shape shape{.rows = 96, .inner = 160, .columns = 64};
    const std::vector<float> a = whole_numbers(shape.rows * shape.inner, 13);
    const std::vector<float> b = whole_numbers(shape.inner * shape.columns, 11);
    const Stream stream = make_stream();
    const DeviceBuffer device_a(a, stream);
    const DeviceBuffer device_b(b, stream);
    const DeviceBuffer device_c(shape.rows * shape.columns);
    multiply(shape, device_a, device_b, device_c, stream);
    expect_equal(device_c.to_host(stream), product_on_cpu(shape, a, b));
    return "(96, 160) x (160, 64) equals the CPU's product";
}

std::string check_loopback() {
    const std::vector<float> values = whole_numbers(65'536, 4093);
    const Stream stream = make_stream();
    const DeviceBuffer sent(values, stream);
    const DeviceBuffer received(values.size());
    const OwnedCommunicator communicator = make_lonely_communicator();
    PIPETWIN_NCCL_CHECK(ncclGroupStart());
    PIPETWIN_NCCL_CHECK(
        ncclSend(sent.data(), sent.size(), ncclFloat, 0, communicator.get(), stream.get()));
    PIPETWIN_NCCL_CHECK(
        ncclRecv(received.data(), received.size(), ncclFloat, 0, communicator.get(), stream.get()));
    PIPETWIN_NCCL_CHECK(ncclGroupEnd());
    expect_equal(received.to_host(stream), values);
    return std::to_string(values.size()) + " floats from rank 0 to rank 0";
}

}  // namespace pipetwin::cuda

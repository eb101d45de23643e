// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <ostream>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <cuda_bf16.h>
#include <gtest/gtest.h>

#include "exec/cuda/kernels/kernels.h"
#include "exec/device/device.h"
#include "exec/device/kernels.h"
#include "tests/exec/cuda/kernels/device_array.h"

/// What the kernels' tests share. Every kernel runs against the CPU's in fp32 on the same inputs
/// (for bf16: rounded to it), over shapes that fill packs, warps, blocks and slices and that do
/// not, in several orders of threads, at addresses that are multiples of 16 bytes and at others.
/// Outputs hold NaN before.
namespace pipetwin::cuda::test {

using Bf16 = __nv_bfloat16;
using Numbers = std::vector<float>;

inline std::size_t index(std::int64_t n) {
    return static_cast<std::size_t>(n);
}

/// Normally distributed; the same for the same stream.
Numbers random_numbers(std::int64_t count, std::uint64_t stream);
std::vector<std::int32_t> random_ids(std::int64_t count, std::int64_t below, std::uint64_t stream);

/// As numbers of that type are.
Numbers rounded(Real real, Numbers numbers);

Numbers joined(std::initializer_list<Numbers> parts);
/// Parts of so many numbers each, behind one another.
std::vector<Numbers> split(const Numbers& numbers, std::initializer_list<std::int64_t> sizes);

/// How a kernel is called: the type, and by how many elements its operands miss a multiple of 16
/// bytes.
struct Way {
    Real real = Real::F32;
    std::size_t offset = 0;

    double bound() const { return real == Real::F32 ? 1e-5 : 1e-2; }
};
void PrintTo(const Way& way, std::ostream* out);

/// A tensor on the device, of one type or the other.
class Operand {
  public:
    Operand(Way way, const Numbers& numbers);
    /// Holds NaN.
    Operand(Way way, std::int64_t size);

    /// Writes these numbers again and again, up to the end.
    void repeat(const Numbers& numbers);

    void* data() const;
    float* floats() const { return static_cast<float*>(data()); }
    Numbers numbers() const { return numbers(0, size_); }
    Numbers numbers(std::size_t first, std::size_t count) const;

  private:
    using Array = std::variant<DeviceArray<float>, DeviceArray<Bf16>>;
    static Array make(Way way, std::size_t size);

    Way way_;
    std::size_t size_;
    Array array_;
};

/// By the norm, and element by element against itself or the root mean square.
::testing::AssertionResult close(const Numbers& found, const Numbers& expected, double bound);

inline exec::View view(Numbers& numbers, std::int64_t rows, std::int64_t columns) {
    return {numbers.data(), exec::DType::F32, rows, columns};
}
/// Numbers that are not empty have an address; CPU kernels take a view without one as absent.
inline exec::ConstView view(const Numbers& numbers, std::int64_t rows, std::int64_t columns) {
    return {numbers.data(), exec::DType::F32, rows, columns};
}
inline exec::ConstView view(const std::vector<std::int32_t>& ids) {
    return {ids.data(), exec::DType::I32, static_cast<std::int64_t>(ids.size()), 1};
}

inline const exec::Kernels& cpu() {
    return exec::cpu_kernels();
}

struct Shape {
    std::int64_t rows = 0;
    std::int64_t width = 0;

    std::int64_t size() const { return rows * width; }
    std::string text() const;
};

/// Widths on both sides of what a warp and what a block is given.
std::span<const Shape> row_shapes();
/// Several slices of rows, full and not; tiles of columns, full and not.
std::span<const Shape> sum_shapes();

class KernelTest : public ::testing::TestWithParam<Way> {
  protected:
    static Way way() { return GetParam(); }
    static Way floats() { return {Real::F32, way().offset}; }
    static Real real() { return way().real; }
    static Numbers random(std::int64_t count, std::uint64_t stream) {
        return rounded(real(), random_numbers(count, stream));
    }
    /// Calls the kernels in several orders; `call` returns what they have written.
    static Numbers run(const std::function<Numbers()>& call) { return in_every_order(call); }
    static void expect_ok(cudaError_t error) { EXPECT_EQ(error, cudaSuccess); }
};

inline auto every_way() {
    return ::testing::Values(
        Way{Real::F32, 0}, Way{Real::F32, 1}, Way{Real::BF16, 0}, Way{Real::BF16, 1});
}

}  // namespace pipetwin::cuda::test

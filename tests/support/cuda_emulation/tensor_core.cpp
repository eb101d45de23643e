// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstring>

#include "tests/support/cuda_emulation/cuda_bf16.h"
#include "tests/support/cuda_emulation/emulation.h"

namespace pipetwin::cuda::emulation {
namespace {

constexpr unsigned all_lanes = 0xffffffffU;

using Pair = std::array<float, 2>;

Pair pair_of(std::uint32_t bits) {
    return {__uint_as_float(bits << 16U), __uint_as_float(bits & 0xffff0000U)};
}

struct Fragments {
    std::array<std::uint32_t, 4> a;
    std::array<std::uint32_t, 2> b;
};

}  // namespace

// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type". With g = lane / 4, t =
// lane mod 4 and two neighbours per register:
//   a[0] row g,     columns 2t, 2t+1       b[0] rows 2t, 2t+1,     column g
//   a[1] row g + 8, columns 2t, 2t+1       b[1] rows 2t+8, 2t+9,   column g
//   a[2] row g,     columns 2t+8, 2t+9     c[0], c[1] row g,       columns 2t, 2t+1
//   a[3] row g + 8, columns 2t+8, 2t+9     c[2], c[3] row g + 8,   columns 2t, 2t+1
// NOLINTBEGIN(modernize-avoid-c-arrays): the signature of exec/cuda/kernels/attention/mma.h
void multiply_16x8x16(float (&c)[4],
                      const std::uint32_t (&a)[4],
                      const std::uint32_t (&b)[2],
                      Place place) {
    Fragments own{};
    std::memcpy(own.a.data(), a, sizeof own.a);
    std::memcpy(own.b.data(), b, sizeof own.b);
    const Lanes& lanes = collect("mma", all_lanes, &own, sizeof own, place);
    const auto fragments = [&lanes](int lane) {
        Fragments of{};
        std::memcpy(&of, lanes.input(lane), sizeof of);
        return of;
    };
    const int group = lane() / 4;
    const int in_group = lane() % 4;
    for (int element = 0; element < 4; ++element) {
        const int column = 2 * in_group + element % 2;
        double sum = 0;  // of exact products: the hardware's order of adding is not documented
        for (int pair = 0; pair < 8; ++pair) {  // rows 2 * pair and 2 * pair + 1 of b
            const Fragments row = fragments(4 * group + pair % 4);
            const Fragments of_b = fragments(4 * column + pair % 4);
            const int of_a = element / 2 + pair / 4 * 2;
            const Pair x = pair_of(row.a[static_cast<std::size_t>(of_a)]);
            const Pair y = pair_of(of_b.b[static_cast<std::size_t>(pair / 4)]);
            sum += static_cast<double>(x[0]) * static_cast<double>(y[0]) +
                   static_cast<double>(x[1]) * static_cast<double>(y[1]);
        }
        c[element] = static_cast<float>(static_cast<double>(c[element]) + sum);
    }
}
// NOLINTEND(modernize-avoid-c-arrays)

// PTX ISA, ldmatrix: lanes 8i ... 8i+7 name the rows of matrix i; register i of lane l receives
// elements 2 (l mod 4) and the next of row l / 4, or of column l / 4 where transposed.
void load_matrices(
    std::uint32_t* registers, int count, bool transposed, const void* row, Place place) {
    std::array<std::uint16_t, 8> own{};
    if (lane() < 8 * count) {
        expect_aligned(row, 16);
        expect_in_shared(row, sizeof own);
        std::memcpy(own.data(), row, sizeof own);
    }
    const Lanes& lanes = collect("ldmatrix", all_lanes, own.data(), sizeof own, place);
    const auto element = [&lanes](int matrix, int of_row, int of_column) {
        std::array<std::uint16_t, 8> bits{};
        std::memcpy(bits.data(), lanes.input(8 * matrix + of_row), sizeof bits);
        return std::uint32_t{bits[static_cast<std::size_t>(of_column)]};
    };
    const int line = lane() / 4;
    const int first = 2 * (lane() % 4);
    for (int matrix = 0; matrix < count; ++matrix) {
        const std::uint32_t low =
            transposed ? element(matrix, first, line) : element(matrix, line, first);
        const std::uint32_t high =
            transposed ? element(matrix, first + 1, line) : element(matrix, line, first + 1);
        registers[matrix] = low | high << 16U;
    }
}

}  // namespace pipetwin::cuda::emulation

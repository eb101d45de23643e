// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda_emulation/emulation.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exec/base/random.h"
#include "exec/cuda/kernels/attention/mma.h"
#include "exec/cuda/kernels/device_math.h"
#include "exec/cuda/kernels/launch.h"
#include "tests/exec/cuda/kernels/device_array.h"

// The emulation finds the mistakes that it is there for, and its instructions do what CUDA's do.

// NOLINTBEGIN(modernize-avoid-c-arrays, bugprone-implicit-widening-of-multiplication-result): as
// kernels are written
namespace pipetwin::cuda {
namespace emulation_test {

using emulation::Failure;
using emulation::Order;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string failure_of(const std::function<void()>& call) {
    try {
        call();
    } catch (const Failure& failure) {
        return failure.what();
    }
    return "";
}

template <bool with_barrier>
__global__ void reverse_kernel(const float* x, float* y) {
    PIPETWIN_SHARED(values, float[64]);
    values[threadIdx.x] = x[threadIdx.x];
    if constexpr (with_barrier) {
        __syncthreads();
    }
    y[threadIdx.x] = values[63 - threadIdx.x];
}

template <bool with_barrier>
std::vector<float> reverse() {
    std::vector<float> x(64);
    for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = static_cast<float>(i);
    }
    std::vector<float> y(64);
    launch<reverse_kernel<with_barrier>>(1, 64, 0, nullptr, x.data(), y.data());
    return y;
}

TEST(CudaEmulation, BarriersMakeTheOrderOfThreadsInvisible) {
    const std::vector<float> y = test::in_every_order([] { return reverse<true>(); });
    EXPECT_EQ(y.front(), 63);
    EXPECT_EQ(y.back(), 0);
}

TEST(CudaEmulation, WithoutABarrierTheOrderShowsAndSharedMemoryIsNotANumber) {
    emulation::set_order(Order::Ascending);
    const std::vector<float> ascending = reverse<false>();
    emulation::set_order(Order::Descending);
    const std::vector<float> descending = reverse<false>();
    EXPECT_TRUE(std::isnan(ascending.front()));
    EXPECT_EQ(ascending.back(), 0);
    EXPECT_EQ(descending.front(), 63);
    EXPECT_TRUE(std::isnan(descending.back()));
}

// Warp 1 writes its second value while warp 0 has yet to read the first.
template <bool with_barrier>
__global__ void hand_over_twice_kernel(float* y) {
    PIPETWIN_SHARED(value, float);
    for (int round = 0; round < 2; ++round) {
        if (threadIdx.x == 32) {
            value = static_cast<float>(1 + round);
        }
        __syncthreads();
        y[2 * threadIdx.x + static_cast<unsigned>(round)] = value;
        __syncwarp();
        if constexpr (with_barrier) {
            __syncthreads();
        }
    }
}

template <bool with_barrier>
std::vector<float> hand_over_twice(Order order) {
    emulation::set_order(order);
    std::vector<float> y(128);
    launch<hand_over_twice_kernel<with_barrier>>(1, 64, 0, nullptr, y.data());
    return y;
}

TEST(CudaEmulation, AWarpRunsAsFarAheadOfTheOthersAsBarriersLetIt) {
    const std::vector<float> right = hand_over_twice<true>(Order::Ascending);
    EXPECT_EQ(hand_over_twice<true>(Order::Descending), right);
    EXPECT_EQ(hand_over_twice<false>(Order::Ascending), right);
    const std::vector<float> wrong = hand_over_twice<false>(Order::Descending);
    EXPECT_EQ(wrong.front(), 2);
    EXPECT_EQ(right.front(), 1);
}

__global__ void barrier_for_some(unsigned count) {
    if (threadIdx.x < count) {
        __syncthreads();
    }
}

__global__ void barrier_of_two_places() {
    if (threadIdx.x < 32) {  // NOLINT(bugprone-branch-clone): the two lines are what is tested
        __syncthreads();
    } else {
        __syncthreads();
    }
}

TEST(CudaEmulation, ABarrierMustBeReachedByAllThreadsAtOnePlace) {
    launch<barrier_for_some>(1, 64, 0, nullptr, 64U);
    launch<barrier_for_some>(1, 64, 0, nullptr, 0U);
    EXPECT_THAT(
        failure_of([] { launch<barrier_for_some>(dim3(1, 2), dim3(8, 8), 0, nullptr, 7U); }),
        AllOf(HasSubstr("__syncthreads at "),
              HasSubstr("is never reached by all"),
              HasSubstr("thread (7, 0, 0)"),
              HasSubstr("barrier_for_some, block (0, "),
              HasSubstr("has left the kernel")));
    EXPECT_THAT(failure_of([] { launch<barrier_of_two_places>(1, 64, 0, nullptr); }),
                HasSubstr("while other threads wait at"));
}

__global__ void sum_by_half_a_warp(float* y) {
    if (threadIdx.x < 16) {
        y[threadIdx.x] = warp_sum(1.0F);
    }
}

__global__ void shuffle_from_unnamed_lane(int* y) {
    y[threadIdx.x] = __shfl_sync(0xffffU, 1, threadIdx.x == 3 ? 20 : 0);
}

__global__ void two_collectives_at_once(int* y) {
    y[threadIdx.x] =
        threadIdx.x % 2 == 0 ? __shfl_xor_sync(all_lanes, 1, 2) : __any_sync(all_lanes, 1);
}

TEST(CudaEmulation, LanesThatDivergeAreFound) {
    emulation::set_order(Order::Ascending);
    std::vector<float> y(32);
    EXPECT_THAT(failure_of([&] { launch<sum_by_half_a_warp>(1, 32, 0, nullptr, y.data()); }),
                AllOf(HasSubstr("a shuffle at"), HasSubstr("is never reached by all")));
    std::vector<int> z(32);
    EXPECT_THAT(failure_of([&] { launch<shuffle_from_unnamed_lane>(1, 16, 0, nullptr, z.data()); }),
                HasSubstr("from lane 20, which its mask does not name"));
    emulation::set_order(Order::Descending);  // lane 31 comes before lane 3
    EXPECT_THAT(failure_of([&] { launch<shuffle_from_unnamed_lane>(1, 32, 0, nullptr, z.data()); }),
                HasSubstr("by a lane that its mask does not name"));
    EXPECT_THAT(failure_of([&] { launch<two_collectives_at_once>(1, 32, 0, nullptr, z.data()); }),
                HasSubstr("while lanes of its warp are in"));
}

__global__ void do_nothing() {}

__global__ void touch_shared(std::size_t bytes) {
    PIPETWIN_DYNAMIC_SHARED(memory);
    PIPETWIN_SHARED(fixed, float[16]);
    fixed[0] = 1;
    if (bytes > 0) {
        memory[bytes - 1] = 1;
    }
}

TEST(CudaEmulation, LaunchesThatAGpuRefusesAreRefused) {
    launch<do_nothing>(dim3(2, 3, 2), dim3(16, 16, 4), 0, nullptr);
    for (const auto& [grid, block] : {std::pair{dim3(0), dim3(1)},
                                      {dim3(1, 65536), dim3(1)},
                                      {dim3(1, 1, 65536), dim3(1)},
                                      {dim3(1), dim3(0)},
                                      {dim3(1), dim3(1025)},
                                      {dim3(1), dim3(1, 1, 65)}}) {
        EXPECT_THAT(failure_of([&, g = grid, b = block] { launch<do_nothing>(g, b, 0, nullptr); }),
                    HasSubstr("do_nothing"));
    }
}

TEST(CudaEmulation, SharedMemoryHasTheLimitsOfAnH200) {
    constexpr std::size_t fixed = 64;
    const auto touch = [](std::size_t bytes) {
        return failure_of([=] { launch<touch_shared>(1, 32, bytes, nullptr, bytes); });
    };
    EXPECT_EQ(touch(0), "");
    EXPECT_EQ(touch(emulation::usual_shared_bytes - fixed), "");
    EXPECT_THAT(touch(emulation::usual_shared_bytes), HasSubstr("at most 49152"));
    cudaFuncSetAttribute(touch_shared,
                         cudaFuncAttributeMaxDynamicSharedMemorySize,
                         emulation::most_shared_bytes - fixed);
    EXPECT_EQ(touch(emulation::most_shared_bytes - fixed), "");
    EXPECT_THAT(failure_of([] {
                    cudaFuncSetAttribute(touch_shared,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         emulation::most_shared_bytes + 1);
                }),
                HasSubstr("at most 232448"));
}

__global__ void load_at(const float* x, float* y) {
    y[threadIdx.x] = load_pack(x + threadIdx.x).at[0];
}

TEST(CudaEmulation, MisalignedVectorsAreFound) {
    alignas(16) const std::array<float, 8> x{};
    std::vector<float> y(2);
    EXPECT_THAT(failure_of([&] { launch<load_at>(1, 2, 0, nullptr, x.data(), y.data()); }),
                AllOf(HasSubstr("no multiple of 16"), HasSubstr("thread (1, 0, 0)")));
}

__global__ void store_into_shared(bool as_such) {
    PIPETWIN_SHARED(row, float[4]);
    if (as_such) {
        keep_pack(row, Pack<float>{});
    } else {
        store_pack(row, Pack<float>{});
    }
}

// store_pack is an instruction for global memory: in shared memory it would write elsewhere.
TEST(CudaEmulation, StoresToGlobalMemoryThatHitSharedMemoryAreFound) {
    EXPECT_EQ(failure_of([] { launch<store_into_shared>(1, 1, 0, nullptr, true); }), "");
    EXPECT_THAT(failure_of([] { launch<store_into_shared>(1, 1, 0, nullptr, false); }),
                HasSubstr("a store to global memory at an address in the block's shared memory"));
}

__global__ void shuffles_kernel(int* y) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    int* const row = y + 8 * threadIdx.x;
    row[0] = __shfl_xor_sync(all_lanes, lane, 5);
    row[1] = __shfl_down_sync(all_lanes, lane, 3U);
    row[2] = __shfl_up_sync(all_lanes, lane, 3U);
    row[3] = __shfl_sync(all_lanes, lane, 9);
    row[4] = __shfl_sync(all_lanes, lane, 9, 8);
    row[5] = __shfl_down_sync(all_lanes, lane, 3U, 8);
    row[6] = static_cast<int>(__ballot_sync(all_lanes, lane < 5 ? 1 : 0));
    row[7] = 2 * __any_sync(all_lanes, lane == 31 ? 1 : 0) + __all_sync(all_lanes, lane < 31);
}

TEST(CudaEmulation, ShufflesAndVotesFollowTheProgrammingGuide) {
    const std::vector<int> y = test::in_every_order([] {
        std::vector<int> results(64 * 8);
        launch<shuffles_kernel>(1, 64, 0, nullptr, results.data());
        return results;
    });
    for (int thread = 0; thread < 64; ++thread) {
        const int lane = thread % 32;
        const auto row = y.begin() + 8 * thread;
        EXPECT_THAT(std::vector<int>(row, row + 8),
                    ElementsAre(lane ^ 5,
                                lane + 3 < 32 ? lane + 3 : lane,
                                lane >= 3 ? lane - 3 : lane,
                                9,
                                lane / 8 * 8 + 1,
                                lane % 8 + 3 < 8 ? lane + 3 : lane,
                                31,
                                2));
    }
}

// Each twice in a row, so that the second call meets threads that still read the first one's sums.
__global__ void sums_kernel(const float* x, float* y) {
    const float value = x[threadIdx.x];
    float* const row = y + 4 * threadIdx.x;
    row[0] = block_sum(value);
    row[1] = block_sum(2 * value);
    row[2] = block_max(value);
    row[3] = block_max(value - 1);
}

TEST(CudaEmulation, SumsAndMaximaOfABlockAreEqualInAllItsThreads) {
    std::vector<float> x(96);
    for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = -1 - static_cast<float>(i * 7 % 96);
    }
    const std::vector<float> y = test::in_every_order([&] {
        std::vector<float> results(4 * 96);
        launch<sums_kernel>(1, 96, 0, nullptr, x.data(), results.data());
        return results;
    });
    for (std::size_t thread = 0; thread < 96; ++thread) {
        const auto row = y.begin() + static_cast<std::ptrdiff_t>(4 * thread);
        EXPECT_THAT(std::vector<float>(row, row + 4),
                    ElementsAre(-96.0F * 97 / 2, -96.0F * 97, -1, -2));
    }
}

// By the rule in plain words: the nearer of the two neighbours, in the middle the even one. All
// upper halves, and lower halves around each change of direction.
TEST(CudaEmulation, Bf16IsRoundedToTheNearestAndTiesToEven) {
    for (std::uint32_t upper = 0; upper < 0x10000; ++upper) {
        for (const std::uint32_t lower : {0U, 1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
            const float value = __uint_as_float(upper << 16U | lower);
            const std::uint32_t rounded = __float2bfloat16_rn(value).bits;
            if (std::isnan(value)) {
                ASSERT_EQ(rounded, 0x7fffU);
                continue;
            }
            const bool up = lower > 0x8000U || (lower == 0x8000U && upper % 2 == 1);
            ASSERT_EQ(rounded, up ? upper + 1 : upper) << upper << " " << lower;
            if (lower == 0) {
                ASSERT_EQ(__bfloat162float(__float2bfloat16_rn(value)), value);
            }
        }
    }
    EXPECT_EQ(__float2bfloat16_rn(std::numeric_limits<float>::max()).bits, 0x7f80);  // infinity
}

// (16, 16) x (16, 8) in bf16, fragments by ldmatrix: a as it is, b row-major and hence transposed.
__global__ void product_kernel(const Bf16* a, const Bf16* b, float* c) {
    PIPETWIN_SHARED(tile_a, Bf16[16][16]);
    PIPETWIN_SHARED(tile_b, Bf16[16][16]);  // only the first 8 columns are used
    const unsigned lane = threadIdx.x;
    copy_async_16(&tile_a[lane / 2][lane % 2 * 8], a + 8 * lane);
    commit_copies();
    if (lane < 16) {
        copy_async_16(&tile_b[lane][0], b + 8 * lane);
    }
    commit_copies();
    wait_for_copies<0>();
    __syncwarp();
    std::uint32_t of_a[4];
    std::uint32_t of_b[4];
    load_matrices(of_a, &tile_a[lane % 16][lane / 16 * 8]);
    load_matrices_transposed(of_b, &tile_b[lane % 16][0]);
    const std::uint32_t first[2] = {of_b[0], of_b[1]};
    float sums[4];
    for (unsigned i = 0; i < 4; ++i) {
        sums[i] = c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2];
    }
    multiply_16x8x16(sums, of_a, first);
    for (unsigned i = 0; i < 4; ++i) {
        c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sums[i];
    }
}

TEST(CudaEmulation, TensorCoreProductsAreProducts) {
    const exec::RandomStream random(1);
    std::vector<Bf16> a(256);
    std::vector<Bf16> b(128);
    std::vector<float> c(128);
    const auto whole = [&random](std::uint64_t n) {
        return static_cast<float>(random.below(n, 17)) - 8;
    };
    for (std::size_t i = 0; i < 256; ++i) {
        a[i] = __float2bfloat16(whole(i));
        b[i % 128] = __float2bfloat16(whole(1000 + i));
        c[i % 128] = whole(2000 + i);
    }
    const std::vector<float> found = test::in_every_order([&] {
        std::vector<float> sums = c;
        launch<product_kernel>(1, 32, 0, nullptr, a.data(), b.data(), sums.data());
        return sums;
    });
    for (std::size_t row = 0; row < 16; ++row) {
        for (std::size_t column = 0; column < 8; ++column) {
            float expected = c[row * 8 + column];
            for (std::size_t k = 0; k < 16; ++k) {
                expected += to_float(a[row * 16 + k]) * to_float(b[k * 8 + column]);
            }
            EXPECT_EQ(found[row * 8 + column], expected) << row << " " << column;
        }
    }
}

__global__ void copy_without_waiting(const float* x, float* y) {
    PIPETWIN_SHARED(values, float[4]);
    copy_async_16(values, x);
    commit_copies();
    y[0] = values[0];
    wait_for_copies<0>();
    y[1] = values[1];
}

__global__ void copy_and_leave(const float* x) {
    PIPETWIN_SHARED(values, float[4]);
    copy_async_16(values, x);
}

TEST(CudaEmulation, AsynchronousCopiesArriveWhenTheyAreWaitedFor) {
    alignas(16) const std::array<float, 4> x{1, 2, 3, 4};
    std::array<float, 2> y{};
    launch<copy_without_waiting>(1, 1, 0, nullptr, x.data(), y.data());
    EXPECT_TRUE(std::isnan(y[0]));
    EXPECT_EQ(y[1], 2);
    EXPECT_THAT(failure_of([&] { launch<copy_and_leave>(1, 1, 0, nullptr, x.data()); }),
                HasSubstr("nobody waits for"));
}

// A block that reads what another one writes.
__global__ void add_up_blocks(float* sum) {
    sum[0] = 2 * sum[0] + static_cast<float>(blockIdx.x);
}

TEST(CudaEmulation, BlocksRunInTheOrderToo) {
    const auto sum_in = [](Order order) {
        emulation::set_order(order);
        float sum = 0;
        launch<add_up_blocks>(3, 1, 0, nullptr, &sum);
        return sum;
    };
    EXPECT_EQ(sum_in(Order::Ascending), 4);
    EXPECT_EQ(sum_in(Order::Descending), 10);
}

}  // namespace emulation_test
}  // namespace pipetwin::cuda
// NOLINTEND(modernize-avoid-c-arrays, bugprone-implicit-widening-of-multiplication-result)

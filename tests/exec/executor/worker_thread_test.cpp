// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <mutex>
#include <set>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exec/base/cores.h"
#include "exec/data/random_batch.h"
#include "exec/executor/executor.h"
#include "tests/support/small_training.h"

/// What the threads of an executor are set to while they walk their rows.
namespace pipetwin::exec {
namespace worker_thread_test {

using test::Shape;

/// Runs a step whose workers call `look` before every action, one at a time.
void look_inside(const Shape& shape, const std::function<void(int rank)>& look) {
    const Model model = test::small_mlp();
    std::mutex mutex;
    ExecutorOptions options = test::options_of(shape);
    options.before_action = [&](int rank, const Action&) {
        const std::lock_guard lock(mutex);
        look(rank);
    };
    Executor executor(test::plan_of(model, shape), model, options);
    executor.run_step(random_batch(model, shape.batch, 1), 0);
}

float half_of_the_smallest_normal() {
    volatile float smallest = std::numeric_limits<float>::min();
    return smallest * 0.5F;
}

/// As a program starts; other tests compute in this thread.
void count_denormals() {
#if defined(__x86_64__)
    constexpr unsigned flush_to_zero = 0x8000;
    constexpr unsigned denormals_are_zero = 0x0040;
    _mm_setcsr(_mm_getcsr() & ~(flush_to_zero | denormals_are_zero));
#endif
}

// They would slow a step 16 times.
TEST(WorkerThreads, CountDenormalsAsZeroAndTheCallersDoesNot) {
    count_denormals();
    for (const Backend backend : test::every_host_backend()) {
        look_inside({.stages = 2, .backend = backend},
                    [](int) { EXPECT_EQ(half_of_the_smallest_normal(), 0.0F); });
    }
#if defined(__x86_64__)
    EXPECT_GT(half_of_the_smallest_normal(), 0.0F);
#endif
}

TEST(WorkerThreads, HaveACoreEachWhereThereAreEnough) {
    const std::vector<int> cores = allowed_cores();
    if (cores.size() < 2) {
        GTEST_SKIP() << "one core";
    }
    std::vector<std::set<std::vector<int>>> seen(2);
    look_inside({.stages = 2},
                [&](int rank) { seen[static_cast<std::size_t>(rank)].insert(allowed_cores()); });
    for (const auto& of_rank : seen) {
        ASSERT_EQ(of_rank.size(), 1U);
        EXPECT_EQ(of_rank.begin()->size(), 1U);
    }
    EXPECT_NE(seen[0], seen[1]);
    EXPECT_EQ(allowed_cores(), cores);
}

TEST(WorkerThreads, GoWhereTheyLikeWhereTheyEmulateDevices) {
    const std::vector<int> cores = allowed_cores();
    look_inside({.stages = 2, .backend = Backend::Paced},
                [&](int) { EXPECT_EQ(allowed_cores(), cores); });
}

}  // namespace worker_thread_test
}  // namespace pipetwin::exec

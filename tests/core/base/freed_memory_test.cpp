// SPDX-License-Identifier: Apache-2.0
#include "core/base/freed_memory.h"

#include <sys/resource.h>

#include <vector>

#include <gtest/gtest.h>

extern "C" {
__attribute__((weak)) void __asan_init();  // NOLINT(bugprone-reserved-identifier): the sanitizer's
__attribute__((weak)) void __tsan_init();  // NOLINT(bugprone-reserved-identifier): likewise
}

namespace pipetwin {
namespace freed_memory_test {

/// Whether a sanitizer is linked, whose allocator takes the place of the C library's.
bool has_sanitizer() {
    return __asan_init != nullptr || __tsan_init != nullptr;
}

/// Pages that the process has been given so far.
long pages_given() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

TEST(FreedMemory, IsThereForWhatIsAskedForNext) {
    const bool is_kept = keep_freed_memory();
    if (has_sanitizer()) {
        ASSERT_FALSE(is_kept);
        GTEST_SKIP() << "a sanitizer's allocator has no such setting";
    }
#ifdef __GLIBC__
    ASSERT_TRUE(is_kept);
#else
    GTEST_SKIP() << "the setting is one of glibc";
#endif
    constexpr std::size_t bytes = 16 << 20;
    constexpr long page = 4096;
    constexpr int rounds = 20;
    const long before = pages_given();
    for (int round = 0; round < rounds; ++round) {
        const std::vector<char> block(bytes, 'x');
        ASSERT_EQ(block.back(), 'x');
    }
    // All rounds have the pages of the first one.
    EXPECT_LT(pages_given() - before, 4 * static_cast<long>(bytes) / page);
}

}  // namespace freed_memory_test
}  // namespace pipetwin

// SPDX-License-Identifier: Apache-2.0
#include "core/base/freed_memory.h"

#include <cstdlib>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace pipetwin {

bool keep_freed_memory() {
#ifdef __GLIBC__
    constexpr int kept = 1 << 30;             // bytes, as the next two
    constexpr int largest_on_heap = 1 << 25;  // the most that it allows
    constexpr int taken_at_once = 1 << 24;
    return mallopt(M_TRIM_THRESHOLD, kept) != 0 &&
           mallopt(M_MMAP_THRESHOLD, largest_on_heap) != 0 &&
           mallopt(M_TOP_PAD, taken_at_once) != 0;
#else
    return false;
#endif
}

}  // namespace pipetwin

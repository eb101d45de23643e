// SPDX-License-Identifier: Apache-2.0
#include "exec/base/cores.h"

#include <pthread.h>
#include <sched.h>

#include <chrono>
#include <cstddef>
#include <ctime>

#include "core/base/as_index.h"

namespace pipetwin::exec {

std::vector<int> allowed_cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    std::vector<int> cores;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        for (std::size_t core = 0; core < CPU_SETSIZE; ++core) {
            if (CPU_ISSET(core, &set)) {
                cores.push_back(static_cast<int>(core));
            }
        }
    }
    return cores;
}

Duration thread_cpu_time() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

void pin_to(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(as_index(core), &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

}  // namespace pipetwin::exec

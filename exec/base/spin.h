// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <thread>

namespace pipetwin::exec {

/// How long a wait spins before it blocks. Waking a blocked thread takes tens of microseconds, a
/// spinning one sees the change within one; but where there are more workers than cores, a spinning
/// thread takes the core from the one that it waits for.
enum class Spin { Never, Briefly };

/// How long Spin::Briefly spins.
constexpr std::chrono::microseconds spin_time{200};

/// Tells the core that this is a spin loop.
inline void pause_core() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/// Calls `ready` until it is true or the spin time is over; true if it became true.
template <class Ready>
bool spin_until(const Ready& ready, Spin spin) {
    if (ready()) {
        return true;
    }
    if (spin == Spin::Never) {
        return false;
    }
    const auto deadline = std::chrono::steady_clock::now() + spin_time;
    constexpr int looks_per_clock = 64;
    do {
        for (int look = 0; look < looks_per_clock; ++look) {
            pause_core();
            if (ready()) {
                return true;
            }
        }
    } while (std::chrono::steady_clock::now() < deadline);
    return false;
}

/// Returns when `ready` says so: for what would wake no blocked thread. Others may have the core
/// now and then.
template <class Ready>
void spin_until(const Ready& ready) {
    while (!spin_until(ready, Spin::Briefly)) {
        std::this_thread::yield();
    }
}

/// Pauses between two polls of a condition that wakes no blocked thread, `waited` after the wait
/// began. It spins at first, then yields the core, as a message may advance only while it is
/// polled; after 8 ms it sleeps, and longer after `long_wait`.
inline void pause_between_looks(std::chrono::nanoseconds waited,
                                std::chrono::nanoseconds long_wait) {
    constexpr std::chrono::milliseconds on_its_way{8};
    constexpr std::chrono::microseconds often{20};
    constexpr std::chrono::microseconds rare{500};
    pause_core();
    if (waited > on_its_way) {
        std::this_thread::sleep_for(waited > long_wait ? rare : often);
    } else if (waited > spin_time) {
        std::this_thread::yield();
    }
}

}  // namespace pipetwin::exec

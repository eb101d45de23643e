#include "exec/speed_witness.h"

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "core/clones.h"
#include "core/error.h"
#include "exec/cores.h"

namespace pipetwin::exec {
namespace {

std::int64_t thread_nanoseconds() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * std::int64_t{1'000'000'000} + time.tv_nsec;
}

/// As many chains beside each other as keep every multiplier busy: about 0.1 ms.
PIPETWIN_CLONES float multiply_and_add(float factor) {
    typedef float Vector __attribute__((vector_size(32)));
    Vector a{};
    Vector b{};
    Vector c{};
    Vector d{};
    Vector e{};
    Vector f{};
    Vector g{};
    Vector h{};
    constexpr int rounds = 80000;
    for (int round = 0; round < rounds; ++round) {
        a = a * factor + 1.0F;
        b = b * factor + 2.0F;
        c = c * factor + 3.0F;
        d = d * factor + 4.0F;
        e = e * factor + 5.0F;
        f = f * factor + 6.0F;
        g = g * factor + 7.0F;
        h = h * factor + 8.0F;
    }
    a += b + c + d + e + f + g + h;
    float sum = 0;
    for (int lane = 0; lane < 8; ++lane) {
        sum += a[lane];
    }
    return sum;
}

/// The best of some: what interrupts a thread for a moment is no slowness.
std::int64_t chain_nanoseconds() {
    constexpr int chains = 3;
    std::int64_t best = std::numeric_limits<std::int64_t>::max();
    for (int chain = 0; chain < chains; ++chain) {
        const std::int64_t begin = thread_nanoseconds();
        volatile float kept = multiply_and_add(0.5F);
        static_cast<void>(kept);
        best = std::min(best, thread_nanoseconds() - begin);
    }
    return best;
}

/// What was seen lately by all of this program's witnesses, so that all that it measures is held
/// against one speed.
class Looks {
  public:
    void add(std::int64_t nanoseconds) {
        const std::lock_guard lock(mutex_);
        if (lately_.size() < most) {
            lately_.push_back(nanoseconds);
        } else {
            lately_[next_] = nanoseconds;
            next_ = (next_ + 1) % most;
        }
    }

    /// The 10th percentile: single chains are faster still, by a clock that was raised for a
    /// moment.
    std::int64_t full_speed() {
        const std::lock_guard lock(mutex_);
        std::vector<std::int64_t> sorted = lately_;
        const auto place = sorted.begin() + std::ssize(sorted) / 10;
        std::ranges::nth_element(sorted, place);
        return *place;
    }

  private:
    static constexpr std::size_t most = 4000;
    std::mutex mutex_;
    std::vector<std::int64_t> lately_;
    std::size_t next_ = 0;
};

Looks& looks() {
    static Looks all;
    return all;
}

}  // namespace

SpeedWitness::SpeedWitness(std::vector<int> cores) : cores_(std::move(cores)) {
    PIPETWIN_EXPECT(!cores_.empty(), "a core to look at");
    constexpr int first_looks = 100;
    static const bool looked = [this] {
        for (int look = 0; look < first_looks; ++look) {
            missing();
        }
        return true;
    }();
    static_cast<void>(looked);
}

double SpeedWitness::missing() {
    std::vector<std::int64_t> times(cores_.size());
    {
        std::vector<std::jthread> threads;
        for (std::size_t i = 0; i < cores_.size(); ++i) {
            threads.emplace_back([this, i, &times] {
                pin_to(cores_[i]);
                times[i] = chain_nanoseconds();
                looks().add(times[i]);
            });
        }
    }
    const auto slowest = static_cast<double>(std::ranges::max(times));
    return std::max(0.0, 1 - static_cast<double>(looks().full_speed()) / slowest);
}

double SpeedWitness::wait(Duration longest) {
    constexpr std::chrono::milliseconds between{5};
    const auto end = std::chrono::steady_clock::now() + longest;
    double now = missing();
    while (now > most_missing && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(between);
        now = missing();
    }
    return now;
}

double lost_share(double stolen, double missing_before, double missing_behind) {
    const double missing = std::max(missing_before, missing_behind);
    return missing > most_missing ? std::max(stolen, missing) : stolen;
}

}  // namespace pipetwin::exec

#pragma once

#include <chrono>
#include <exception>
#include <thread>
#include <vector>

#include "exec/device_failure.h"
#include "exec/gpu_link.h"
#include "exec/spin.h"
#include "exec/transport/world.h"

namespace pipetwin::exec {

/// How a process waits for what GPUs do, and what has to go on meanwhile.
class GpuWaits {
  public:
    /// `world` outlives it.
    explicit GpuWaits(World& world) : world_(world) {}

    void add(GpuTraffic& traffic) { traffic_.push_back(&traffic); }
    void remove(const GpuTraffic& traffic) { std::erase(traffic_, &traffic); }

    /// What waits for NCCL to take it is begun when somebody looks. What has failed says so to
    /// whoever needs it.
    void progress() noexcept {
        for (GpuTraffic* const traffic : traffic_) {
            try {
                traffic->complete();
            } catch (const std::exception&) {
                continue;
            }
        }
    }

    /// Calls `done` until it is true, and now and then `heed`, which throws where it never will be.
    template <class Done, class Heed>
    void look_until(const Done& done, const Heed& heed) {
        constexpr int looks_per_alarm = 16;
        constexpr std::chrono::milliseconds long_wait{100};
        const auto begin = std::chrono::steady_clock::now();
        for (int look = 1; !done(); ++look) {
            if (look % looks_per_alarm == 0) {
                heed();
                world_.progress();
            }
            pause_between_looks(std::chrono::steady_clock::now() - begin, long_wait);
        }
    }

    /// What `act` gives. A link that fails has lost its other end: which process that was is known
    /// a little later, and `heed` throws it. What nobody explains is thrown as it is, and so is
    /// what has happened to this process's own GPU.
    template <class Act, class Heed>
    auto explained(const Act& act, const Heed& heed) {
        constexpr std::chrono::seconds patience{15};  // longer than a process may be silent
        constexpr std::chrono::milliseconds nap{1};
        try {
            return act();
        } catch (const DeviceFailure& failure) {
            const auto end = std::chrono::steady_clock::now() + patience;
            while (!failure.is_for_good() && std::chrono::steady_clock::now() < end) {
                heed();
                std::this_thread::sleep_for(nap);
            }
            throw;
        }
    }

    template <class Act>
    auto explained(const Act& act) {
        return explained(act, [this] { world_.heed(); });
    }

    /// Ends as every wait for others does (World::heed).
    template <class Done>
    void wait(const Done& done) {
        const auto heed = [this] { world_.heed(); };
        explained([&] { look_until(done, heed); }, heed);
    }

    World& world() { return world_; }

  private:
    World& world_;
    std::vector<GpuTraffic*> traffic_;
};

}  // namespace pipetwin::exec

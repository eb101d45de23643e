#pragma once

#include <chrono>
#include <exception>
#include <memory>
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

    void add(GpuLink& link) { links_.push_back(&link); }
    void remove(const GpuLink& link) { std::erase(links_, &link); }

    /// Messages that wait for the one before them are begun when somebody looks. A link that has
    /// failed says so to whoever needs it.
    void progress() noexcept {
        for (GpuLink* const link : links_) {
            try {
                link->complete();
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
                progress();
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
    std::vector<GpuLink*> links_;
};

/// One end of a channel whose messages go by a link of its own, of which the world tells the other
/// process. What makes room in it is another channel of that world, in host memory. Neither end
/// waits for the other's link, so it does not matter in which order two processes open those
/// between them.
std::unique_ptr<Channel> open_gpu_channel(GpuWaits& waits,
                                          const GpuLinks& links,
                                          const RemoteEnd& end);

}  // namespace pipetwin::exec

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "exec/base/spin.h"
#include "exec/device/device_failure.h"
#include "exec/transport/gpu_link.h"
#include "exec/transport/process_group.h"

namespace pipetwin::exec {

/// How a process waits for what GPUs do, and what has to go on meanwhile.
class GpuWaits {
  public:
    /// `group` outlives it.
    explicit GpuWaits(ProcessGroup& group) : group_(group) {}

    /// Adds a channel or a sum.
    void add(GpuTraffic& traffic) { traffic_.push_back(&traffic); }
    /// Adds what carries the status of processes beside channels and sums.
    void add_mail(GpuTraffic& mail) { mail_.push_back(&mail); }
    /// Takes `traffic` off the list before it is destroyed.
    void remove(const GpuTraffic& traffic) {
        std::erase(traffic_, &traffic);
        std::erase(mail_, &traffic);
    }

    /// Until all channels and sums have reached their other ends (GpuTraffic::is_connected).
    void wait_for_ends() {
        wait([this] {
            return std::ranges::all_of(traffic_,
                                       [](GpuTraffic* one) { return one->is_connected(); });
        });
    }

    /// Ends what channels and sums have under way, all at once. Only their destruction follows.
    void abort_traffic(const GpuLinks& links) noexcept {
        const std::vector<GpuTraffic*> all = std::exchange(traffic_, {});
        try {
            links.abort(all);
        } catch (const std::exception&) {  // no more than their destruction
            return;
        }
    }

    /// Polls all traffic once, which begins what waits for NCCL to take it. A failure is ignored
    /// here; the wait for that traffic throws it.
    void progress() noexcept {
        look_at(traffic_);
        look_at(mail_);
    }

    /// Calls `done` until it is true, and now and then `check`, which throws where it never will
    /// be.
    template <class Done, class Check>
    void look_until(const Done& done, const Check& check) {
        constexpr int looks_per_alarm = 16;
        constexpr std::chrono::milliseconds long_wait{100};
        const auto begin = std::chrono::steady_clock::now();
        for (int look = 1; !done(); ++look) {
            if (look % looks_per_alarm == 0) {
                check();
                group_.progress();
            }
            pause_between_looks(std::chrono::steady_clock::now() - begin, long_wait);
        }
    }

    /// What `act` gives. A link that fails has lost its other end: which process that was is known
    /// a little later, and `check` throws it. A failure that `check` does not explain is
    /// thrown as it is, and so is one of this process's own GPU.
    template <class Act, class Check>
    auto explained(const Act& act, const Check& check) {
        constexpr std::chrono::seconds patience{15};  // longer than a process may be silent
        constexpr std::chrono::milliseconds nap{1};
        try {
            return act();
        } catch (const DeviceFailure& failure) {
            const auto end = std::chrono::steady_clock::now() + patience;
            while (!failure.is_for_good() && std::chrono::steady_clock::now() < end) {
                check();
                std::this_thread::sleep_for(nap);
            }
            throw;
        }
    }

    template <class Act>
    auto explained(const Act& act) {
        return explained(act, [this] { group_.throw_if_aborted(); });
    }

    /// Ends as every wait for others does (ProcessGroup::throw_if_aborted).
    template <class Done>
    void wait(const Done& done) {
        const auto check = [this] { group_.throw_if_aborted(); };
        explained([&] { look_until(done, check); }, check);
    }

    ProcessGroup& group() { return group_; }

  private:
    static void look_at(const std::vector<GpuTraffic*>& some) noexcept {
        for (GpuTraffic* const one : some) {
            try {
                one->complete();
            } catch (const std::exception&) {
                continue;
            }
        }
    }

    ProcessGroup& group_;
    std::vector<GpuTraffic*> traffic_;
    std::vector<GpuTraffic*> mail_;
};

}  // namespace pipetwin::exec

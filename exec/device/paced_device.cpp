// SPDX-License-Identifier: Apache-2.0
#include "exec/device/paced_device.h"

#include <sys/prctl.h>

#include <thread>

#include "exec/device/paced_copy_engine.h"

namespace pipetwin::exec {
namespace {

using Clock = std::chrono::steady_clock;

class PacedDevice final : public Device {
  public:
    void enter_thread() override {
        prepare_cpu_thread();
        prctl(PR_SET_TIMERSLACK,
              1UL);  // nanoseconds; the default lets every sleep last 50 us longer
    }

    TimePoint now() override { return reached(clock_); }

    void wait_until(TimePoint moment) override {
        if (moment > clock_) {
            sleep_until(moment);
        }
    }

    TimePoint complete(const Action& /*action*/, TimePoint begin, Duration planned) override {
        return sleep_until(begin + planned);
    }

    std::unique_ptr<CopyEngine> make_copy_engine(const LinkCost& planned) override {
        return make_paced_copy_engine(*this, planned);
    }

    const Kernels& kernels() override { return cpu_kernels(); }

  private:
    TimePoint sleep_until(TimePoint moment) {
        std::this_thread::sleep_until(moment);
        return reached(moment);
    }

    /// The device has reached `moment`; the host may be later.
    TimePoint reached(TimePoint moment) {
        const TimePoint host = Clock::now();
        clock_ = host - moment > paced_lateness ? host : moment;
        return clock_;
    }

    TimePoint clock_;
};

}  // namespace

std::unique_ptr<Device> make_paced_device() {
    return std::make_unique<PacedDevice>();
}

}  // namespace pipetwin::exec

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/units.h"
#include "core/costs/profile.h"
#include "core/schedule/action.h"
#include "exec/device/memory.h"

namespace pipetwin::exec {

class CopyEngine;
class Kernels;

/// A moment on a device's clock.
using TimePoint = std::chrono::steady_clock::time_point;

/// An amount of memory and its name, for messages.
struct NamedBytes {
    std::string name;
    Bytes bytes;
};

/// Device memory outside the arena's count, such as the CUDA context or cuBLAS workspaces. What
/// ranks share is reported by the first of them.
struct MemoryBeside {
    std::vector<NamedBytes> own;
    std::vector<NamedBytes> common;
    Bytes pool;     ///< common: taken in advance, for the blocks of the arenas
    Bytes of_pool;  ///< the part of `own` that lies in the pool
};

/// A device that computes a stage: the CPU, a share of a GPU, or an emulated device. One per rank,
/// used by one thread at a time.
class Device {
  public:
    virtual ~Device() = default;

    /// Called by a worker's thread at the start of every step and evaluation, and after a failure:
    /// denormals to zero.
    virtual void enter_thread() = 0;

    /// Called by a thread that stops using the device, as only one thread may use it at a time.
    virtual void leave_thread() noexcept {}

    /// The time on this device's clock.
    virtual TimePoint now() = 0;

    /// Returns when `moment`, which lies a little ahead, has come on this device's clock: the start
    /// of a step.
    virtual void wait_until(TimePoint moment) {
        while (now() < moment) {
        }
    }

    /// Begins what was issued, all of `action`, and returns true: the host may issue the next
    /// action while the device computes, and calls `complete` of this one before it launches that.
    /// False: the device does nothing by itself, so `complete` is to be called first.
    virtual bool launch(const Action& /*action*/) { return false; }
    /// Prepares the launch of what was issued, while the action before is under way.
    virtual void prepare_launch() {}

    /// Called when the host has issued all of `action`, which was planned to last `planned`;
    /// returns the moment at which its result is complete. Where it was launched, what was issued
    /// since then has not begun yet.
    virtual TimePoint complete(const Action& action, TimePoint begin, Duration planned) = 0;

    /// Returns when everything that was issued is done.
    virtual void finish() {}

    /// Forgets what was issued and not begun: after a failure, when its operands are about to go.
    virtual void discard() noexcept {}

    /// Calls `then` with the moment at which all that was issued before was done: at once, or
    /// before `complete` or `finish` returns.
    virtual void mark(std::function<void(TimePoint)> then) { then(now()); }

    /// The memory in which tensors of this device lie.
    virtual Memory& memory() { return host_memory(); }

    /// Memory for `count` numbers that kernels write and the host reads once `complete` has
    /// returned; all 0. Lives as long as the device.
    virtual std::span<double> results(std::size_t count);

    /// Makes the engine that copies to and from other memories. Copies to host memory take the time
    /// that `planned` says, where the device emulates one. Null: the device has no memory of its
    /// own.
    virtual std::unique_ptr<CopyEngine> make_copy_engine(const LinkCost& planned);

    /// Device memory outside the arena's count. Call it after some steps: it grows while sizes are
    /// new.
    virtual MemoryBeside memory_beside() const { return {}; }

    /// The reason why the device works otherwise than it was asked to; empty: it does as asked.
    virtual std::string note() const { return {}; }

    /// The mathematics of this device. Stateless: any number of devices may share one object.
    virtual const Kernels& kernels() = 0;

  private:
    std::deque<std::vector<double>> results_;  ///< in host memory
};

/// The processor this program runs on, at full speed.
std::unique_ptr<Device> make_cpu_device();

/// The CPU's kernels, for devices that compute there, too.
const Kernels& cpu_kernels();

/// Makes denormals count as zero in the calling thread (they would slow a step 16 times).
/// `enter_thread` of every device that computes on the CPU calls it.
void prepare_cpu_thread();

}  // namespace pipetwin::exec

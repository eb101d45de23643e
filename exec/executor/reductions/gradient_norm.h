// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "exec/base/spin.h"
#include "exec/transport/channel.h"

namespace pipetwin::exec {

/// The norm of all gradients of a step, from what each rank knows of its own stages: where ranks
/// wait for each other before any of them updates its weights.
class GradientNorm {
  public:
    /// A step has `norms` NORM actions. The first `pieces` stages have the model's parameters;
    /// stages of another pipeline have the same gradients again.
    GradientNorm(int norms, int pieces, Spin spin);

    /// [stage]: the sums of squares of its parameters, as `add` takes them.
    using Squares = std::vector<std::vector<double>>;
    /// The norm: over tensors in model order, in double. The partition changes no bit of it.
    static double norm_of(const Squares& squares);
    /// Sets what runs once all NORMs of this process are done: `exchange` gets the sums of its
    /// stages and adds those of the stages of other processes. Call it before the first step.
    void exchange_with(std::function<void(Squares&)> exchange) { exchange_ = std::move(exchange); }

    /// The sums of squares of a stage's parameters, in model order: one NORM is done.
    void add(int stage, std::span<const double> squares);

    /// The norm of all gradients, and when it was known.
    struct Known {
        double norm = 0;  ///< over tensors in model order, in double
        TimePoint since;
    };
    /// Blocks until every NORM is done. Throws ChannelClosed where one will never be.
    Known wait();

    /// Says that some rank stopped. Ends every wait that cannot end otherwise.
    void close();

    /// For another step, when no thread is inside.
    void restart();

  private:
    bool is_decided() const { return left_ == 0 || closed_; }

    const int norms_;
    const Spin spin_;
    std::mutex mutex_;
    std::condition_variable changed_;
    Squares squares_;
    std::function<void(Squares&)> exchange_;
    bool exchanged_ = false;
    std::atomic<int> left_;  ///< NORMs to be done
    std::atomic<bool> closed_ = false;
    TimePoint since_;
};

}  // namespace pipetwin::exec

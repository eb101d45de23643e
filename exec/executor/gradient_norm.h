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

    /// `exchange` gets the sums of this process's stages once all its NORMs are done, and puts
    /// those of the others beside them: [stage] as `add` was told.
    using Squares = std::vector<std::vector<double>>;
    /// Over tensors in model order, in double: the same bits whatever the partition.
    static double norm_of(const Squares& squares);
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

    /// Some rank goes on no more. Ends every wait that cannot end otherwise.
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

// SPDX-License-Identifier: Apache-2.0
#include "exec/executor/reductions/gradient_norm.h"

#include <cmath>

#include "core/base/as_index.h"
#include "core/base/error.h"

namespace pipetwin::exec {

GradientNorm::GradientNorm(int norms, int pieces, Spin spin)
    : norms_(norms), spin_(spin), squares_(as_index(pieces)), left_(norms) {}

void GradientNorm::add(int stage, std::span<const double> squares) {
    {
        const std::lock_guard lock(mutex_);
        PIPETWIN_EXPECT(left_ > 0, "a step has so many norms");
        if (as_index(stage) < squares_.size()) {
            squares_[as_index(stage)].assign(squares.begin(), squares.end());
        }
        since_ = std::chrono::steady_clock::now();
        --left_;
    }
    changed_.notify_all();
}

GradientNorm::Known GradientNorm::wait() {
    spin_until([this] { return is_decided(); }, spin_);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_decided(); });
    if (left_ > 0) {
        throw ChannelClosed();
    }
    if (exchange_ && !exchanged_) {
        exchange_(squares_);
        exchanged_ = true;
        since_ = std::chrono::steady_clock::now();
    }
    return {.norm = norm_of(squares_), .since = since_};
}

double GradientNorm::norm_of(const Squares& squares) {
    double sum = 0;
    for (const std::vector<double>& of_stage : squares) {
        for (const double of_parameter : of_stage) {
            sum += of_parameter;
        }
    }
    return std::sqrt(sum);
}

void GradientNorm::close() {
    {
        const std::lock_guard lock(mutex_);
        closed_ = true;
    }
    changed_.notify_all();
}

void GradientNorm::restart() {
    const std::lock_guard lock(mutex_);
    left_ = norms_;
    exchanged_ = false;
    closed_ = false;
}

}  // namespace pipetwin::exec

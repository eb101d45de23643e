// SPDX-License-Identifier: Apache-2.0
#include "cli/base/stop_wish.h"

#include <csignal>

#include "cli/base/exit.h"
#include "cli/base/listener.h"

namespace pipetwin::cli {

StopWish::StopWish(const Console& console) : listener_(console.listener()) {
    if (listener_ == nullptr) {
        signal_.emplace();
    }
}

bool StopWish::is_asked() const {
    return listener_ == nullptr ? StopSignal::received() != 0
                                : listener_->asks_to_stop && listener_->asks_to_stop();
}

void StopWish::expect_wanted(bool has_result) const {
    const bool has_given_up =
        listener_ != nullptr && listener_->has_given_up && listener_->has_given_up();
    if (has_given_up || (!has_result && is_asked())) {
        throw Stopped(listener_ == nullptr ? StopSignal::received() : SIGINT,
                      "stopped before a plan was found");
    }
}

}  // namespace pipetwin::cli

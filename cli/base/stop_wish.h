// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "cli/base/console.h"
#include "cli/base/stop_signal.h"

namespace pipetwin::cli {

/// While one lives, a long task can be asked to end with what it has found: by a signal as
/// StopSignal notes them, or by the console's listener.
class StopWish {
  public:
    explicit StopWish(const Console& console);

    bool is_asked() const;
    /// Throws Stopped where a task has ended without a result because that was asked, and where the
    /// listener wants no result any more.
    void expect_wanted(bool has_result) const;

  private:
    const Listener* listener_;
    std::optional<StopSignal> signal_;  ///< without a listener
};

}  // namespace pipetwin::cli

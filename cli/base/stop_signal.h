#pragma once

#include <csignal>

namespace pipetwin::cli {

/// While one lives, the first SIGINT or SIGTERM is only noted, so that the current step can be
/// finished; the second ends the program at once. One at a time.
class StopSignal {
  public:
    StopSignal();
    StopSignal(const StopSignal&) = delete;
    StopSignal& operator=(const StopSignal&) = delete;
    ~StopSignal();

    /// The signal that came, 0 for none.
    static int received();

  private:
    struct sigaction old_interrupt_ {};
    struct sigaction old_terminate_ {};
};

}  // namespace pipetwin::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <csignal>
#include <cstddef>
#include <string_view>

namespace pipetwin::cli {

/// While one lives, a signal that asks for a stop is only noted, so that the current step can be
/// finished: SIGINT, SIGTERM, SIGHUP (the terminal was closed) and SIGPIPE (nobody reads the output
/// any more). A second SIGINT or SIGTERM ends the program at once; SIGHUP and SIGPIPE come as often
/// as they like. One that the program was told to ignore, as `nohup` does, stays ignored. One
/// StopSignal at a time.
class StopSignal {
  public:
    StopSignal();
    StopSignal(const StopSignal&) = delete;
    StopSignal& operator=(const StopSignal&) = delete;
    ~StopSignal();

    /// The first signal that came, 0 for none.
    static int received();
    /// Notes a signal as if it had come: what another process of this training was told.
    static void note(int signal);

    /// The name of a signal that asks for a stop: "SIGTERM"; empty for any other signal.
    static std::string_view name(int signal);

  private:
    static constexpr std::size_t count = 4;
    std::array<struct sigaction, count> old_{};
};

}  // namespace pipetwin::cli

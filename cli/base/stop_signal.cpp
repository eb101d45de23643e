// SPDX-License-Identifier: Apache-2.0
#include "cli/base/stop_signal.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace pipetwin::cli {

namespace {

/// A signal that asks for a stop.
struct Asking {
    int signal;
    std::string_view name;
    bool by_user;  ///< a second one of these ends the program at once
};
constexpr std::array asking_signals{Asking{SIGINT, "SIGINT", true},
                                    Asking{SIGTERM, "SIGTERM", true},
                                    Asking{SIGHUP, "SIGHUP", false},
                                    Asking{SIGPIPE, "SIGPIPE", false}};

volatile std::sig_atomic_t signal_received = 0;
volatile std::sig_atomic_t user_has_asked = 0;

/// Only what is allowed inside a signal handler.
void on_signal(int signal) {
    if (signal == SIGINT || signal == SIGTERM) {
        if (user_has_asked != 0) {
            _exit(128 + signal);
        }
        user_has_asked = 1;
    }
    if (signal_received == 0) {
        signal_received = signal;
    }
}

}  // namespace

StopSignal::StopSignal() {
    static_assert(asking_signals.size() == count);
    signal_received = 0;
    user_has_asked = 0;
    struct sigaction action {};
    action.sa_handler = &on_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    for (std::size_t i = 0; i < count; ++i) {
        const Asking& asking = asking_signals.at(i);
        sigaction(asking.signal, nullptr, &old_.at(i));
        if (asking.by_user || old_.at(i).sa_handler != SIG_IGN) {
            sigaction(asking.signal, &action, nullptr);
        }
    }
}

StopSignal::~StopSignal() {
    for (std::size_t i = 0; i < count; ++i) {
        sigaction(asking_signals.at(i).signal, &old_.at(i), nullptr);
    }
}

int StopSignal::received() {
    return signal_received;
}

void StopSignal::note(int signal) {
    if (signal_received == 0) {
        signal_received = signal;
    }
}

std::string_view StopSignal::name(int signal) {
    const auto* const found = std::ranges::find(asking_signals, signal, &Asking::signal);
    return found == asking_signals.end() ? std::string_view() : found->name;
}

}  // namespace pipetwin::cli

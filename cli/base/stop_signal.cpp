#include "cli/base/stop_signal.h"

#include <unistd.h>

#include <cstdlib>

namespace pipetwin::cli {

namespace {

volatile std::sig_atomic_t signal_received = 0;

/// Only what is allowed inside a signal handler.
void on_signal(int signal) {
    if (signal_received != 0) {
        _exit(128 + signal);
    }
    signal_received = signal;
}

}  // namespace

StopSignal::StopSignal() {
    signal_received = 0;
    struct sigaction action {};
    action.sa_handler = &on_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &old_interrupt_);
    sigaction(SIGTERM, &action, &old_terminate_);
}

StopSignal::~StopSignal() {
    sigaction(SIGINT, &old_interrupt_, nullptr);
    sigaction(SIGTERM, &old_terminate_, nullptr);
}

int StopSignal::received() {
    return signal_received;
}

}  // namespace pipetwin::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <stdexcept>
#include <string>

#include "cli/base/console.h"
#include "core/base/error.h"

/// Ends of the program: what is thrown at the end of a command, and the exit code for it.
namespace pipetwin::cli {

/// The run that was to go on had ended already.
class NothingLeft : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// The user asked to stop and everything that could be kept was written.
class Stopped : public std::runtime_error {
  public:
    Stopped(int signal, const std::string& text) : std::runtime_error(text), signal_(signal) {}
    int signal() const { return signal_; }

  private:
    int signal_;
};

/// What a gate found behind a result that was printed: the result is beyond the gate, or says
/// nothing about it.
class GateError : public std::runtime_error {
  public:
    /// Exit codes (docs/cli.md).
    enum class Finding { Beyond = 11, NoVerdict = 12 };

    GateError(Finding finding, const std::string& place, const std::string& text, const Hint& hint)
        : std::runtime_error(text),
          finding_(finding),
          error_(ErrorKind::Other, place, text, hint) {}
    int exit_code() const { return static_cast<int>(finding_); }
    const Error& error() const { return error_; }

  private:
    Finding finding_;
    Error error_;
};

/// Thrown where another process prints the error; carries its exit code.
class ReportedByPeer : public std::runtime_error {
  public:
    explicit ReportedByPeer(int exit_code)
        : std::runtime_error("another process says why"), exit_code_(exit_code) {}
    int exit_code() const { return exit_code_; }

  private:
    int exit_code_;
};

/// Prints the error on the console and returns the exit code for it.
int report_failure(std::exception_ptr failure, Console& console);

/// The exit code of a kind of error.
int exit_code(ErrorKind kind);
/// The exit code of what was thrown.
int exit_code_of(const std::exception_ptr& failure);

/// Ends the program after its output has been written. After a hang it ends at once: a worker may
/// still be at work, and must not see what it uses being destroyed.
[[noreturn]] void end_program(int code);

}  // namespace pipetwin::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace pipetwin {

/// Kind of a failure. `cli/base/exit.cpp` maps each kind to an exit code; nothing else knows exit
/// codes.
enum class ErrorKind {
    Other,
    Usage,
    BadInput,      ///< a file or value that its grammar refuses
    Infeasible,    ///< does not fit, deadlock, incomplete schedule
    Unavailable,   ///< backend, device or feature that is not there
    Io,            ///< disk full, permission, folder in use
    WorkerFailed,  ///< a stage threw
    Hang,
    NotFinite,     ///< NaN or infinity
    Disagreement,  ///< ranks disagree
};

/// The one exception for an operation that cannot go on. what() is "<place>: <text>" and, on a
/// second line, "hint: <hint>"; empty parts are left out. Parts are made printable; the text keeps
/// its lines.
class Error : public std::runtime_error {
  public:
    Error(ErrorKind kind, std::string place, std::string text, std::string hint = {});

    ErrorKind kind() const { return kind_; }
    const std::string& place() const { return place_; }
    const std::string& text() const { return text_; }
    const std::string& hint() const { return hint_; }

    /// Returns a copy of this error with `outer` put before its place ("rank 1, 1F2: ...").
    Error at(std::string_view outer) const;

  private:
    ErrorKind kind_;
    std::string place_;
    std::string text_;
    std::string hint_;
};

/// A broken contract between two parts of the program: a bug, never the user's doing.
class InternalError : public std::logic_error {
  public:
    using std::logic_error::logic_error;
};

/// Throws InternalError with the condition, the text, and name and line of the source; called by
/// PIPETWIN_EXPECT.
[[noreturn]] void contract_broken(const char* condition,
                                  std::string_view text,
                                  const std::source_location& where);

}  // namespace pipetwin

/// Checks a contract in every build type.
#define PIPETWIN_EXPECT(condition, text)                                                    \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            ::pipetwin::contract_broken(#condition, text, std::source_location::current()); \
        }                                                                                   \
    } while (false)

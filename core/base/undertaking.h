// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace pipetwin {

/// Names what is being made while its scope lasts, so that the error says what the memory did not
/// suffice for. Of scopes inside each other the innermost that an exception leaves is the one
/// named.
class Undertaking {
  public:
    /// `what` completes "there is not enough memory for ..."; `remedy` says what would do.
    Undertaking(std::string what, std::string remedy);
    ~Undertaking();
    Undertaking(const Undertaking&) = delete;
    Undertaking& operator=(const Undertaking&) = delete;

  private:
    std::string what_;
    std::string remedy_;
    int exceptions_;  ///< under way when the scope began
};

/// What an exception ended: empty texts where none left a scope of `Undertaking`.
struct FailedUndertaking {
    std::string what{};
    std::string remedy{};
};

/// The innermost undertaking that the last exception of this thread left, once: the next call finds
/// none.
FailedUndertaking take_failed_undertaking();

}  // namespace pipetwin

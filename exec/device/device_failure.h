// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "core/base/error.h"

namespace pipetwin::exec {

/// A device did not do what it was asked. Its place is where the executor was.
class DeviceFailure : public Error {
  public:
    /// Duration of a failure: the one call, or every call of every rank of the device from now on.
    enum class Lasts { Once, ForGood };
    /// Possible origin of a lasting failure: the device reports only that something on it went
    /// wrong.
    enum class Cause { AnotherRank, Own };

    DeviceFailure(std::string text, std::string hint, Lasts lasts, Cause cause = Cause::AnotherRank)
        : Error(ErrorKind::WorkerFailed, "", std::move(text), std::move(hint)),
          lasts_(lasts),
          cause_(cause) {}

    bool is_for_good() const { return lasts_ == Lasts::ForGood; }
    /// True if the failure lasts and cannot have come from the rank that met it, which had no work
    /// on the device.
    bool is_of_another_rank() const { return is_for_good() && cause_ == Cause::AnotherRank; }

  private:
    Lasts lasts_;
    Cause cause_;
};

}  // namespace pipetwin::exec

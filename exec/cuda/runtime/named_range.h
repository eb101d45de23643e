// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#endif

namespace pipetwin::cuda {

/// A stretch of the host's time under a name that profilers show. "PP:2F0", as PyTorch's, is an
/// action. Costs a few nanoseconds where none is attached.
class NamedRange {
  public:
#if __has_include(<nvtx3/nvToolsExt.h>)
    explicit NamedRange(const std::string& name) { nvtxRangePushA(name.c_str()); }
    ~NamedRange() { nvtxRangePop(); }
#else
    explicit NamedRange(const std::string& /*name*/) {}
#endif
    NamedRange(const NamedRange&) = delete;
    NamedRange& operator=(const NamedRange&) = delete;
};

}  // namespace pipetwin::cuda

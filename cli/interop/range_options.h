// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "core/interop/traces/range_names.h"

namespace CLI {

class App;

}  // namespace CLI

namespace pipetwin::cli {

/// Patterns for the names of a trace's ranges; see core/interop/traces/range_names.h.
struct RangeNameOptions {
    std::string forward;  ///< empty, as the next: not given
    std::string backward;
    std::string backward_input;
    std::string backward_weight;

    /// The first option that was given; empty: none was.
    std::string_view given() const;
};

/// The names of ranges that the options say; PyTorch's own where they say none. Throws Error(Usage)
/// where a forward or a backward is missing, and as RangeNames.
RangeNames range_names(const RangeNameOptions& options);

/// Declares the options; their help begins with `formats`, as in "torch-trace, nsys: ".
void add_range_names(CLI::App& app, RangeNameOptions& ranges, std::string_view formats);

}  // namespace pipetwin::cli

// SPDX-License-Identifier: Apache-2.0
#include "cli/interop/range_options.h"

#include <array>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "core/base/error.h"

namespace pipetwin::cli {

std::string_view RangeNameOptions::given() const {
    return !forward.empty()           ? "--forward"
           : !backward.empty()        ? "--backward"
           : !backward_input.empty()  ? "--backward-input"
           : !backward_weight.empty() ? "--backward-weight"
                                      : "";
}

RangeNames range_names(const RangeNameOptions& options) {
    if (options.given().empty()) {
        return {};
    }
    const bool whole = !options.backward.empty();
    const bool parts = !options.backward_input.empty() && !options.backward_weight.empty();
    if (options.forward.empty() || (!whole && !parts)) {
        throw Error(ErrorKind::Usage,
                    std::string(options.given()),
                    "patterns name the forward and the backward, and one of them is missing",
                    "give --forward and --backward, or --forward, --backward-input and "
                    "--backward-weight");
    }
    std::vector<RangeNames::Pattern> patterns;
    const std::array<std::pair<Op, const std::string*>, 4> given{
        {{Op::Forward, &options.forward},
         {Op::Backward, &options.backward},
         {Op::BackwardInput, &options.backward_input},
         {Op::BackwardWeight, &options.backward_weight}}};
    for (const auto& [op, text] : given) {
        if (!text->empty()) {
            patterns.push_back({.op = op, .text = *text});
        }
    }
    return RangeNames(std::move(patterns));
}

void add_range_names(CLI::App& app, RangeNameOptions& ranges, std::string_view formats) {
    const std::string which =
        fmt::format("{}pattern for the names of the profiler ranges of ", formats);
    app.add_option("--forward",
                   ranges.forward,
                   which + "a forward; * is any text, {stage} and {micro_batch} are numbers")
        ->type_name("PATTERN");
    app.add_option("--backward", ranges.backward, which + "a backward")->type_name("PATTERN");
    app.add_option("--backward-input", ranges.backward_input, which + "an input gradient")
        ->type_name("PATTERN");
    app.add_option("--backward-weight", ranges.backward_weight, which + "a weight gradient")
        ->type_name("PATTERN");
}

}  // namespace pipetwin::cli

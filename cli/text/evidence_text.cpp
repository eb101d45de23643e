// SPDX-License-Identifier: Apache-2.0
#include "cli/text/evidence_text.h"

#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/number_text.h"

namespace pipetwin::cli {

std::vector<std::string> evidence_lines(const std::vector<NearRun>& runs) {
    std::vector<std::string> lines;
    if (!runs.empty()) {
        lines.emplace_back("nearest published runs, in tokens/s per device:");
    }
    for (const NearRun& near : runs) {
        const PublishedRun& run = near.run;
        lines.push_back(fmt::format(
            "{} on {} {} in {}, {} ({}, {}): measured {}, predicted {}{}",
            run.model,
            run.devices,
            run.device,
            run.precision,
            run.layout,
            run.stack,
            run.year,
            with_separators(std::llround(run.measured)),
            with_separators(std::llround(run.predicted)),
            near.differs.empty() ? ""
                                 : fmt::format("; another {}", fmt::join(near.differs, " and "))));
    }
    return lines;
}

nlohmann::ordered_json evidence_json(const std::vector<NearRun>& runs) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const NearRun& near : runs) {
        const PublishedRun& run = near.run;
        all.push_back({{"model", run.model},
                       {"devices", run.devices},
                       {"device", run.device},
                       {"precision", run.precision},
                       {"layout", run.layout},
                       {"stack", run.stack},
                       {"year", run.year},
                       {"source", run.source},
                       {"predicted", run.predicted},
                       {"measured", run.measured},
                       {"differs", near.differs}});
    }
    return all;
}

}  // namespace pipetwin::cli

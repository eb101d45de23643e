// SPDX-License-Identifier: Apache-2.0
#include "sim/explain/critical_path.h"

#include "sim/explain/causes.h"

namespace pipetwin::sim {

std::vector<CriticalStep> critical_path(const Plan& plan, const Timeline& timeline) {
    const Causes causes(plan, timeline);
    std::vector<CriticalStep> steps;
    if (const auto last = last_span(timeline)) {
        for (const Cause& cause : causes.of_end(*last)) {
            // The parts of a message's way are one piece; an action and its stash's way are two.
            const bool host_copy = cause.reason == Reason::HostCopy;
            if (!steps.empty() && steps.back().action == cause.action &&
                steps.back().host_copy == host_copy) {
                steps.back().end = cause.end;
            } else {
                steps.push_back({.action = cause.action,
                                 .rank = cause.rank,
                                 .begin = cause.begin,
                                 .end = cause.end,
                                 .host_copy = host_copy});
            }
        }
    }
    return steps;
}

}  // namespace pipetwin::sim

// SPDX-License-Identifier: Apache-2.0
#include "cli/text/explanation_text.h"

#include <utility>

#include <fmt/format.h>

#include "cli/text/step_sentences.h"
#include "core/base/number_text.h"

namespace pipetwin::cli {

using sim::Explanation;
using sim::Part;

std::string target_text(const sim::Target& target) {
    const bool all = target.index == sim::everywhere;
    const auto of_stage = [&](std::string_view part, std::string_view parts) {
        return all ? fmt::format("every {}", parts)
                   : fmt::format("stage {}'s {}", target.index, part);
    };
    switch (target.part) {
        case Part::Forward:
            return of_stage("forward", "forward");
        case Part::Backward:
            return of_stage("backward", "backward");
        case Part::BackwardInput:
            return "the input gradient of every backward";
        case Part::BackwardWeight:
            return "the weight gradient of every backward";
        case Part::Recompute:
            return of_stage("recompute", "recompute");
        case Part::Update:
            return "the update of the weights";
        case Part::Reduction:
            return "the sum of gradients";
        case Part::Link:
            return all ? "every link between ranks"
                       : fmt::format(
                             "the link between stages {} and {}", target.index, target.index + 1);
        case Part::NodeLinks:
            return "links between nodes";
        case Part::InnerLinks:
            return "links inside a node";
        case Part::HostLink:
            return "every link to host memory";
        case Part::Rank:
            return fmt::format("rank {}'s device", target.index);
        case Part::Dispatch:
            return "the dispatch of actions by the host";
        case Part::Cores:
            return "the processors that ranks share";
    }
    return "";
}

namespace {

/// For one of several that are as good.
std::string_view other_text(Part part) {
    return part == Part::Link   ? " (or another link)"
           : part == Part::Rank ? " (or another rank's)"
                                : " (or another stage's)";
}

std::vector<std::string> what_would_help(const Explanation& explanation) {
    const Times time(explanation.step);
    std::vector<std::string> lines;
    for (const auto& best : explanation.best_of_kind) {
        const sim::WhatIf& what = best.front();
        const double gain = share(explanation.step - what.step, explanation.step);
        if (!shows_percent(gain) || time.number(what.step) == time.number(explanation.step)) {
            continue;
        }
        const bool others =
            best.size() > 1 && best[1].step == what.step && what.target.index != sim::everywhere;
        const bool cores = what.target.part == Part::Cores;
        lines.push_back(
            fmt::format("{}: {} -> {} (-{}){}",
                        cores ? "twice as many processors"
                              : fmt::format("{}{} twice as fast",
                                            target_text(what.target),
                                            others ? other_text(what.target.part) : ""),
                        time.number(explanation.step),
                        time(what.step),
                        rounded_percent(gain),
                        time.shows(what.least_step)
                            ? fmt::format("; {}: {}",
                                          cores ? "one for each rank" : "infinitely fast",
                                          time(what.least_step))
                            : ""));
    }
    return lines;
}

}  // namespace

std::vector<Paragraph> explanation_paragraphs(const Plan& plan, const Explanation& explanation) {
    std::vector<Paragraph> paragraphs{
        {.heading = "Where the time goes", .lines = where_the_time_goes(plan, explanation)}};
    std::vector<std::string> help = what_would_help(explanation);
    if (!help.empty()) {
        paragraphs.push_back({.heading = "What would help most", .lines = std::move(help)});
    }
    return paragraphs;
}

std::vector<std::string> wait_lines(const Plan& plan,
                                    const Explanation& explanation,
                                    std::size_t most) {
    const Times time(explanation.step);
    std::vector<std::string> lines;
    for (const auto& [wait, chain, slack] : explanation.waits) {
        if (lines.size() == most) {
            break;
        }
        std::string line = fmt::format("rank {}  {} .. {}  {}:",
                                       wait.rank,
                                       time.number(wait.begin),
                                       time(wait.end),
                                       place_of(plan, wait));
        for (const sim::Cause& cause : chain) {
            line += fmt::format("{}{} {} {}",
                                &cause == &chain.front() ? " " : ", ",
                                to_string(cause.action),
                                sim::to_string(cause.reason),
                                time.number(cause.end - cause.begin));
            if (const std::string link = sim::shared_link_name(plan, cause); !link.empty()) {
                line += fmt::format(" ({})", link);
            }
        }
        if (slack && time.shows(*slack)) {
            line += fmt::format("; it could be {} longer without delaying the step", time(*slack));
        }
        lines.push_back(std::move(line));
    }
    return lines;
}

}  // namespace pipetwin::cli

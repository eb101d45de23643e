// SPDX-License-Identifier: Apache-2.0
#include "cli/text/largest_text.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli/text/answer_text.h"
#include "cli/text/plan_text.h"
#include "cli/text/sentences.h"
#include "cli/text/text_output.h"
#include "core/artifacts/plan_json.h"
#include "core/base/as_index.h"
#include "core/base/number_text.h"
#include "sim/questions/whole_plan.h"

namespace pipetwin::cli {

namespace {

/// Number of the model's parameters; none where a layer's number is not known.
std::optional<std::int64_t> parameters(const LargestAnswer& answer) {
    return sim::known_parameters(
        with_copies(answer.profile, answer.repeated, answer.largest.copies));
}

int fullest_rank(const sim::LargestModel& largest) {
    int fullest = 0;
    for (int rank = 1; rank < static_cast<int>(largest.peaks.size()); ++rank) {
        const auto room = [&](int of) {
            return largest.limits[as_index(of)] - largest.peaks[as_index(of)].total();
        };
        fullest = room(rank) < room(fullest) ? rank : fullest;
    }
    return fullest;
}

std::vector<std::string> memory_row(std::string head, const MemoryUse& use) {
    std::vector<std::string> row{std::move(head), format_bytes(use.total())};
    for (const Bytes bytes : use.bytes) {
        row.push_back(format_bytes(bytes));
    }
    return row;
}

/// The fullest rank, and all ranks together at their peaks.
std::string memory_text(const sim::LargestModel& largest) {
    std::vector<std::string> head{"", "total"};
    for (int kind = 0; kind < memory_kind_count; ++kind) {
        head.emplace_back(to_string(static_cast<MemoryKind>(kind)));
    }
    MemoryUse all;
    for (const MemoryUse& peak : largest.peaks) {
        for (std::size_t kind = 0; kind < all.bytes.size(); ++kind) {
            all.bytes[kind] += peak.bytes[kind];
        }
    }
    const int fullest = fullest_rank(largest);
    return text_table(
        {head,
         memory_row(fmt::format("rank {}", fullest), largest.peaks[as_index(fullest)]),
         memory_row("all", all)});
}

std::string next_text(const sim::LargestModel& largest) {
    if (largest.is_most) {
        return "A model cannot have more layers; memory has room left.";
    }
    if (!largest.next) {
        return fmt::format("With one more layer there is no such plan: {}.", largest.why_no_plan);
    }
    const sim::ClosestPlan& next = *largest.next;
    return fmt::format("One more does not fit: rank {} would need {}, {} more than its {}.",
                       next.rank,
                       format_bytes(next.peak),
                       format_bytes(next.peak - next.limit),
                       format_bytes(next.limit));
}

/// One mode for all, or what the scenario writes down.
RecomputeRules rules_of(const LargestAnswer& answer) {
    const sim::ScheduleChoice& choice = answer.largest.candidate.choice;
    return choice.recompute_by_rank ? answer.scenario.pipeline.recompute.value_or(Recompute::None)
                                    : choice.recompute;
}

}  // namespace

Error nothing_fits(const LargestAnswer& answer) {
    const sim::LargestModel& largest = answer.largest;
    return {ErrorKind::Infeasible,
            answer.scenario.file.string(),
            fmt::format(
                "{} layer like {} fits\n{}",
                largest.complete ? "not even one" : "until the search was ended, no",
                fmt::join(copy_names(answer.profile, answer.repeated), " + "),
                largest.next ? closest_text(answer.scenario, *largest.next) : largest.why_no_plan),
            "more devices (cluster.count), devices with more memory, or leave more of [pipeline] "
            "open"};
}

std::string largest_text(const LargestAnswer& answer, const Console& console) {
    const sim::LargestModel& largest = answer.largest;
    const std::vector<std::string> copy = copy_names(answer.profile, answer.repeated);
    const std::optional<std::int64_t> count = parameters(answer);
    Paragraph found{.heading = "The largest model",
                    .lines = {fmt::format("{} fit{}, each like {}; the profile has {}.",
                                          counted(largest.copies, "layer"),
                                          largest.copies == 1 ? "s" : "",
                                          fmt::join(copy, " + "),
                                          answer.repeated.copies)}};
    if (count) {
        found.lines.push_back(
            fmt::format("The model then has {} parameters.", large_count(*count)));
    }
    found.lines.push_back(fmt::format(
        "The plan: {}.", candidate_text(answer.scenario, largest.candidate, rules_of(answer))));
    found.lines.push_back(next_text(largest));
    const std::string plans = counted(static_cast<int>(largest.candidates), "plan");
    found.lines.push_back(largest.tried == largest.candidates
                              ? fmt::format("The search tried every possible plan ({}).", plans)
                              : fmt::format("The search tried {} of {} that are possible; {}.",
                                            largest.tried,
                                            plans,
                                            largest.complete
                                                ? "no other has memory for more layers"
                                                : "it was ended, so others may hold more layers"));
    return paragraph_text(found, console.width()) + "\nPeak memory\n" + memory_text(largest) +
           '\n' +
           pipeline_keys(answer.scenario, largest.candidate, largest.partition, rules_of(answer));
}

Json largest_json(const LargestAnswer& answer) {
    const sim::LargestModel& largest = answer.largest;
    const std::optional<std::int64_t> count = parameters(answer);
    Json one{{"layers", largest.copies},
             {"layers_in_profile", answer.repeated.copies},
             {"repeated", copy_names(answer.profile, answer.repeated)},
             {"parameters", count ? Json(*count) : Json(nullptr)}};
    one.update(candidate_json(largest.candidate));
    one["recompute"] =
        recompute_json(rules_of(answer), largest.candidate.choice.costs.layer_recompute);
    one["partition"] = largest.partition;
    one["channel_capacity"] = largest.channel_capacity;
    one["devices"] = Json::array();
    for (std::size_t rank = 0; rank < largest.peaks.size(); ++rank) {
        one["devices"].push_back({{"rank", rank},
                                  {"peak_bytes", peak_json(largest.peaks[rank], true)},
                                  {"limit_bytes", largest.limits[rank].count}});
    }
    one["next"] = nullptr;
    if (!largest.is_most) {
        const auto& next = largest.next;
        const bool known = next.has_value();
        one["next"] = {{"layers", largest.copies + 1},
                       {"partition", known ? Json(next->partition) : Json(nullptr)},
                       {"rank", known ? Json(next->rank) : Json(nullptr)},
                       {"peak_bytes", known ? Json(next->peak.count) : Json(nullptr)},
                       {"limit_bytes", known ? Json(next->limit.count) : Json(nullptr)},
                       {"why", known ? Json(nullptr) : Json(largest.why_no_plan)}};
    }
    one["complete"] = largest.complete;
    one["open"] = largest.candidates;
    one["tried"] = largest.tried;
    Json json = json_head();
    json["largest"] = std::move(one);
    return json;
}

}  // namespace pipetwin::cli

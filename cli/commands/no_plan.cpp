// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/no_plan.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "cli/base/progress.h"
#include "cli/base/stop_wish.h"
#include "cli/text/plan_text.h"
#include "cli/text/sentences.h"
#include "core/base/number_text.h"
#include "core/costs/profile.h"
#include "core/model/model.h"
#include "core/scenario/scenario.h"
#include "sim/questions/node_counts.h"

namespace pipetwin::cli {

namespace {

/// What to do where the only schedule that was asked for has a rule that shapes break; empty: there
/// is none.
std::string hint_for_schedule(const Scenario& scenario, const sim::SearchResult& result) {
    const std::optional<std::string>& schedule = scenario.pipeline.schedule.known();
    const bool breaks_rule =
        schedule && std::ranges::any_of(result.infeasible, [&](const sim::Infeasible& entry) {
            return entry.reason == ErrorReason::ScheduleRule;
        });
    return breaks_rule ? fmt::format(
                             "leave the schedule open, or name others: the rule of {} "
                             "leaves too few shapes",
                             *schedule)
                       : "";
}

/// Asks `sim::enough_nodes`, until the user has waited long enough.
std::optional<int> enough_nodes(const sim::NodesOfModel& nodes,
                                const Profile& profile,
                                int first,
                                Console& console) {
    const StopWish stop(console);
    Progress progress(console, "looking for a number of nodes that is enough");
    const std::optional<int> enough =
        sim::enough_nodes(nodes, profile, first, [&](std::optional<double> share) {
            if (share) {
                progress.update(*share, "");
            }
            return !stop.is_asked();
        });
    stop.expect_wanted(true);
    return enough;
}

constexpr std::string_view or_less = "or use a smaller model or shorter sequences (--sequence)";

/// What helps, if weights, gradients and optimizer state alone need `least` nodes; the cluster may
/// have more.
std::string hint_for_memory(const sim::NodesOfModel& nodes, int least, std::optional<int> enough) {
    if (enough) {
        return fmt::format(
            "a plan fits on {} (--nodes {}); {}", counted(*enough, "node"), *enough, or_less);
    }
    return least > nodes.count
               ? fmt::format(
                     "use more nodes (--nodes): weights, gradients and optimizer state "
                     "alone need at least {}; {}",
                     least,
                     or_less)
               : fmt::format("use more nodes (--nodes), {}", or_less);
}

/// What helps where no plan of a model by its name can be run.
std::string hint_for_model(const Scenario& scenario,
                           const Model& model,
                           const Profile& profile,
                           const sim::NodesOfModel& nodes,
                           const sim::SearchResult& result,
                           Console& console) {
    const auto is_there = [&](ErrorReason reason) {
        return std::ranges::count(result.infeasible, reason, &sim::Infeasible::reason) > 0;
    };
    constexpr std::string_view name_the_network =
        "name the network between the nodes, as in --set cluster.node_link=ethernet-25";
    const bool lacks_memory = is_there(ErrorReason::Memory);
    const int least =
        lacks_memory ? sim::least_nodes(scenario, model, profile, nodes.count, result) : 1;
    if (least <= nodes.count && is_there(ErrorReason::NoNetwork)) {
        return std::string(name_the_network);
    }
    if (!lacks_memory) {
        return "leave out a --set pipeline.KEY, or use another number of nodes (--nodes)";
    }
    const bool has_network =
        !scenario.cluster.node_link.empty() || scenario.cluster.node_link_gbps > 0;
    if (!has_network) {
        return fmt::format("{}; {}", hint_for_memory(nodes, least, std::nullopt), name_the_network);
    }
    const int first = std::max(least, nodes.count + 1);
    return hint_for_memory(
        nodes,
        least,
        result.complete ? enough_nodes(nodes, profile, first, console) : std::nullopt);
}

}  // namespace

void expect_unit_of_limit(const Scenario& scenario, const Profile& profile) {
    constexpr std::int64_t most_without_unit = 1024;
    const std::optional<Bytes>& limit = scenario.cluster.memory_limit;
    if (!limit || limit->count > most_without_unit) {
        return;
    }
    std::int64_t weights = -profile.tied_bytes.count;
    for (const LayerCost& layer : profile.layers) {
        weights += layer.parameter_bytes.count;
    }
    if (limit->count * std::max(1, scenario.cluster.count) < weights) {
        throw Error(ErrorKind::BadInput,
                    KeyValue{"cluster.memory_limit"},
                    fmt::format("{} for each device, but the weights of the model are {}",
                                format_bytes(*limit),
                                format_bytes(Bytes{weights})),
                    {fmt::format("did you mean \"{} GiB\"?", limit->count),
                     {{"cluster.memory_limit", fmt::format("\"{} GiB\"", limit->count)}}});
    }
}

Error no_plan(const Scenario& scenario,
              const Model& model,
              const Profile& profile,
              const sim::NodesOfModel& nodes,
              const sim::SearchResult& result,
              Console& console) {
    const Error lacking = nothing_fits(scenario, profile, result);
    if (const std::string hint = hint_for_schedule(scenario, result); !hint.empty()) {
        return lacking.with_hint(hint);
    }
    if (nodes.count == 0) {
        return lacking;
    }
    return lacking
        .with_text(fmt::format(
            "on {} x {} {}", scenario.cluster.count, scenario.cluster.device, lacking.text()))
        .with_hint(lacking.reason() == ErrorReason::SharingFits
                       ? lacking.advice()
                       : hint_for_model(scenario, model, profile, nodes, result, console));
}

}  // namespace pipetwin::cli

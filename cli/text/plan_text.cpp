// SPDX-License-Identifier: Apache-2.0
#include "cli/text/plan_text.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli/text/ranked_table.h"
#include "cli/text/sentences.h"
#include "cli/text/text_output.h"
#include "core/artifacts/plan_json.h"
#include "core/base/number_text.h"
#include "core/base/printable.h"
#include "core/costs/estimate_error.h"
#include "core/costs/profile.h"
#include "core/model/model.h"
#include "core/scenario/scenario_key.h"
#include "core/scenario/scenario_tables.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/generators/schedule_traits.h"
#include "sim/search/largest_model.h"

namespace pipetwin::cli {

namespace {

constexpr std::size_t most_in_json = 50;

using sim::Candidate;
using sim::FoundPlan;

int micro_batch_size(const Scenario& scenario, const Candidate& candidate) {
    const int samples = scenario.training.batch / candidate.shape.data_parallel;
    return samples / std::min(samples, candidate.shape.micro_batches);
}

/// What a scenario can say and a search does not try: "zb-auto", "schedules from files", ...
std::vector<std::string> not_tried(const Scenario& scenario, const sim::SearchResult& result) {
    const Scenario::PipelinePart& pipeline = scenario.pipeline;
    const bool trains = scenario.model.kind != ModelKind::Profile;
    std::vector<std::string> all;
    if (pipeline.schedule.is_auto() && pipeline.schedule.choices().empty()) {
        for (const ScheduleName& known : known_schedules()) {
            const ScheduleTraits& row = schedule_traits(known.kind);
            if (row.searched == Searched::No && row.trains && !row.stale_gradients) {
                all.emplace_back(row.name);
            }
        }
        all.emplace_back("schedules from files");
    }
    const auto may_group = [](const std::string& name) { return schedule_traits(name).has_groups; };
    const bool has_groups = !pipeline.schedule.is_auto()
                                ? !has_schedule_file(scenario) && may_group(*pipeline.schedule)
                                : pipeline.schedule.choices().empty() ||
                                      std::ranges::any_of(pipeline.schedule.choices(), may_group);
    if (has_groups && pipeline.group_size == 0) {
        all.emplace_back("group_size");
    }
    if (pipeline.deferred_weights == 0) {
        all.emplace_back("deferred_weights");
    }
    if (pipeline.data_parallel != 1) {
        if (!pipeline.overlap_reduction) {
            all.emplace_back("overlap_reduction");
        }
        if (pipeline.shard == Shard::None) {
            all.emplace_back("shard");
        }
        if (pipeline.shard.is_auto()) {
            all.emplace_back("unsharded replicas with several stages per rank");
        }
        if (pipeline.shard.is_auto() && !pipeline.shard.allows(Shard::Weights)) {
            all.emplace_back("sharding of gradients and weights");
        }
    }
    if (pipeline.tensor_parallel != 1 && pipeline.sequence_parallel != true) {
        if (!pipeline.sequence_parallel.is_auto() || result.leaves_out_sequence_parallel) {
            all.emplace_back("sequence_parallel");
        }
        if (trains ? pipeline.scatter_boundaries != true : pipeline.scatter_boundaries == false) {
            all.emplace_back("scatter_boundaries");
        }
    }
    if (pipeline.offload == Offload::None) {
        all.emplace_back("offload");
    }
    if (pipeline.recompute.is_auto()) {
        all.emplace_back(
            trains ? "recompute of core attention, of groups of blocks and of other stages than "
                     "those above"
                   : "recompute of groups of blocks and of other stages than those above");
    }
    return all;
}

/// "a, b and c".
std::string enumerated(std::vector<std::string> words) {
    const std::string last = std::move(words.back());
    words.pop_back();
    return words.empty() ? last : fmt::format("{} and {}", fmt::join(words, ", "), last);
}

/// Candidates whose fastest plan is no slower than the best by more than predictions are off: so
/// many rows of the table.
std::int64_t within_error(const sim::SearchResult& result) {
    const Duration most =
        scaled(result.ranked.front().step, 1 + order_error(result.cost_source, result.stack));
    return std::ranges::count_if(sim::fastest_of_each_candidate(result.ranked),
                                 [most](const FoundPlan& plan) { return plan.step <= most; });
}

/// What the order of the plans is worth: "Estimates of two plans ..., these 5 are within that".
std::string order_text(const sim::SearchResult& result) {
    constexpr std::int64_t most_to_measure = 5;
    const std::int64_t near = within_error(result);
    const std::string error =
        fmt::format("{:.0f} %", 100 * order_error(result.cost_source, result.stack));
    const std::string known =
        result.cost_source == CostSource::Estimated || result.cost_source == CostSource::Datasheet
            ? fmt::format(
                  "Estimates rank two plans correctly in 90 % of cases if the plans are {} apart",
                  error)
            : fmt::format("Predictions from {} costs are off by up to {}",
                          to_string(result.cost_source),
                          error);
    if (near == 1) {
        return fmt::format("{}. No other simulated plan is that close to the best.", known);
    }
    const std::string closer =
        fmt::format("The {} fastest plans are within that of the best", near);
    return near <= most_to_measure
               ? fmt::format("{}. {}: measure all of them.", known, closer)
               : fmt::format("{}. {}: measure as many of them as you can.", known, closer);
}

std::string proof_text(const Scenario& scenario, const sim::SearchResult& result) {
    const Duration best = result.ranked.front().step;
    const auto saving = [best](Duration bound) {
        return fmt::format("{:.2f} %", 100 * (1 - to_seconds(bound) / to_seconds(best)));
    };
    if (!result.complete) {
        return fmt::format(
            "Not proven optimal: the search ended early. No other plan takes less than {}, {} less "
            "than the best.",
            format_duration(result.any_partition_bound),
            saving(result.any_partition_bound));
    }
    std::string text =
        "Proven optimal within the model of costs: no other plan that was searched is faster, "
        "with any partition";
    if (result.lower_bound < best) {
        text = fmt::format("Not proven optimal: plans were left out that could save at most {}",
                           saving(result.any_partition_bound));
    } else if (!result.proven_optimal) {
        text = fmt::format(
            "Not proven optimal: some plans have too many partitions to try all, and those left "
            "out "
            "could save at most {}",
            saving(result.any_partition_bound));
    }
    if (std::vector<std::string> others = not_tried(scenario, result);
        result.any_order_bound < best && !others.empty()) {
        text += fmt::format("; what is not searched ({}) could save at most {}",
                            enumerated(std::move(others)),
                            saving(result.any_order_bound));
    }
    return text + '.';
}

/// The numbers of all combinations: "66,836 combinations were considered: 12 were simulated, ...".
std::string counts_of(const sim::SearchResult& result) {
    std::int64_t infeasible = 0;
    std::int64_t without_costs = 0;
    for (const sim::Infeasible& entry : result.infeasible) {
        (entry.reason == ErrorReason::NoCosts ? without_costs : infeasible) += entry.count;
    }
    std::set<Candidate> found;
    std::ranges::transform(result.ranked, std::inserter(found, found.end()), &FoundPlan::candidate);
    const std::int64_t repeated = result.searched - std::ssize(found);
    std::string text = fmt::format("{} {} considered: {} {} simulated",
                                   with_separators(result.candidates) +
                                       (result.candidates == 1 ? " combination" : " combinations"),
                                   verb_for(result.candidates, "was", "were"),
                                   with_separators(result.searched),
                                   verb_for(result.searched, "was", "were"));
    if (repeated > 0) {
        text += fmt::format(" ({} of them {} the same plan as another)",
                            with_separators(repeated),
                            verb_for(repeated, "is", "are"));
    }
    if (result.pruned > 0) {
        text += fmt::format(", {} cannot be faster than the best with any partition",
                            with_separators(result.pruned));
    }
    if (infeasible > 0) {
        text += fmt::format(", {} cannot run on these devices", with_separators(infeasible));
    }
    if (without_costs > 0) {
        text += fmt::format(", {} {} larger micro-batches than the costs cover",
                            with_separators(without_costs),
                            verb_for(without_costs, "has", "have"));
    }
    return text;
}

std::vector<std::string> counts_text(const sim::SearchResult& result) {
    std::vector<std::string> lines{counts_of(result) + '.'};
    constexpr std::size_t most_reasons = 3;
    for (std::size_t i = 0; i < std::min(most_reasons, result.infeasible.size()); ++i) {
        const sim::Infeasible& entry = result.infeasible[i];
        lines.push_back(fmt::format(
            "{}: {} (for example {}, {}{})",
            with_separators(entry.count),
            first_line(entry.why),  // the rest explains a deadlock
            stages_text(entry.example.shape.stages, entry.example.choice.chunks),
            counted(entry.example.shape.micro_batches, "micro-batch"),
            entry.example.choice.schedule.empty() ? "" : ", " + entry.example.choice.schedule));
    }
    std::int64_t others = 0;
    for (std::size_t i = most_reasons; i < result.infeasible.size(); ++i) {
        others += result.infeasible[i].count;
    }
    if (others > 0) {
        lines.push_back(
            fmt::format("{}: other reasons; --json lists them", with_separators(others)));
    }
    return lines;
}

/// Sentence that compares the best plan with those of one stage; none where no plan of one stage
/// was simulated, or `scenario` fixes the number of stages.
std::optional<std::string> without_pipeline(const Scenario& scenario,
                                            const sim::SearchResult& result) {
    if (!scenario.pipeline.stages.is_auto()) {
        return std::nullopt;
    }
    const FoundPlan& best = result.ranked.front();
    if (best.candidate.shape.stages == 1) {
        return std::string("Pipelining does not help here: one stage is the fastest plan.");
    }
    const auto alone = std::ranges::find(
        result.ranked, 1, [](const FoundPlan& plan) { return plan.candidate.shape.stages; });
    if (alone == result.ranked.end()) {
        return std::nullopt;
    }
    return fmt::format(
        "Without a pipeline the fastest simulated plan takes {}, {:.2f} times as "
        "long, on {}.",
        format_duration(alone->step),
        to_seconds(alone->step) / to_seconds(best.step),
        counted(alone->candidate.shape.devices(), "device"));
}

/// Options that open what devices may share, where a plan fits then; empty: nothing is closed, or
/// nothing fits all the same.
std::string sharing_that_fits(Scenario scenario, const Profile& profile) {
    Scenario::PipelinePart& pipeline = scenario.pipeline;
    const bool opens_tensor =
        pipeline.tensor_parallel == 1 && scenario.cluster.domain_devices() > 1;
    const bool opens_shard = !pipeline.shard.is_auto() || !pipeline.shard.allows(Shard::Weights);
    const bool counts_devices = scenario.cluster.count > 0;
    if (!pipeline.partition.is_auto() || !counts_devices || (!opens_tensor && !opens_shard)) {
        return "";
    }
    if (opens_tensor) {
        pipeline.tensor_parallel.open();
        pipeline.sequence_parallel.open();
    }
    if (opens_shard) {
        pipeline.shard.open();
    }
    const Model model = scenario_model(scenario, &profile);
    sim::SearchOptions any;
    any.progress = [](const sim::SearchProgress& now) { return !now.best.has_value(); };
    any.finds_closest = false;
    const sim::SearchResult fitting = sim::search_plans(scenario, model, profile, any);
    if (fitting.ranked.empty()) {
        return "";
    }
    const Candidate& candidate = fitting.ranked.front().candidate;
    std::string options;
    if (opens_tensor && candidate.shape.tensor_parallel > 1) {
        options += " --set pipeline.tensor_parallel=auto";
    }
    if (opens_shard && candidate.choice.costs.shard != Shard::None) {
        options += " --set pipeline.shard=auto";
    }
    return options;
}

std::string_view word_of(const sim::ScheduleChoice& choice) {
    return choice.costs.layer_recompute != LayerRecompute::None
               ? to_string(choice.costs.layer_recompute)
           : choice.recompute_by_rank ? "by rank"
                                      : to_string(choice.recompute);
}

/// Degrees that divide samples and experts, by their keys, where they do.
std::vector<std::pair<std::string_view, int>> division_keys(const sim::Shape& shape) {
    std::vector<std::pair<std::string_view, int>> keys;
    if (shape.context_parallel > 1) {
        keys.emplace_back("context_parallel", shape.context_parallel);
    }
    if (shape.expert_parallel > 1) {
        keys.emplace_back("expert_parallel", shape.expert_parallel);
    }
    if (shape.divides_experts() && shape.tensor_parallel > 1) {
        keys.emplace_back("expert_tensor_parallel", shape.expert_tensor_devices());
    }
    return keys;
}

/// What replicas and devices of a rank share.
Json shares_json(const sim::ScheduleChoice& choice) {
    return {{"shard", to_string(choice.costs.shard)},
            {"sequence_parallel", choice.costs.sequence_parallel},
            {"scatter_boundaries", choice.costs.scatter_boundaries}};
}

}  // namespace

namespace {

std::string with_recompute(const Scenario& scenario,
                           const Candidate& candidate,
                           std::string_view recompute) {
    const sim::Shape& shape = candidate.shape;
    const sim::ScheduleChoice& choice = candidate.choice;
    const bool is_pipeline = shape.stages > 1 || choice.chunks > 1;
    std::string text = fmt::format("{}{}, {} of {}{}",
                                   stages_text(shape.stages, choice.chunks),
                                   is_pipeline ? "" : " (no pipeline)",
                                   counted(shape.micro_batches, "micro-batch"),
                                   counted(micro_batch_size(scenario, candidate), "sample"),
                                   is_pipeline ? ", " + choice.schedule : "");
    text += fmt::format(", recompute {}", recompute);
    if (shape.data_parallel > 1) {
        text += fmt::format(", {}", counted(shape.data_parallel, "replica"));
    }
    if (shape.has_replicas() && choice.costs.shard != Shard::None) {
        text += fmt::format(", shard {}", to_string(choice.costs.shard));
    }
    if (shape.tensor_parallel > 1) {
        text += fmt::format(", {} devices per rank{}{}",
                            shape.tensor_parallel,
                            choice.costs.sequence_parallel ? ", sequence parallel" : "",
                            choice.costs.scatter_boundaries ? ", scattered boundaries" : "");
    }
    if (shape.context_parallel > 1) {
        text += fmt::format(", samples in {} parts", shape.context_parallel);
    }
    if (shape.divides_experts()) {
        text += fmt::format(", experts in {}", counted(shape.expert_parallel, "part"));
    }
    if (shape.divides_experts() && shape.tensor_parallel > 1) {
        text += fmt::format(", {} per expert", counted(shape.expert_tensor_devices(), "device"));
    }
    return text;
}

}  // namespace

namespace {

/// "mlp on stages 0 to 3, mlp:3 and layernorm on stage 4": lists that are not empty, with the runs
/// of stages that have them.
std::string modules_text(const ModuleLists& modules) {
    const std::vector<RecomputeModules>& lists = modules.of_piece;
    std::vector<std::string> runs;
    for (std::size_t first = 0; first < lists.size();) {
        std::size_t end = first;
        while (end < lists.size() && lists[end] == lists[first]) {
            ++end;
        }
        if (!lists[first].empty()) {
            runs.push_back(fmt::format("{} on {}",
                                       enumerated(words_of(lists[first])),
                                       end - first == 1
                                           ? fmt::format("stage {}", first)
                                           : fmt::format("stages {} to {}", first, end - 1)));
        }
        first = end;
    }
    return fmt::format("{}", fmt::join(runs, ", "));
}

/// A list of words for each stage.
Json modules_json(const ModuleLists& modules) {
    Json lists = Json::array();
    for (const RecomputeModules& list : modules.of_piece) {
        lists.push_back(words_of(list));
    }
    return lists;
}

}  // namespace

std::string candidate_text(const Scenario& scenario,
                           const Candidate& candidate,
                           const RecomputeRules& recompute,
                           const ModuleLists& modules) {
    const LayerRecompute of_layers = candidate.choice.costs.layer_recompute;
    return with_recompute(scenario,
                          candidate,
                          of_layers != LayerRecompute::None ? std::string(to_string(of_layers))
                          : !modules.empty()                ? modules_text(modules)
                                                            : to_string(recompute));
}

Json candidate_json(const Candidate& candidate) {
    Json json{{"stages", candidate.shape.stages},
              {"chunks", candidate.choice.chunks},
              {"micro_batches", candidate.shape.micro_batches},
              {"schedule", candidate.choice.schedule},
              {"recompute", word_of(candidate.choice)},
              {"data_parallel", candidate.shape.data_parallel},
              {"tensor_parallel", candidate.shape.tensor_parallel}};
    json.update(shares_json(candidate.choice));
    for (const auto& [key, degree] : division_keys(candidate.shape)) {
        json[std::string(key)] = degree;
    }
    return json;
}

Json found_plan_json(const FoundPlan& plan) {
    Json json = candidate_json(plan.candidate);
    json["recompute"] = recompute_json(plan.recompute, plan.candidate.choice.costs.layer_recompute);
    if (plan.candidate.choice.costs.modules) {
        json["recompute_modules"] = modules_json(plan.modules);
    }
    json["partition"] = plan.partition;
    json["step_ms"] = to_milliseconds(plan.step);
    json["samples_per_second"] =
        plan.samples_per_second ? Json(*plan.samples_per_second) : Json(nullptr);
    json["bubble_total"] = plan.bubble;
    json["peak_bytes"] = plan.peak.count;
    json["finished"] = plan.finished;
    return json;
}

std::string pipeline_keys(const Scenario& scenario,
                          const Candidate& candidate,
                          const std::vector<int>& partition,
                          const RecomputeRules& recompute,
                          const ModuleLists& modules) {
    const sim::Shape& shape = candidate.shape;
    const sim::ScheduleChoice& choice = candidate.choice;
    std::string text = fmt::format(
        "[pipeline]\nstages = {}\nmicro_batches = {}\nschedule = \"{}\"\nchunks = {}\n"
        "recompute = {}\npartition = [{}]\n",
        shape.stages,
        shape.micro_batches,
        choice.schedule,
        choice.chunks,
        recompute_json(recompute, choice.costs.layer_recompute).dump(),
        fmt::join(partition, ", "));
    const Scenario::PipelinePart& written = scenario.pipeline;
    if (choice.costs.layer_recompute == LayerRecompute::Block && written.recompute_blocks > 1) {
        text += fmt::format("recompute_blocks = {}\n", written.recompute_blocks);
    }
    if (choice.costs.layer_recompute == LayerRecompute::Block && written.recompute_only > 0) {
        text += fmt::format("recompute_only = {}\n", written.recompute_only);
    }
    if (!modules.empty()) {
        Scenario planned;
        planned.pipeline.recompute_modules = modules;
        const ScenarioKey& key = key_named(pipetwin::pipeline_keys(), "recompute_modules");
        text += fmt::format("recompute_modules = {}\n", written_value(key, planned));
    }
    if (!written.recompute_timing.is_auto()) {
        text += fmt::format("recompute_timing = \"{}\"\n", to_string(*written.recompute_timing));
    }
    if (shape.data_parallel > 1) {
        text += fmt::format("data_parallel = {}\n", shape.data_parallel);
    }
    if (shape.has_replicas() && choice.costs.shard != Shard::None) {
        text += fmt::format("shard = \"{}\"\n", to_string(choice.costs.shard));
    }
    if (shape.tensor_parallel > 1) {
        text += fmt::format("tensor_parallel = {}\n", shape.tensor_parallel);
        text += choice.costs.sequence_parallel ? "sequence_parallel = true\n" : "";
        text += choice.costs.scatter_boundaries ? "scatter_boundaries = true\n" : "";
    }
    for (const auto& [key, degree] : division_keys(shape)) {
        text += fmt::format("{} = {}\n", key, degree);
    }
    return text;
}

namespace {

/// "9 more plans, among them other partitions of these": plans that a table of the first `shown` of
/// `of_candidates`, the fastest plan of each candidate, leaves out.
std::string hidden_plans(const std::vector<FoundPlan>& ranked,
                         const std::vector<FoundPlan>& of_candidates,
                         std::size_t shown) {
    const std::size_t hidden = ranked.size() - shown;
    const auto is_shown = [&](const FoundPlan& plan) {
        const auto end = of_candidates.begin() + static_cast<std::ptrdiff_t>(shown);
        return std::find_if(of_candidates.begin(), end, [&](const FoundPlan& other) {
                   return other.candidate == plan.candidate;
               }) != end;
    };
    const std::size_t partitions =
        static_cast<std::size_t>(std::ranges::count_if(ranked, is_shown)) - shown;
    return partitions == hidden ? counted(hidden, "other partition") + " of these"
           : partitions == 0    ? counted(hidden, "more plan")
                                : fmt::format("{}, among them {} of these",
                                           counted(hidden, "more plan"),
                                           counted(partitions, "other partition"));
}

}  // namespace

std::string search_text(const Scenario& scenario,
                        const sim::SearchResult& result,
                        const Console& console) {
    const std::vector<FoundPlan> plans = sim::fastest_of_each_candidate(result.ranked);
    std::string text = ranked_table(scenario, plans, console.width());
    const std::size_t shown = std::min(plans.size(), most_ranked);
    if (result.ranked.size() > shown) {
        text += fmt::format("  not shown: {}; --json lists {}\n",
                            hidden_plans(result.ranked, plans, shown),
                            std::min(result.ranked.size(), most_in_json));
    }
    Paragraph proof{.heading = "What is proven",
                    .lines = {proof_text(scenario, result), order_text(result)}};
    std::ranges::move(counts_text(result), std::back_inserter(proof.lines));
    if (auto line = without_pipeline(scenario, result)) {
        proof.lines.push_back(*std::move(line));
    }
    return text + '\n' + paragraph_text(proof, console.width());
}

std::string not_tried_text(const Scenario& scenario, const sim::SearchResult& result) {
    const auto is_closed = [](const OrAuto<int>& key) {
        return key.value_or(1) == 1 && !(key.is_auto() && key.choices().empty());
    };
    const bool context = is_closed(scenario.pipeline.context_parallel);
    const bool experts = is_closed(scenario.pipeline.expert_parallel);
    std::string text = context && experts ? "not searched: context and expert parallelism"
                       : context          ? "not searched: context parallelism"
                       : experts          ? "not searched: expert parallelism"
                                          : "not searched";
    if (std::vector<std::string> axes = not_tried(scenario, result); !axes.empty()) {
        constexpr std::size_t most_named = 3;
        const double saving =
            1 - to_seconds(result.any_order_bound) / to_seconds(result.ranked.front().step);
        const std::size_t more = axes.size() - std::min(most_named, axes.size());
        axes.resize(axes.size() - more);
        if (more > 0) {
            axes.push_back(fmt::format("{} more", more));
        }
        text += fmt::format("{} {} (could save at most {}, see What is proven)",
                            context || experts ? ";" : ":",
                            enumerated(std::move(axes)),
                            rounded_percent(std::max(0.0, saving)));
    }
    return text == "not searched" ? counts_of(result) : text + "; " + counts_of(result);
}

Json search_json(const Scenario& scenario, const sim::SearchResult& result, Json best) {
    const FoundPlan& first = result.ranked.front();
    best["partition"] = first.partition;
    best["recompute"] =
        recompute_json(first.recompute, first.candidate.choice.costs.layer_recompute);
    if (first.candidate.choice.costs.modules) {
        best["recompute_modules"] = modules_json(first.modules);
    }
    best.update(shares_json(first.candidate.choice));
    Json json = json_head();
    json["stack"] = best["stack"];
    json["evidence"] = best["evidence"];
    json["best"] = std::move(best);
    json["candidates"] = Json::array();
    for (std::size_t i = 0; i < std::min(result.ranked.size(), most_in_json); ++i) {
        json["candidates"].push_back(found_plan_json(result.ranked[i]));
    }
    json["lower_bound_ms"] = to_milliseconds(result.lower_bound);
    json["proven_optimal"] = result.proven_optimal;
    json["order_error_percent"] = 100 * order_error(result.cost_source, result.stack);
    json["within_error"] = within_error(result);
    json["any_partition_bound_ms"] = to_milliseconds(result.any_partition_bound);
    json["any_order_bound_ms"] = to_milliseconds(result.any_order_bound);
    json["not_tried"] = not_tried(scenario, result);
    json["open"] = result.candidates;
    json["searched"] = result.searched;
    json["pruned"] = result.pruned;
    json["infeasible"] = Json::array();
    for (const sim::Infeasible& entry : result.infeasible) {
        Json one{{"why", entry.why}, {"count", entry.count}};
        one["example"] = candidate_json(entry.example);
        json["infeasible"].push_back(std::move(one));
    }
    return json;
}

std::string closest_text(const Scenario& scenario, const sim::ClosestPlan& closest) {
    const Candidate& candidate = closest.candidate;
    return fmt::format("closest to fitting: {}: {} {} needs {}, {} more than the {} that it has",
                       with_recompute(scenario, candidate, word_of(candidate.choice)),
                       candidate.shape.tensor_parallel > 1 ? "a device of rank" : "rank",
                       closest.rank,
                       format_bytes(closest.peak),
                       format_bytes(closest.peak - closest.limit),
                       format_bytes(closest.limit));
}

Error nothing_fits(const Scenario& scenario,
                   const Profile& profile,
                   const sim::SearchResult& result) {
    std::string text = result.candidates == 1 ? "the only plan cannot be run"
                                              : fmt::format("none of {} plans can be run",
                                                            with_separators(result.candidates));
    bool memory = false;
    for (const sim::Infeasible& entry : result.infeasible) {
        text += fmt::format("\n  {}: {}", with_separators(entry.count), entry.why);
        memory = memory || entry.reason == ErrorReason::Memory;
    }
    const auto all = [&result](const auto& is_so) {
        return !result.infeasible.empty() && std::ranges::all_of(result.infeasible, is_so);
    };
    if (all([](const sim::Infeasible& entry) { return entry.reason == ErrorReason::NoCosts; })) {
        return Error(ErrorKind::BadInput,
                     scenario.file.string(),
                     text,
                     "profile the layers at these sizes, or leave pipeline.micro_batches open")
            .about("pipeline.micro_batches");
    }
    if (all([](const sim::Infeasible& entry) { return entry.kind == ErrorKind::BadInput; })) {
        return {ErrorKind::BadInput, scenario.file.string(), text, result.infeasible.front().hint};
    }
    const std::optional<sim::ClosestPlan> closest =
        result.closest || !memory ? result.closest : sim::closest_plan(scenario, profile);
    if (!closest) {
        return Error(ErrorKind::Infeasible,
                     scenario.file.string(),
                     text,
                     "leave more of [pipeline] open, or set cluster.count to more devices")
            .about("cluster.count");
    }
    text += '\n' + closest_text(scenario, *closest);
    if (const std::string options = sharing_that_fits(scenario, profile); !options.empty()) {
        return Error(ErrorKind::Infeasible,
                     scenario.file.string(),
                     text,
                     "a plan fits where devices share layers or state:" + options)
            .because(ErrorReason::SharingFits);
    }
    return Error(ErrorKind::Infeasible,
                 scenario.file.string(),
                 text,
                 "more devices (cluster.count), devices with more memory, or a smaller model or "
                 "micro-batch")
        .about("cluster.count");
}

}  // namespace pipetwin::cli

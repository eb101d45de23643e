// SPDX-License-Identifier: Apache-2.0
#include "gui/view/what_if/what_if.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/median.h"
#include "core/base/number_text.h"
#include "core/interop/traces/torch_trace.h"
#include "core/plan/plain_plan.h"
#include "core/scenario/cost_table.h"
#include "core/scenario/plan_rows.h"
#include "core/scenario/planner.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/generators/schedule_traits.h"
#include "core/schedule/schedule_csv.h"
#include "core/timeline/footprint.h"
#include "gui/view/run/planned_run.h"
#include "sim/engine/record_links.h"
#include "sim/explain/breakdown.h"
#include "sim/simulate/settled_capacity.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::gui {

namespace {

std::string joined_lines(std::string text) {
    std::ranges::replace(text, '\n', ' ');
    return text;
}

/// Numbers of chunks that the schedule takes; with more a rank would hardly gain anything.
std::vector<int> chunks_of(const std::string& schedule) {
    switch (schedule_traits(schedule).chunks) {
        case ChunkCounts::One:
            return {1};
        case ChunkCounts::Two:
            return {2};
        case ChunkCounts::Several:
            return {1, 2, 3, 4, 5, 6, 7, 8};
    }
    PIPETWIN_EXPECT(false, "number of chunks out of range");
}

/// The run's own plan, where the settings are its own.
bool same_links(const WhatIf& settings) {
    return !settings.gigabytes_per_second && !settings.latency_us;
}

std::vector<std::vector<StageCost>> scaled_costs(const Plan& plan,
                                                 const std::vector<double>& scales) {
    std::vector<std::vector<StageCost>> costs = plan->costs;
    for (std::vector<StageCost>& of_class : costs) {
        for (std::size_t stage = 0; stage < of_class.size(); ++stage) {
            const int piece = model_stage_of(plan->schedule, static_cast<int>(stage));
            const double scale = scales.at(as_index(piece));
            StageCost& cost = of_class[stage];
            const auto other = [scale](Duration time) { return scaled(time, scale); };
            const auto change = [&other](Duration& time, const ActionMessages& messages) {
                time = with_computation(time, {&messages}, other);
            };
            change(cost.forward, cost.forward_messages);
            change(cost.recompute, cost.forward_messages);
            change(cost.backward_input, cost.backward_input_messages);
            change(cost.backward_weight, cost.backward_weight_messages);
            for (ActionMessages* const messages : {&cost.forward_messages,
                                                   &cost.backward_input_messages,
                                                   &cost.backward_weight_messages}) {
                *messages = with_computation(std::move(*messages), other);
            }
            // The halves are rounded one by one, and the whole has to be their sum where it was.
            cost.backward = cost.backward_input + cost.backward_weight;
        }
    }
    return costs;
}

Plan with_scale(Plan plan, const WhatIf& settings) {
    const bool plain = std::ranges::all_of(settings.cost_scale, [](double s) { return s == 1; });
    if (plain) {
        return plan;
    }
    const std::size_t pieces = as_index(model_stage_count(plan->schedule));
    if (settings.cost_scale.size() != pieces) {
        throw Error(ErrorKind::BadInput,
                    "",
                    fmt::format("{} of costs for {}",
                                counted(settings.cost_scale.size(), "scale"),
                                counted(pieces, "stage")));
    }
    return plan.with_costs(scaled_costs(plan, settings.cost_scale), plan->links);
}

LinkCost slowest(const std::vector<LinkCost>& links) {
    return *std::ranges::max_element(links, [](const LinkCost& a, const LinkCost& b) {
        const auto seconds_per_byte = [](const LinkCost& link) {
            return link.bytes_per_second > 0 ? 1 / link.bytes_per_second : 0;
        };
        return std::pair(seconds_per_byte(a), a.latency) <
               std::pair(seconds_per_byte(b), b.latency);
    });
}

}  // namespace

WhatIf with_pieces(WhatIf settings, int stages, int chunks) {
    if (settings.stages == stages && settings.chunks == chunks) {
        return settings;
    }
    settings.stages = stages;
    settings.chunks = chunks;
    settings.partition.reset();
    settings.cost_scale.clear();
    settings.recompute = settings.recompute.of(0);
    return settings;
}

WhatIf settings_of(const PlannedRun& planned) {
    const SettledScenario::PipelinePart& pipeline = planned.scenario.pipeline;
    WhatIf settings{.stages = pipeline.stages,
                    .micro_batches = planned.plan.micro_batches(),
                    .schedule = pipeline.schedule,
                    .chunks = pipeline.chunks,
                    .recompute = pipeline.recompute,
                    .partition = {}};
    if (!pipeline.partition.is_auto() && planned.plan->partition) {
        settings.partition = planned.plan->partition->layers_per_stage();
    }
    return settings;
}

std::string own_numbers_words(const std::string& schedule_file) {
    return fmt::format("{} has its own numbers of ranks and micro-batches",
                       std::filesystem::path(schedule_file).filename().string());
}

WhatIfSource::WhatIfSource(std::shared_ptr<const RunData> run) : run_(std::move(run)) {
    try {
        if (run_->planned != nullptr) {
            take_planned();
        } else if (run_->empty()) {
            why_not_ = "No run is open.";
        } else {
            take_trace();
        }
    } catch (const std::exception& error) {
        const bool is_built_in = std::ranges::any_of(
            known_schedules(),
            [&](const ScheduleName& known) { return known.name == run_->schedule_name; });
        why_not_ =
            run_->own_plan && !is_built_in
                ? fmt::format("What-ifs and the heat map need a built-in schedule; {} is not one.",
                              run_->path.filename().string())
                : fmt::format(
                      "The run has no scenario, and its trace does not suffice for what-ifs: {}.",
                      sentence_of(error));
    }
}

bool WhatIfSource::knows_bytes() const {
    return run_->planned != nullptr && run_->planned->knows_bytes;
}

void WhatIfSource::take_planned() {
    settings_ = settings_of(*run_->planned);
    if (!knows_bytes()) {
        note_ = "The costs are estimates without memory, so the memory is not known.";
    }
    if (is_schedule_file(settings_.schedule)) {
        note_ += fmt::format("{}{}; another schedule can have others.",
                             note_.empty() ? "" : " ",
                             own_numbers_words(settings_.schedule));
    }
    const std::vector<LinkCost>& links = run_->planned->plan->links;
    if (!links.empty()) {
        link_ = slowest(links);
    }
}

namespace {

/// The order of a trace by its name; [stage] times of its recomputes, and when they run.
struct TraceOrder {
    Timeline step;
    int stages = 0;
    std::vector<std::vector<Duration>> recomputes;
    std::optional<RecomputeTiming> timing{};  ///< none where the rows do not tell
};

/// Whether recomputes stand before the receives of their gradients, or behind them; none where no
/// row has both for one micro-batch.
std::optional<RecomputeTiming> timing_of(const Timeline& step) {
    for (const auto& row : step.ranks) {
        std::map<std::pair<int, int>, Op> first;  // [stage, micro-batch]: of R and RECV_B
        for (const Span& span : row) {
            const Op op = span.action.op;
            if (op != Op::Recompute && op != Op::RecvBackward) {
                continue;
            }
            const auto [entry, is_new] =
                first.try_emplace(std::pair(span.action.stage, span.action.micro_batch), op);
            if (!is_new && entry->second != op) {
                return op == Op::RecvBackward ? RecomputeTiming::Eager : RecomputeTiming::Lazy;
            }
        }
    }
    return std::nullopt;
}

TraceOrder order_of(const StepRows& rows) {
    TraceOrder order{.step = rows.timeline(), .recomputes = {}};
    for (const auto& row : order.step.ranks) {
        for (const Span& span : row) {
            order.stages = std::max(order.stages, span.action.stage + 1);
        }
    }
    order.recomputes.resize(as_index(order.stages));
    order.timing = timing_of(order.step);
    for (const auto& row : order.step.ranks) {
        for (const Span& span : row) {
            if (span.action.op == Op::Recompute) {
                order.recomputes[as_index(span.action.stage)].push_back(span.end - span.begin);
            }
        }
    }
    return order;
}

Recompute mode_of(std::size_t recomputes, int micro_batches) {
    if (recomputes == 0) {
        return Recompute::None;
    }
    return recomputes < as_index(micro_batches) ? Recompute::ExceptLast : Recompute::Always;
}

/// Median time of messages on their links; zero where the trace does not say.
Duration median_link(const Timeline& step) {
    std::vector<Duration> times;
    for (const auto& link : step.links) {
        for (const Span& span : link) {
            times.push_back(span.end - span.begin);
        }
    }
    return times.empty() ? Duration{} : median(std::move(times));
}

void add_stage_times(PlainCosts& costs, const TraceOrder& order, int pieces) {
    Trace trace;
    trace.timelines.steps = {order.step};
    const Profile profile = stage_profile(stage_times(trace), 1, "the trace");
    std::vector<Recompute> modes;
    for (int piece = 0; piece < pieces; ++piece) {
        const LayerSample& sample = profile.layers.at(as_index(piece)).samples[0];
        costs.forward.push_back(sample.forward);
        costs.backward_input.push_back(sample.backward_input);
        costs.backward_weight.push_back(sample.backward_weight);
        const auto& again = order.recomputes.at(as_index(piece));
        costs.recompute_cost.push_back(again.empty() ? sample.forward : median(again));
        modes.push_back(mode_of(again.size(), costs.shape.micro_batches));
    }
    costs.recompute = RecomputeRules(std::move(modes));
}

}  // namespace

void WhatIfSource::take_trace() {
    const Side side = run_->measured ? Side::Measured : Side::Predicted;
    const TraceOrder order = order_of(*run_->twin.step(side, run_->main_step()));
    const int ranks = static_cast<int>(order.step.ranks.size());
    PlainCosts costs;
    costs.schedule = schedule_kind(run_->schedule_name);
    costs.schedule_name = run_->schedule_name;
    const bool two_pipelines =
        schedule_traits(costs.schedule).placement == StagePlacement::BothWays;
    const int pieces = two_pipelines ? order.stages / 2 : order.stages;
    costs.shape = {.ranks = ranks, .chunks = pieces / ranks, .micro_batches = run_->micro_batches};
    add_stage_times(costs, order, pieces);
    costs.recompute_timing = order.timing;
    costs.link.latency = median_link(order.step);
    link_ = costs.link;
    settings_ = {.stages = ranks,
                 .micro_batches = run_->micro_batches,
                 .schedule = costs.schedule_name,
                 .chunks = costs.shape.chunks,
                 .recompute = costs.recompute,
                 .partition = {}};
    plain_ = std::move(costs);
    note_ =
        "The run has no scenario. Costs are the medians of the stages, updates take no time, and "
        "a micro-batch is one sample.";
}

int WhatIfSource::stages_of_machine() const {
    if (!why_not_.empty() || plain_) {
        return settings_.stages;
    }
    const SettledScenario& scenario = run_->planned->scenario;
    const int devices_of_stage =
        std::max(1, scenario.pipeline.data_parallel * scenario.pipeline.tensor_parallel);
    const int devices = scenario.cluster.count > 0 ? scenario.cluster.count / devices_of_stage
                                                   : scenario.cluster.cores;
    return std::max(devices, settings_.stages);
}

WhatIfRanges WhatIfSource::ranges(const WhatIf& settings) const {
    WhatIfRanges ranges;
    if (!why_not_.empty()) {
        return ranges;
    }
    if (plain_) {
        constexpr int most_micro_batches = 1024;
        ranges.least_stages = settings_.stages;
        ranges.most_stages = settings_.stages;
        ranges.most_micro_batches = std::max(most_micro_batches, settings_.micro_batches);
        ranges.most_with_costs = ranges.most_micro_batches;
        ranges.chunks = {settings_.chunks};
        return ranges;
    }
    const PlannedRun& planned = *run_->planned;
    const SettledScenario& scenario = planned.scenario;
    ranges.has_partition = planned.plan->partition.has_value();
    ranges.has_bandwidth = true;
    if (is_schedule_file(settings.schedule)) {
        ranges.least_stages = ranges.most_stages = settings_.stages;
        ranges.least_micro_batches = ranges.most_micro_batches = settings_.micro_batches;
        ranges.least_with_costs = ranges.most_with_costs = settings_.micro_batches;
        ranges.chunks = {settings_.chunks};
        return ranges;
    }
    const int layers = planned.model.layer_count();
    ranges.most_stages = layers;
    if (scenario.cluster.count > 0) {
        const int devices_of_stage =
            scenario.pipeline.data_parallel * scenario.pipeline.tensor_parallel;
        ranges.most_stages = std::min(layers, scenario.cluster.count / devices_of_stage);
    }
    ranges.most_stages = std::max({1, ranges.most_stages, settings_.stages});
    ranges.batch = replica_batch(scenario);
    ranges.most_micro_batches = std::max(ranges.batch, settings_.micro_batches);
    const auto [smallest, largest] =
        sizes_with_costs(planned.profile, scenario.pipeline.tensor_parallel);
    ranges.least_with_costs = static_cast<int>((ranges.batch + largest - 1) / largest);
    ranges.most_with_costs =
        smallest == 1 ? ranges.most_micro_batches : static_cast<int>(ranges.batch / smallest);
    if (ranges.least_with_costs > ranges.most_with_costs) {
        ranges.least_with_costs = ranges.least_micro_batches;
        ranges.most_with_costs = ranges.most_micro_batches;
    }
    for (const int chunks : chunks_of(settings.schedule)) {
        if (chunks * settings.stages <= layers) {
            ranges.chunks.push_back(chunks);
        }
    }
    return ranges;
}

/// Whether the model is cut into as many pieces as in the run, so that its partition is one of
/// these settings, too.
bool WhatIfSource::has_pieces_of_run(const WhatIf& settings) const {
    const auto goes_both_ways = [](const std::string& schedule) {
        return schedule_traits(schedule).placement == StagePlacement::BothWays;
    };
    return run_->planned->plan->partition && settings.stages == settings_.stages &&
           settings.chunks == settings_.chunks &&
           goes_both_ways(settings.schedule) == goes_both_ways(settings_.schedule);
}

SettledScenario WhatIfSource::scenario(const WhatIf& settings) const {
    SettledScenario scenario = run_->planned->scenario;
    SettledScenario::PipelinePart& pipeline = scenario.pipeline;
    if (settings.schedule != settings_.schedule) {
        pipeline.file_pieces = 0;
        // A timing that is not the default of the run's schedule was written, and stays.
        if (pipeline.recompute_timing == schedule_traits(settings_.schedule).recompute_timing) {
            pipeline.recompute_timing = schedule_traits(settings.schedule).recompute_timing;
        }
    }
    pipeline.stages = settings.stages;
    pipeline.micro_batches = settings.micro_batches;
    pipeline.schedule = settings.schedule;
    pipeline.chunks = settings.chunks;
    pipeline.recompute = settings.recompute;
    if (pipeline.recompute != RecomputeRules(Recompute::None)) {
        pipeline.layer_recompute = LayerRecompute::None;
        pipeline.recompute_blocks = 1;
        pipeline.recompute_only = 0;
    }
    pipeline.partition = settings.partition;
    if (pipeline.partition.is_auto() && has_pieces_of_run(settings)) {
        pipeline.partition = run_->planned->plan->partition->layers_per_stage();
    }
    if (!same_links(settings)) {
        constexpr double gigabits_per_gigabyte = 8;
        Scenario::ClusterPart& cluster = scenario.cluster;
        if (settings.gigabytes_per_second) {
            cluster.link_gbps = *settings.gigabytes_per_second * gigabits_per_gigabyte;
            cluster.node_link_gbps = cluster.link_gbps;
        }
        if (settings.latency_us) {
            cluster.link_latency_us = *settings.latency_us;
            cluster.node_link_latency_us = *settings.latency_us;
        }
    }
    return scenario;
}

PlainCosts WhatIfSource::costs(const WhatIf& settings) const {
    if (settings.stages != settings_.stages || settings.chunks != settings_.chunks) {
        throw Error(ErrorKind::Infeasible,
                    "",
                    fmt::format("the trace gives the costs of its own {} only",
                                counted(plain_->forward.size(), "stage")));
    }
    PlainCosts costs = *plain_;
    costs.shape.micro_batches = settings.micro_batches;
    costs.schedule = schedule_kind(settings.schedule);
    costs.schedule_name = settings.schedule;
    costs.recompute = settings.recompute;
    if (settings.schedule != settings_.schedule) {
        costs.recompute_timing.reset();
    }
    if (settings.latency_us) {
        costs.link.latency = from_milliseconds(*settings.latency_us / 1e3, "link latency");
    }
    return costs;
}

/// The order in a file is one for its own numbers of ranks, chunks and micro-batches.
void WhatIfSource::require_shape_of_file(const WhatIf& settings) const {
    const bool same = settings.stages == settings_.stages && settings.chunks == settings_.chunks &&
                      settings.micro_batches == settings_.micro_batches;
    if (is_schedule_file(settings.schedule) && !same) {
        throw Error(ErrorKind::Infeasible,
                    "",
                    fmt::format("{} is a schedule of {} and {}; choose another schedule first",
                                std::filesystem::path(settings.schedule).filename().string(),
                                counted(settings_.stages, "rank"),
                                counted(settings_.micro_batches, "micro-batch")));
    }
}

sim::SettledStep WhatIfSource::step(const WhatIf& settings,
                                    sim::RecordLinks links,
                                    const Plan* same_rows) const {
    PIPETWIN_EXPECT(why_not_.empty(), "a source without what-ifs has no plans");
    const auto plan_of = [&] {
        if (plain_) {
            return make_plan(costs(settings), RowsFrom::Generator);
        }
        require_shape_of_file(settings);
        const Model& model = run_->planned->model;
        const Profile& profile = run_->planned->profile;
        return same_rows == nullptr
                   ? make_plan(scenario(settings), model, profile, RowsFrom::Generator)
                   : make_plan_with_rows_of(*same_rows, scenario(settings), model, profile);
    };
    return sim::simulate_settled(with_scale(plan_of(), settings), links);
}

std::shared_ptr<const WhatIfRows> WhatIfSource::same_rows(const WhatIf& settings) const {
    const auto order_of = [](WhatIf all) {
        all.gigabytes_per_second.reset();
        all.latency_us.reset();
        all.cost_scale.clear();
        return all;
    };
    const std::lock_guard lock(latest_mutex_);
    const bool same = latest_ != nullptr && !plain_ &&
                      order_of(latest_->settings) == order_of(settings) &&
                      !rows_follow_costs(scenario(settings));
    if (!same) {
        latest_.reset();
    }
    return latest_;
}

void WhatIfSource::keep(std::shared_ptr<const WhatIfRows> latest) const {
    const std::lock_guard lock(latest_mutex_);
    latest_ = std::move(latest);
}

std::shared_ptr<const PlannedRun> WhatIfSource::planned(const WhatIf& settings,
                                                        const Plan& plan) const {
    if (plain_) {
        return nullptr;
    }
    return std::make_shared<const PlannedRun>(
        scenario(settings), run_->planned->model, run_->planned->profile, plan, knows_bytes());
}

std::vector<LayerTime> WhatIfSource::layer_times(const WhatIf& settings) const {
    std::vector<LayerTime> times;
    if (!why_not_.empty() || plain_) {
        return times;
    }
    try {
        const PlannedRun& planned = *run_->planned;
        const Cluster cluster(planned.scenario, planned.profile, settings_.stages);
        const int size =
            micro_batch_sizes(replica_batch(planned.scenario), settings.micro_batches).front();
        const CostTable table = cost_table(
            planned.model, planned.profile, {size}, device_kinds(cluster), cluster.layer_rules());
        for (int layer = 0; layer < planned.model.layer_count(); ++layer) {
            const LayerSample& sample = table.front().front().at(as_index(layer));
            const bool again = settings.recompute.of(0) != Recompute::None;
            times.push_back({.name = planned.model.layer(layer).spec.name,
                             .time = sample.forward + (again ? sample.forward : Duration{}) +
                                     sample.backward()});
        }
    } catch (const std::exception&) {
        return {};  // a plan with these settings says why
    }
    return times;
}

std::string over_limit(const Plan& plan, const std::vector<Bytes>& peaks) {
    for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
        const std::optional<Bytes> limit = plan.memory_limit(static_cast<int>(rank));
        if (limit && peaks[rank] > *limit) {
            return fmt::format("rank {} needs {} and has {}",
                               rank,
                               format_bytes(peaks[rank]),
                               format_bytes(*limit));
        }
    }
    return "";
}

std::string sentence_of(const std::exception& error) {
    const auto* const own = dynamic_cast<const Error*>(&error);
    if (own == nullptr) {
        return joined_lines(error.what());
    }
    // The place of a rule is the schedule that has it.
    const bool names_schedule = own->reason() == ErrorReason::ScheduleRule;
    return joined_lines(names_schedule ? fmt::format("{}: {}", own->place(), own->text())
                                       : own->text());
}

namespace {

std::vector<MemoryRow> memory_rows(const Plan& plan, const StepRows& step) {
    std::vector<MemoryRow> rows;
    if (!plan->partition) {
        return rows;  // plain numbers know no bytes
    }
    if (!plan->host_link) {
        for (RankTotals& totals : memory_totals(plan)) {
            rows.emplace_back(std::move(totals));
        }
        return rows;
    }
    const Timeline timeline = step.timeline();
    const std::vector<MemoryCurve> curves = footprint(plan, timeline);
    for (std::size_t rank = 0; rank < curves.size(); ++rank) {
        rows.emplace_back(curves[rank], static_cast<int>(timeline.ranks[rank].size()));
    }
    return rows;
}

/// [rank]: peak bytes; what a rank begins with can be all that it ever has.
std::vector<Bytes> peaks_of(const Plan& plan, const std::vector<MemoryRow>& memory) {
    std::vector<Bytes> peaks;
    for (const MemoryRow& row : memory) {
        const Bytes resident = resident_memory(plan, static_cast<int>(peaks.size())).total();
        peaks.push_back(std::max(resident, row.peak()));
    }
    return peaks;
}

/// [rank]: its work, from the sums of the rows without reading their spans.
std::vector<RankWork> works_of(const StepRows& rows) {
    std::vector<RankWork> works;
    for (const RowIndex& row : rows.ranks) {
        RankWork& work = works.emplace_back();
        const PartTimes times = row.between(Duration{0}, row.last_end());
        work.busy = compute_of(times);
        work.recompute = times[RowPart::Recompute];
        const auto computes = [&row](int cell) {
            return pipetwin::is_compute(row.action(cell).op);
        };
        int first = 0;
        while (first < row.size() && !computes(first)) {
            ++first;
        }
        int last = row.size() - 1;
        while (last > first && !computes(last)) {
            --last;
        }
        if (first < row.size()) {
            work.first_begin = row.begin(first);
            work.last_end = row.end(last);
        }
    }
    return works;
}

std::vector<std::shared_ptr<const RowActions>> actions_of(const StepRows& rows) {
    std::vector<std::shared_ptr<const RowActions>> actions;
    for (const RowIndex& row : rows.ranks) {
        actions.push_back(row.share_actions());
    }
    return actions;
}

}  // namespace

WhatIfSimulation apply(const WhatIfSource& source, const WhatIf& settings, sim::RecordLinks links) {
    if (!source.why_not().empty()) {
        return {.outcome = {.step = nullptr, .reason = source.why_not()}, .rows = {}, .memory = {}};
    }
    try {
        const std::shared_ptr<const WhatIfRows> latest = source.same_rows(settings);
        auto [plan, times] =
            source.step(settings, links, latest == nullptr ? nullptr : &latest->plan);
        StepRows rows = latest == nullptr ? StepRows(plan->schedule.ranks, std::move(times))
                                          : StepRows(latest->actions, std::move(times));
        // Bytes follow from the order and from the room in channels, unless stashes are copied to
        // host memory.
        const bool same_memory = latest != nullptr && !plan->host_link &&
                                 latest->plan->channel_capacity == plan->channel_capacity;
        std::vector<MemoryRow> memory = same_memory            ? latest->memory
                                        : source.knows_bytes() ? memory_rows(plan, rows)
                                                               : std::vector<MemoryRow>();
        source.keep(std::make_shared<const WhatIfRows>(
            WhatIfRows{settings, plan, actions_of(rows), memory}));
        std::vector<Bytes> peaks = peaks_of(plan, memory);
        std::string over = over_limit(plan, peaks);
        auto step = std::make_shared<const WhatIfStep>(
            plan,
            measure_times(plan, works_of(rows), rows.pipeline, rows.length),
            std::move(peaks),
            std::move(over));
        return {.outcome = {.step = std::move(step), .reason = ""},
                .rows = std::move(rows),
                .memory = std::move(memory)};
    } catch (const std::exception& error) {
        return {
            .outcome = {.step = nullptr, .reason = sentence_of(error)}, .rows = {}, .memory = {}};
    }
}

namespace {

bool has_same_rows(const StepRows& step, const Schedule& schedule) {
    if (step.ranks.size() != schedule.ranks.size()) {
        return false;
    }
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
        const RowIndex& row = step.ranks[rank];
        const auto& wanted = schedule.ranks[rank];
        if (row.size() != static_cast<int>(wanted.size())) {
            return false;
        }
        for (std::size_t cell = 0; cell < wanted.size(); ++cell) {
            if (row.action(static_cast<int>(cell)) != wanted[cell]) {
                return false;
            }
        }
    }
    return true;
}

Duration total_of(const Timeline& timeline, Op op) {
    Duration total{};
    for (const auto& row : timeline.ranks) {
        for (const Span& span : row) {
            total += span.action.op == op ? span.end - span.begin : Duration{};
        }
    }
    return total;
}

/// The comparison with another predicted side; what was measured stays.
Comparison with_predicted(Comparison comparison, const WhatIfStep& step, const Timeline& timeline) {
    comparison.makespan.predicted = step.metrics.makespan;
    comparison.step.predicted = step.metrics.step;
    for (PeakDelta& peak : comparison.peaks) {
        peak.predicted = step.peaks.empty() ? Bytes{} : step.peaks.at(as_index(peak.rank));
    }
    for (Comparison::ByOp& op : comparison.by_op) {
        op.total.predicted = total_of(timeline, op.op);
    }
    for (ActionDelta& delta : comparison.actions) {
        const Span& span = timeline.ranks[as_index(delta.rank)][as_index(delta.cell)];
        delta.duration.predicted = span.end - span.ready;
        delta.begin.predicted = span.begin;
    }
    comparison.predicted_breakdown = sim::breakdown(step.plan, timeline);
    comparison.predicted_bubble_total =
        bubble_beside(timeline, comparison.predicted_breakdown->overhead);
    return comparison;
}

}  // namespace

std::shared_ptr<const RunData> what_if_run(const WhatIfSource& source,
                                           const WhatIf& settings,
                                           WhatIfSimulation simulation) {
    const WhatIfStep& step = *simulation.outcome.step;
    const RunData& from = source.run();
    RunData run;
    run.path = from.path;
    run.over = from.over;
    run.is_what_if = true;
    run.schedule_name = step.plan->schedule_name;
    run.micro_batches = step.plan.micro_batches();
    run.planned = source.planned(settings, step.plan);
    run.own_plan = std::make_shared<const Plan>(step.plan);
    const bool same = from.measured && !from.twin.measured.empty() &&
                      has_same_rows(from.twin.measured.front(), step.plan->schedule);
    if (same) {
        run.twin.measured = from.twin.measured;
        run.measured = from.measured;
        if (from.comparison) {
            run.comparison = with_predicted(*from.comparison, step, simulation.rows.timeline());
        }
    }
    DrawnSide drawn = drawn_side(std::move(simulation.rows));
    drawn.data.memory = std::move(simulation.memory);
    drawn.data.dispatch = step.plan->dispatch;
    run.twin.predicted = std::move(drawn.steps);
    run.predicted = std::move(drawn.data);
    return std::make_shared<const RunData>(std::move(run));
}

std::vector<std::string> schedule_choices(const WhatIfSource& source) {
    std::vector<std::string> names;
    for (const ScheduleName& known : known_schedules()) {
        names.emplace_back(known.name);
    }
    const std::string& own = source.settings().schedule;
    if (std::ranges::find(names, own) == names.end()) {
        names.insert(names.begin(), own);
    }
    return names;
}

std::string schedule_words(const std::string& name) {
    const ScheduleTraits& traits = schedule_traits(name);
    if (traits.name.empty()) {
        return "";
    }
    std::string words = traits.chunks == ChunkCounts::One   ? "One stage on each rank."
                        : traits.chunks == ChunkCounts::Two ? "Two stages on each rank."
                                                            : "Several stages on each rank.";
    if (!traits.trains) {
        words += "\nForwards only.";
    } else if (traits.forwards_first) {
        words += "\nAll forwards of a rank come before its first backward.";
    }
    if (traits.split == BackwardSplit::Always) {
        words +=
            "\nA backward is cut in two: I, which the previous rank waits for, and W, which can "
            "wait.";
    }
    if (traits.order_from_costs) {
        words += "\nThe program searches for its order, which depends on the costs.";
    }
    if (traits.stale_gradients) {
        words +=
            "\nWeights change while micro-batches are in the pipeline, so gradients belong to "
            "older "
            "weights. Such a schedule can only be simulated.";
    }
    if (!traits.torch_name.empty()) {
        words += "\nPyTorch calls it " + std::string(traits.torch_name) + ".";
    }
    return words;
}

}  // namespace pipetwin::gui

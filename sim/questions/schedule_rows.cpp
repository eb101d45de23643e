// SPDX-License-Identifier: Apache-2.0
#include "sim/questions/schedule_rows.h"

#include <chrono>
#include <limits>
#include <optional>
#include <utility>

#include "core/base/as_index.h"
#include "core/model/model.h"
#include "core/plan/routes.h"
#include "core/plan/shape_notes.h"
#include "core/schedule/generators/schedule_traits.h"
#include "core/schedule/schedule_csv.h"
#include "core/schedule/validate.h"
#include "sim/questions/prediction.h"
#include "sim/search/partition_choice.h"

namespace pipetwin::sim {

namespace {

void require_valid_listing_all(const Schedule& schedule,
                               std::string_view place,
                               const Schedule& written,
                               MessageQueues queues) {
    require_valid(schedule, place, std::numeric_limits<std::size_t>::max(), &written, queues);
}

/// The model of a scenario whose layers can have branches; none where it is a chain, or where its
/// layers are not known.
std::optional<Model> branching_model(const SettledScenario& scenario, const Profile* profile) {
    const ModelKind kind = scenario.model.kind;
    const bool known = kind == ModelKind::Layers || (kind == ModelKind::Profile && profile);
    std::optional<Model> model =
        known ? std::optional(scenario_model(scenario, profile)) : std::nullopt;
    return model && !model->is_chain() ? model : std::nullopt;
}

/// Layers that all cost the same, in as many stages as the order has.
Partition even_partition(const Model& model, const Schedule& order) {
    const std::vector<Duration> costs(as_index(model.layer_count()), std::chrono::milliseconds(1));
    return balanced_partition(costs, model_stage_count(order));
}

}  // namespace

std::optional<FoundProfile> profile_for_rows(const SettledScenario& scenario,
                                             const std::filesystem::path& option,
                                             const std::filesystem::path& folder) {
    if (scenario.model.kind == ModelKind::Profile) {
        const bool there = !option.empty() || std::filesystem::exists(scenario.model.profile);
        return there ? known_profile(scenario, option, folder) : std::nullopt;
    }
    const std::optional<Model> model = branching_model(scenario, nullptr);
    return model && !scenario_partition(scenario, *model) ? known_profile(scenario, option, folder)
                                                          : std::nullopt;
}

Schedule scenario_order(const SettledScenario& scenario, const Profile* profile) {
    Schedule order = scenario_schedule(scenario);
    if (has_communication(order)) {
        return order;
    }
    if (const std::optional<Model> model = branching_model(scenario, profile)) {
        std::optional<Partition> partition = scenario_partition(scenario, *model);
        if (!partition && profile != nullptr) {
            partition = make_settled_plan(scenario, *model, *profile)->partition;
        }
        order.skips = skips_of(
            routes_of(*model, partition ? *partition : even_partition(*model, order)), order);
    }
    return order;
}

Schedule scenario_rows(const SettledScenario& scenario,
                       const Profile* profile,
                       MessageQueues queues) {
    const SettledScenario::PipelinePart& pipeline = scenario.pipeline;
    return lower(scenario_order(scenario, profile),
                 {.recompute = pipeline.recompute,
                  .timing = pipeline.recompute_timing,
                  .messages = pipeline.message_order,
                  .queues = queues},
                 scenario.file.string());
}

RecomputeTiming timing_of_files() {
    return schedule_traits(ScheduleKind::FromFile).recompute_timing;
}

Schedule with_communication(Schedule schedule, RecomputeTiming timing, MessageQueues queues) {
    if (has_communication(schedule)) {
        return schedule;
    }
    schedule = add_communication(std::move(schedule), timing);
    return queues == MessageQueues::PerRanks ? receive_in_order_of_sends(std::move(schedule))
                                             : schedule;
}

Schedule runnable(Schedule schedule,
                  RecomputeTiming timing,
                  std::string_view place,
                  MessageQueues queues) {
    const Schedule written = schedule;
    require_valid_listing_all(schedule, place, written, queues);
    schedule = with_communication(std::move(schedule), timing, queues);
    require_valid_listing_all(schedule, place, written, queues);
    require_deadlock_free(schedule, std::nullopt, place, &written, queues);
    return schedule;
}

std::vector<std::string> notes_on_rows(const SettledScenario& scenario, const Profile* profile) {
    const SettledScenario::PipelinePart& pipeline = scenario.pipeline;
    std::vector<std::string> notes = shape_notes({.schedule = pipeline.schedule,
                                                  .chunks = pipeline.chunks,
                                                  .group_size = pipeline.group_size,
                                                  .micro_batches = pipeline.micro_batches,
                                                  .samples = replica_batch(scenario),
                                                  .data_parallel = pipeline.data_parallel});
    const std::optional<Model> model =
        profile == nullptr ? branching_model(scenario, nullptr) : std::nullopt;
    if (model && !scenario_partition(scenario, *model)) {
        notes.emplace_back(
            "the costs of the layers are not known, and the partition is open: the messages are "
            "those of a partition of layers that cost the same");
    }
    return notes;
}

}  // namespace pipetwin::sim

// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/plan_refusals.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/batch_norms.h"
#include "core/schedule/lower.h"

namespace pipetwin {

void require_devices(const SettledScenario& scenario) {
    const int count = scenario.cluster.count;
    const int stages = scenario.pipeline.stages;
    const int replicas = scenario.pipeline.data_parallel;
    const int tensor = scenario.pipeline.tensor_parallel;
    const int context = scenario.pipeline.context_parallel;
    if (count > 0 && std::int64_t{stages} * replicas * tensor * context > count) {
        std::string text = fmt::format("pipeline.stages = {}", stages);
        if (replicas > 1) {
            text += fmt::format(" in pipeline.data_parallel = {} replicas", replicas);
        }
        if (tensor > 1) {
            text += fmt::format(" of pipeline.tensor_parallel = {} devices each", tensor);
        }
        if (context > 1) {
            text += fmt::format(" for each of pipeline.context_parallel = {} parts of a sample",
                                context);
        }
        throw Error(ErrorKind::BadInput,
                    scenario.file.string(),
                    fmt::format("{}, but cluster.count = {}", text, count),
                    "use as many stages as devices at most, with partition = \"auto\"")
            .about("pipeline.stages");
    }
}

void require_recompute_fits(const RecomputeRules& recompute,
                            const Schedule& grid,
                            const SettledScenario& scenario) {
    if (!recompute.fits(model_stage_count(grid))) {
        require_mode_of_each_piece(
            recompute.modes().size(), model_stage_count(grid), scenario.file.string());
    }
}

void require_modules_fit(const SettledScenario& scenario, const Schedule& grid) {
    const SettledScenario::PipelinePart& pipeline = scenario.pipeline;
    const auto require = [&](const char* key, std::size_t lists) {
        if (lists > 1) {
            require_list_of_each_piece(key, lists, model_stage_count(grid), scenario.file.string());
        }
    };
    require("pipeline.recompute_modules", pipeline.recompute_modules.of_piece.size());
    require("pipeline.offload_modules", pipeline.offload_modules.size());
}

void require_costs_at(const std::vector<int>& sizes,
                      const SettledScenario& scenario,
                      const Profile& profile) {
    const int tensor = scenario.pipeline.tensor_parallel;
    const int devices = knows_shares(profile, tensor) ? tensor : 1;
    const int batch = replica_batch(scenario);
    int smallest = 1;
    std::int64_t largest = batch;
    for (const LayerCost& layer : profile.layers) {
        const std::vector<LayerSample>& samples = *layer.shared_by(devices);
        smallest = std::max(smallest, (samples.front().micro_batch_size + 1) / 2);
        largest = std::min(largest, 2 * std::int64_t{samples.back().micro_batch_size});
    }
    const auto bad =
        std::ranges::find_if(sizes, [&](int size) { return size < smallest || size > largest; });
    if (bad == sizes.end()) {
        return;
    }
    const std::int64_t most = batch / smallest;
    const std::int64_t fewest = (batch + largest - 1) / largest;
    try {
        samples_at(profile, *bad, devices);
    } catch (const Error& error) {
        const std::string numbers = fewest == most
                                        ? fmt::format("{}", most)
                                        : fmt::format("a number from {} to {}", fewest, most);
        Hint hint("profile the layers at that size");
        if (fewest <= most) {
            hint = {fmt::format("set pipeline.micro_batches to {}, or profile the layers with this "
                                "number",
                                numbers),
                    {{"pipeline.micro_batches", fmt::to_string(most)}}};
        }
        throw error.with_hint(std::move(hint));
    }
}

void require_known_attention(const SettledScenario& scenario, const Profile& profile) {
    if (scenario.pipeline.layer_recompute == LayerRecompute::Selective &&
        !knows_core_attention(profile)) {
        throw Error(
            ErrorKind::BadInput,
            KeyValue{"pipeline.recompute", "\"selective\""},
            "the profile does not say what core attention takes, so nothing would change",
            "profiles by 'pipetwin import hf' say it; or set pipeline.recompute = \"block\"");
    }
}

void refuse_tied_twins(const PlanParts& parts, const Schedule& grid, const Model& model) {
    if (parts.tied_gradient > Bytes{} && weight_sharing_stage(grid, 0)) {
        const bool own = model.is_executable();
        Hint hint("take another schedule: all but 'chimera' have one pipeline");
        if (own) {
            hint = {"set {}, or take another schedule", {{"model.tied", "false"}}};
        }
        throw Error(
            ErrorKind::BadInput,
            parts.schedule_name,
            fmt::format(
                "{}, which a schedule of two pipelines with the same weights does not support",
                own ? "model.tied = true"
                    : "the profile's last layer shares weights with the first (tied_bytes)"),
            std::move(hint))
            .about("pipeline.schedule");
    }
}

void refuse_batch_norms(const PlanParts& parts, const Schedule& grid, const Model& model) {
    const int smallest = std::ranges::min(parts.micro_batch_sizes);
    const bool is_shared = parts.replicas > 1 || weight_sharing_stage(grid, 0).has_value();
    for (int index = 0; index < model.layer_count(); ++index) {
        for (const PlacedBatchNorm& norm : batch_norms_of(model.layer(index))) {
            const std::string place = fmt::format("model, layer '{}'", norm.name);
            if (std::int64_t{smallest} * norm.input.positions < 2) {
                throw Error(ErrorKind::BadInput,
                            place,
                            fmt::format("micro-batches of {} sample of {} give batch_norm one "
                                        "value per channel, expected 2 or more: one value has no "
                                        "variance",
                                        smallest,
                                        to_string(norm.input)),
                            "set a larger training.batch or fewer pipeline.micro_batches")
                    .about("training.batch");
            }
            if (!norm.spec.deferred && is_shared) {
                throw Error(ErrorKind::BadInput,
                            place,
                            fmt::format("deferred = false with {}, which would all have running "
                                        "statistics of their own",
                                        parts.replicas > 1 ? "several replicas"
                                                           : "two pipelines of one model"),
                            "set deferred = true, which joins the statistics of all of them");
            }
        }
    }
}

void refuse_replicas_of_twins(const PlanParts& parts, const Schedule& grid) {
    if (parts.replicas > 1 && weight_sharing_stage(grid, 0)) {
        throw Error(ErrorKind::BadInput,
                    parts.schedule_name,
                    fmt::format("pipeline.data_parallel = {}, which a schedule of two pipelines "
                                "with the same weights does not support",
                                parts.replicas),
                    {"set {}, or take another schedule", {{"pipeline.data_parallel", "1"}}})
            .about("pipeline.schedule");
    }
}

void require_reductions(const PlanParts& parts) {
    if (parts.replicas == 1 || is_forward_only(parts.schedule)) {
        return;
    }
    std::vector<bool> reduced(parts.schedule.rank_of_stage.size(), false);
    for (const auto& row : parts.schedule.ranks) {
        for (const Action& action : row) {
            if (action.op == Op::ReduceGradient) {
                reduced.at(as_index(action.stage)) = true;
            }
        }
    }
    const auto missing = std::ranges::find(reduced, false);
    if (missing != reduced.end()) {
        throw Error(ErrorKind::Infeasible,
                    parts.schedule_name,
                    fmt::format("{} replicas share their gradients, but stage {} has no "
                                "REDUCE_GRAD",
                                parts.replicas,
                                missing - reduced.begin()),
                    "leave updates out of the rows: they are added then")
            .about("pipeline.schedule");
    }
}

void require_norms(const SettledScenario& scenario, const PlanParts& parts) {
    if (scenario.training.clip_norm > 0 && !is_forward_only(parts.schedule) &&
        !has_gradient_norms(parts.schedule)) {
        throw Error(ErrorKind::Infeasible,
                    parts.schedule_name,
                    "training.clip_norm needs the norm of all gradients before any update, but "
                    "the rows have OPT without NORM",
                    "leave updates out of the rows: they are added then")
            .about("pipeline.schedule");
    }
}

}  // namespace pipetwin

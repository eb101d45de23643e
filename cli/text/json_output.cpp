// SPDX-License-Identifier: Apache-2.0
#include "cli/text/json_output.h"

#include <optional>

#include <nlohmann/json.hpp>

#include "cli/text/evidence_text.h"
#include "cli/text/explanation_text.h"
#include "core/artifacts/plan_json.h"
#include "core/base/as_index.h"
#include "core/base/version.h"
#include "core/costs/estimate_error.h"
#include "core/timeline/footprint.h"
#include "sim/explain/critical_path.h"
#include "sim/questions/prediction.h"

namespace pipetwin::cli {

namespace {

template <class Value>
Json or_null(const std::optional<Value>& value) {
    return value ? Json(*value) : Json(nullptr);
}

Json bubble_json(const Bubble& bubble) {
    return {{"total", bubble.total},
            {"total_without_recompute", bubble.total_without_recompute},
            {"ideal", bubble.ideal},
            {"span", bubble.span}};
}

Json idle_json(const IdleTime& idle) {
    return {{"warm_up", to_milliseconds(idle.warm_up)},
            {"steady", to_milliseconds(idle.steady)},
            {"drain", to_milliseconds(idle.drain)},
            {"back_pressure", to_milliseconds(idle.back_pressure)}};
}

/// Names of the layers that a rank holds, in model order; null for plain numbers.
Json layers_json(const Plan& plan, int rank) {
    if (!plan->partition) {
        return nullptr;
    }
    Json names = Json::array();
    for (int stage = 0; stage < plan.stage_count(); ++stage) {
        if (plan->schedule.rank_of_stage[as_index(stage)] != rank) {
            continue;
        }
        const int piece = plan->schedule.weights_of_stage[as_index(stage)];
        const int first = plan->partition->first_layer(piece);
        for (int layer = first; layer < first + plan->partition->layers_in(piece); ++layer) {
            names.push_back(plan->layer_names.at(as_index(layer)));
        }
    }
    return names;
}

/// Time and action of the peak; the action is null where the peak is there from the start.
Json peak_at_json(const Plan& plan, const DeviceMetrics& device) {
    if (!plan->partition) {
        return {{"ms", nullptr}, {"action", nullptr}};
    }
    const std::optional<Action> action = peak_action(plan, device);
    return {{"ms", to_milliseconds(device.peak_time)},
            {"action", action ? Json(to_string(*action)) : Json(nullptr)}};
}

/// What a device holds beside the model and its activations, in parts; null for plain numbers.
Json beside_json(const Plan& plan, const DeviceMetrics& device) {
    if (!plan->partition) {
        return nullptr;
    }
    const BesideModel beside = beside_model(plan, device.rank, device.peak.use);
    return {{"runtime", beside.runtime.count},
            {"communication", beside.communication.count},
            {"product_workspace", beside.product_workspace.count},
            {"tensor_buffers", beside.tensor_buffers.count},
            {"allocator_reserve", beside.allocator_reserve.count},
            {"kept_messages", beside.kept_messages.count}};
}

Json device_json(const Plan& plan, const DeviceMetrics& device) {
    return {
        {"rank", device.rank},
        {"layers", layers_json(plan, device.rank)},
        {"busy_ms", to_milliseconds(device.busy)},
        {"idle_ms", to_milliseconds(device.idle)},
        {"peak_live_activations", device.peak_live_activations},
        {"peak_bytes", peak_json(device.peak.use, plan->partition.has_value())},
        {"peak_at", peak_at_json(plan, device)},
        {"recompute_bytes", plan->partition ? Json(device.peak.recomputed.count) : Json(nullptr)},
        {"beside_bytes", beside_json(plan, device)}};
}

/// The effect of offload; null where nothing is offloaded.
Json offload_json(const std::optional<sim::OffloadEffect>& offload) {
    if (!offload) {
        return nullptr;
    }
    Json json{{"step_ms_on_device", to_milliseconds(offload->step_on_device)},
              {"devices", Json::array()}};
    for (std::size_t rank = 0; rank < offload->copied.size(); ++rank) {
        json["devices"].push_back(
            {{"rank", rank},
             {"copied_bytes", offload->copied[rank].count},
             {"peak_bytes_on_device", peak_json(offload->peaks_on_device[rank], true)}});
    }
    return json;
}

Json wait_json(const Plan& plan, const sim::Explanation::ExplainedWait& explained) {
    const sim::Wait& wait = explained.wait;
    const auto& row = plan->schedule.ranks[as_index(wait.rank)];
    const std::size_t cell = as_index(wait.cell);
    Json json = {
        {"rank", wait.rank},
        {"action", cell < row.size() ? Json(to_string(row[cell])) : Json(nullptr)},
        {"begin_ms", to_milliseconds(wait.begin)},
        {"end_ms", to_milliseconds(wait.end)},
        {"slack_ms", explained.slack ? Json(to_milliseconds(*explained.slack)) : Json(nullptr)},
        {"chain", Json::array()}};
    for (const sim::Cause& cause : explained.chain) {
        json["chain"].push_back({{"action", to_string(cause.action)},
                                 {"rank", cause.rank},
                                 {"begin_ms", to_milliseconds(cause.begin)},
                                 {"end_ms", to_milliseconds(cause.end)},
                                 {"reason", sim::to_string(cause.reason)}});
        if (const std::string link = sim::shared_link_name(plan, cause); !link.empty()) {
            json["chain"].back()["shared_link"] = link;
        }
    }
    return json;
}

Json what_if_json(const sim::WhatIf& what, Duration step) {
    const auto gain = static_cast<double>((step - what.step).count());
    return {{"what", target_text(what.target)},
            {"factor", what.factor},
            {"step_ms", to_milliseconds(what.step)},
            {"least_step_ms", to_milliseconds(what.least_step)},
            {"gain_percent", 100 * gain / static_cast<double>(step.count())}};
}

Json pair_json(const Pair& pair) {
    return {{"predicted", to_milliseconds(pair.predicted)},
            {"measured", to_milliseconds(pair.measured)},
            {"error_percent", pair.error_percent()}};
}

Json violation_json(const Violation& violation) {
    return {{"rank", violation.rank},
            {"cell", violation.cell >= 0 ? Json(violation.cell) : Json(nullptr)},
            {"action", violation.action},
            {"why", violation.why}};
}

}  // namespace

Json interval_json(const std::optional<ErrorRange>& error, Duration predicted_step) {
    if (!error) {
        return nullptr;
    }
    const double step = to_milliseconds(predicted_step);
    return {{"low", error->low * step},
            {"high", error->high * step},
            {"of", error->of},
            {"unseen_device", error->unseen_device.empty() ? Json() : Json(error->unseen_device)},
            {"largest_measured_devices",
             error->largest_measured > 0 ? Json(error->largest_measured) : Json()}};
}

Json peak_json(const MemoryUse& peak, bool known) {
    const auto count = [known](Bytes bytes) { return known ? Json(bytes.count) : Json(nullptr); };
    Json json;
    json["total"] = count(peak.total());
    for (int index = 0; index < memory_kind_count; ++index) {
        const auto kind = static_cast<MemoryKind>(index);
        json[std::string(to_string(kind))] = count(peak[kind]);
    }
    return json;
}

Json json_head() {
    return {{"schema_version", 1}, {"tool_version", program_version()}};
}

Json breakdown_json(const Breakdown& breakdown) {
    Json json;
    for (const BreakdownPart& part : breakdown_parts) {
        json[std::string(part.key)] = to_milliseconds(breakdown.*part.value);
    }
    return json;
}

Json prediction_json(const sim::Prediction& prediction) {
    const Plan& plan = prediction.plan;
    const Metrics& metrics = prediction.metrics;
    Json json = json_head();
    json["schedule"] = plan->schedule_name;
    json["stages"] = plan.rank_count();
    json["chunks"] = plan->chunks;
    json["micro_batches"] = plan.micro_batches();
    json["recompute"] = recompute_json(plan->recompute, plan->layer_recompute);
    json["recompute_blocks"] = plan->layer_recompute == LayerRecompute::Block
                                   ? Json(plan->recompute_blocks)
                                   : Json(nullptr);
    json["recompute_only"] = plan->recompute_only > 0 ? Json(plan->recompute_only) : Json(nullptr);
    json["stale_gradients"] = plan->stale_gradients;
    json["data_parallel"] = plan->replicas;
    json["tensor_parallel"] = plan->tensor_parallel;
    json["context_parallel"] = plan->context_parallel;
    json["expert_parallel"] = plan->expert_parallel;
    json["expert_tensor_parallel"] = plan->expert_tensor_parallel;
    json["cost_source"] =
        plan->cost_source ? Json(std::string(to_string(*plan->cost_source))) : Json(nullptr);
    json["notes"] = plan->notes;
    json["makespan_ms"] = to_milliseconds(metrics.makespan);
    json["step_ms"] = to_milliseconds(metrics.step);
    json["interval"] = interval_json(prediction.outlook.error, metrics.step);
    const sim::Outlook& outlook = prediction.outlook;
    json["stack"] = outlook.stack.empty() ? Json() : Json(outlook.stack);
    json["evidence"] = evidence_json(outlook.nearest);
    json["samples_per_second"] = or_null(metrics.samples_per_second);
    json["tokens_per_second_per_device"] = or_null(prediction.outlook.tokens_per_second_per_device);
    json["model_flops_utilisation"] = or_null(prediction.outlook.utilisation());
    json["mfu_definition"] = std::string(to_string(prediction.outlook.flops_count));
    for (const FlopsCount count : flops_counts) {
        const auto& known = prediction.outlook.utilisations;
        const auto found = known.find(count);
        json["mfu"][std::string(to_string(count))] =
            found == known.end() ? Json(nullptr) : Json(found->second);
    }
    json["bubble"] = bubble_json(metrics.bubble);
    json["breakdown_ms"] = breakdown_json(prediction.breakdown);
    json["messages_in_actions_ms"] = {
        {"shards", to_milliseconds(prediction.messages.shards)},
        {"tensor_parallel", to_milliseconds(prediction.messages.tensor)}};
    json["idle_ms"] = idle_json(prediction.idle);
    json["devices"] = Json::array();
    for (const DeviceMetrics& device : metrics.devices) {
        json["devices"].push_back(device_json(plan, device));
    }
    json["offload"] = offload_json(prediction.offload);
    json["critical_path"] = Json::array();
    for (const sim::CriticalStep& step : prediction.critical_path) {
        json["critical_path"].push_back({{"action", to_string(step.action)},
                                         {"rank", step.rank},
                                         {"start_ms", to_milliseconds(step.begin)},
                                         {"end_ms", to_milliseconds(step.end)},
                                         {"host_copy", step.host_copy}});
    }
    return json;
}

Json explained_json(const sim::Prediction& prediction, const sim::Explanation& explanation) {
    Json json = prediction_json(prediction);
    Json& words = json["explanation"];
    words["text"] = Json::array();
    for (const Paragraph& paragraph : explanation_paragraphs(prediction.plan, explanation)) {
        for (const std::string& line : paragraph.lines) {
            words["text"].push_back(line);
        }
    }
    words["waits"] = Json::array();
    for (const auto& wait : explanation.waits) {
        words["waits"].push_back(wait_json(prediction.plan, wait));
    }
    words["what_if"] = Json::array();
    for (const sim::WhatIf& what : explanation.what_ifs) {
        words["what_if"].push_back(what_if_json(what, explanation.step));
    }
    return json;
}

Json step_json(const exec::StepReport& step) {
    Json json = {{"step", step.step},
                 {"loss", step.loss},
                 {"grad_norm", step.grad_norm},
                 {"learning_rate", step.learning_rate},
                 {"validation_loss", or_null(step.validation_loss)},
                 {"step_ms", step.step_ms},
                 {"samples_per_second", or_null(step.samples_per_second)},
                 {"peak_bytes", Json::array()}};
    for (const Bytes bytes : step.peak_bytes) {
        json["peak_bytes"].push_back(bytes.count);
    }
    if (step.accuracy) {  // only where right classes are counted
        json["accuracy"] = *step.accuracy;
        json["validation_accuracy"] = or_null(step.validation_accuracy);
    }
    return json;
}

namespace {

Json noise_json(const Noise& noise) {
    const auto if_known = [&noise](const auto& value) {
        return noise.is_known() ? Json(value) : Json(nullptr);
    };
    return {{"stolen_percent", if_known(noise.stolen_percent)},
            {"p90_over_p10", if_known(noise.p90_over_p10)},
            {"dropped_steps", if_known(noise.dropped_steps)},
            {"steps", if_known(noise.steps)},
            {"costs_apart", or_null(noise.costs_apart)},
            {"sharing_ranks", if_known(noise.sharing_ranks)},
            {"shared_cores", if_known(noise.shared_cores)}};
}

}  // namespace

Json comparison_json(const Comparison& comparison, const std::optional<ErrorRange>& expected) {
    Json json = json_head();
    json["makespan_ms"] = pair_json(comparison.makespan);
    json["step_ms"] = pair_json(comparison.step);
    json["interval"] = interval_json(expected, comparison.step.predicted);
    const double predicted = comparison.predicted_bubble_total;
    const double measured = comparison.measured_bubble_total;
    json["bubble_total"] = {
        {"predicted", predicted},
        {"measured", measured},
        {"error_percent",
         measured != 0 ? Json(100 * (predicted - measured) / measured) : Json(nullptr)}};
    json["peak_bytes"] = Json::array();
    for (const PeakDelta& peak : comparison.peaks) {
        json["peak_bytes"].push_back({{"rank", peak.rank},
                                      {"predicted", peak.predicted.count},
                                      {"measured", peak.measured.count},
                                      {"error_percent", peak.error_percent()}});
    }
    for (const Op op :
         {Op::Forward, Op::Backward, Op::BackwardInput, Op::BackwardWeight, Op::Recompute}) {
        json["by_action"][std::string(op_text(op))] = nullptr;
    }
    for (const Comparison::ByOp& by_op : comparison.by_op) {
        json["by_action"][std::string(op_text(by_op.op))] = {
            {"predicted_ms", to_milliseconds(by_op.total.predicted)},
            {"measured_ms", to_milliseconds(by_op.total.measured)}};
    }
    json["in_groups_ms"] =
        comparison.in_groups ? Json{{"predicted", to_milliseconds(comparison.in_groups->predicted)},
                                    {"measured", to_milliseconds(comparison.in_groups->measured)}}
                             : Json(nullptr);
    const auto side = [](const std::optional<Breakdown>& breakdown) {
        return breakdown ? breakdown_json(*breakdown) : Json(nullptr);
    };
    json["breakdown_ms"] = {{"predicted", side(comparison.predicted_breakdown)},
                            {"measured", side(comparison.measured_breakdown)}};
    json["replay"] = nullptr;
    if (comparison.replay) {
        json["replay"] = {{"step_ms", to_milliseconds(comparison.replay->predicted)},
                          {"error_percent", comparison.replay->error_percent()}};
    }
    json["noise"] = noise_json(comparison.noise);
    const std::optional<std::string> why = comparison.noise.not_measurable();
    json["not_measurable"] = or_null(why);
    json["verdict"] = why ? Json(comparison.noise.verdict()) : Json(nullptr);
    return json;
}

Json check_json(const CheckResult& result) {
    Json json = json_head();
    json["valid"] = result.violations.empty();
    json["deadlock_free"] = result.deadlock ? Json(result.deadlock->deadlock_free) : Json(nullptr);
    json["capacity"] = or_null(result.capacity);
    json["smallest_capacity"] = or_null(result.smallest_capacity);
    json["deadlock_free_with_begun_receives"] = or_null(result.runs_with_preposted_receives);
    json["peak_live_activations"] =
        result.violations.empty() ? Json(result.peak_live_activations) : Json(nullptr);
    json["problems"] = Json::array();
    for (const Violation& violation : result.violations) {
        json["problems"].push_back(violation_json(violation));
    }
    if (result.deadlock) {
        for (const Violation& waiting : result.deadlock->waiting) {
            json["problems"].push_back(violation_json(waiting));
        }
    }
    return json;
}

std::string json_text(const Json& json) {
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';  // of names of files
}

}  // namespace pipetwin::cli

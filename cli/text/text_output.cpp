// SPDX-License-Identifier: Apache-2.0
#include "cli/text/text_output.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>

#include <fmt/format.h>

#include "cli/text/evidence_text.h"
#include "cli/text/explanation_text.h"
#include "cli/text/sentences.h"
#include "core/base/number_text.h"
#include "core/base/printable.h"
#include "core/timeline/render_timeline.h"
#include "sim/calibration/step_range.h"
#include "sim/explain/critical_path.h"
#include "sim/questions/prediction.h"

namespace pipetwin::cli {

namespace {

constexpr std::size_t most_ranks_shown = 32;

std::string heading(const Plan& plan) {
    std::string text = fmt::format("{}, {}, {}",
                                   plan->schedule_name,
                                   stages_text(plan.rank_count(), plan->chunks),
                                   counted(plan.micro_batches(), "micro-batch"));
    if (plan->replicas > 1) {
        text += fmt::format(", {} replicas", plan->replicas);
    }
    if (plan->rank_devices() > 1) {
        text += fmt::format(", {} devices per rank", plan->rank_devices());
    }
    if (plan->layer_recompute != LayerRecompute::None) {
        text += fmt::format(", recompute {}", to_string(plan->layer_recompute));
    }
    if (plan->recompute_blocks > 1) {
        text += fmt::format(" ({} blocks at a time)", plan->recompute_blocks);
    }
    if (plan->recompute_only > 0) {
        text += fmt::format(" (first {} of each stage)", counted(plan->recompute_only, "block"));
    }
    if (plan->recompute != Recompute::None) {
        text += fmt::format(
            ", recompute {} ({})", to_string(plan->recompute), to_string(plan->recompute_timing));
    }
    return text;
}

/// Lines about rates by device, and how far the step may be off; empty where nothing is known.
std::string outlook_text(const sim::Prediction& prediction) {
    const sim::Outlook& outlook = prediction.outlook;
    std::string text;
    if (outlook.tokens_per_second_per_device) {
        text += fmt::format("  {:.0f} tokens/s per device", *outlook.tokens_per_second_per_device);
        if (const auto utilisation = outlook.utilisation()) {
            text += fmt::format(", {} of the devices' dense rate ({})",
                                percent_text(*utilisation),
                                utilisation_words(outlook.flops_count).name);
        }
        text += '\n';
    }
    if (outlook.no_utilisation) {
        text += fmt::format("  MFU is not known, as {}:\n  use --mfu {}\n",
                            outlook.no_utilisation->reason,
                            outlook.no_utilisation->known);
    }
    if (outlook.error) {
        const auto times = [&prediction](double factor) {
            return format_duration(scaled(prediction.metrics.step, factor));
        };
        text += fmt::format(
            "  a measured step is probably between {} and {}: 90 % of the\n"
            "  {} were this close to their estimates{}\n",
            times(outlook.error->low),
            times(outlook.error->high),
            outlook.error->of,
            unseen_text(*outlook.error));
    } else if (outlook.lacks_runs) {
        text += fmt::format("  no range of the measured step, as {}\n", no_runs_with_experts);
    }
    for (const std::string& line : evidence_lines(outlook.nearest)) {
        text += fmt::format("  {}\n", line);
    }
    return text;
}

/// Says what the bubble leaves out: actions that wait for messages inside of them.
std::string not_idle_text(const sim::MessagesInActions& messages, Duration step) {
    if (!sim::is_notable(messages.busiest_shards, step)) {
        return "";
    }
    return fmt::format(
        "  not counted as idle: {} of the step, in which actions wait for shards (see Where the "
        "time goes)\n",
        rounded_percent(share(messages.shards, step)));
}

std::string bubble_text(const Bubble& bubble) {
    const auto line = [](std::string_view name, double share, std::string_view words) {
        return fmt::format("  {:<24}{:>9}  {}\n", name, percent_text(share), words);
    };
    return "  bubble\n" +
           line("total", bubble.total, "idle share of all device time (as in the GPipe paper)") +
           line("without recompute",
                bubble.total_without_recompute,
                "idle share of all device time, with recompute counted as idle") +
           line("ideal",
                bubble.ideal,
                "time beyond the busiest rank's work, as a share of that work (as in the "
                "Megatron-LM paper)") +
           line("span",
                bubble.span,
                "longest time from a rank's first action to its last, less the busiest rank's "
                "work, as a share of that time (as in the zero bubble papers)");
}

/// The last row of their table: peaks need not be at one time, but so much memory must be there.
std::vector<std::string> sums_of_devices(const std::vector<DeviceMetrics>& devices) {
    MemoryUse sum;
    for (const DeviceMetrics& device : devices) {
        for (std::size_t kind = 0; kind < sum.bytes.size(); ++kind) {
            sum.bytes[kind] += device.peak.use.bytes[kind];
        }
    }
    std::vector<std::string> row{"all", "", "", "", format_bytes(sum.total())};
    for (const Bytes bytes : sum.bytes) {
        row.push_back(format_bytes(bytes));
    }
    return row;
}

/// A line about what a device holds beside the model; empty where it is a runtime's context alone.
std::string beside_text(const Plan& plan, const DeviceMetrics& device) {
    const BesideModel beside = beside_model(plan, device.rank, device.peak.use);
    std::string text;
    std::string parts;
    for (const auto& [bytes, of] :
         {std::pair(beside.communication, "message buffers"),
          std::pair(beside.product_workspace, "workspaces of products"),
          std::pair(beside.tensor_buffers, "buffers of messages beside products")}) {
        parts += bytes > Bytes{} ? fmt::format(", {} of {}", format_bytes(bytes), of) : "";
    }
    if (!parts.empty()) {
        text += fmt::format(
            "  the context is {} of the runtime{}\n", format_bytes(beside.runtime), parts);
    }
    if (beside.allocator_reserve > Bytes{}) {
        text += fmt::format("  the memory pool reserves {} beside the tensors\n",
                            format_bytes(beside.allocator_reserve));
    }
    if (beside.kept_messages > Bytes{}) {
        text += fmt::format("  the memory pool keeps {} of messages until it is full\n",
                            format_bytes(beside.kept_messages));
    }
    return text;
}

/// Text of the time and the action at which the fullest device reaches its peak; empty where no
/// bytes are known.
std::string peak_text(const sim::Prediction& prediction) {
    const auto& devices = prediction.metrics.devices;
    const DeviceMetrics& most = *std::ranges::max_element(
        devices, {}, [](const DeviceMetrics& device) { return device.peak.use.total(); });
    if (most.peak.use.total() == Bytes{}) {
        return "";
    }
    const std::optional<Action> action = peak_action(prediction.plan, most);
    const std::string moment = action ? fmt::format("at {}, {} {}",
                                                    format_duration(most.peak_time),
                                                    most.peak.after ? "after" : "during",
                                                    in_full(*action))
                                      : "all of it from the start of the step";
    const std::string again =
        most.peak.recomputed > Bytes{}
            ? fmt::format("  {} of its stash is there only during recompute\n",
                          format_bytes(most.peak.recomputed))
            : "";
    return fmt::format("  rank {} holds {}: {}, {}\n{}{}",
                       most.rank,
                       devices.size() > 1 ? "the most" : "at most",
                       format_bytes(most.peak.use.total()),
                       moment,
                       again,
                       beside_text(prediction.plan, most));
}

std::string device_table(const sim::Prediction& prediction) {
    const bool bytes_known = prediction.plan->partition.has_value();
    std::vector<std::vector<std::string>> rows{{"rank", "busy", "idle", "stashed"}};
    if (bytes_known) {
        rows.front().emplace_back("peak");
        for (int kind = 0; kind < memory_kind_count; ++kind) {
            rows.front().emplace_back(to_string(static_cast<MemoryKind>(kind)));
        }
    }
    const auto& devices = prediction.metrics.devices;
    for (const DeviceMetrics& device : devices) {
        if (rows.size() > most_ranks_shown) {
            break;
        }
        std::vector<std::string> row{std::to_string(device.rank),
                                     format_duration(device.busy),
                                     format_duration(device.idle),
                                     std::to_string(device.peak_live_activations)};
        if (bytes_known) {
            row.push_back(format_bytes(device.peak.use.total()));
            for (const Bytes bytes : device.peak.use.bytes) {
                row.push_back(format_bytes(bytes));
            }
        }
        rows.push_back(std::move(row));
    }
    if (bytes_known && devices.size() > 1) {
        rows.push_back(sums_of_devices(devices));
    }
    std::string text = text_table(rows);
    if (devices.size() > most_ranks_shown) {
        text += fmt::format("  not shown: {}; --json lists all\n",
                            counted(devices.size() - most_ranks_shown, "more rank"));
    }
    text += "  stashed: the largest number of stashes that a rank holds at once\n";
    if (bytes_known) {
        text += peak_text(prediction);
    }
    return text;
}

/// Lines about offload: the bytes moved, the memory saved and the time that it costs.
std::string offload_text(const sim::Prediction& prediction) {
    if (!prediction.offload) {
        return "";
    }
    const sim::OffloadEffect& offload = *prediction.offload;
    const auto most = std::ranges::max_element(offload.copied);
    if (most == offload.copied.end() || most->count == 0) {
        return "  offload: nothing to copy, every stash is needed by the next action of its rank\n";
    }
    Bytes peak;
    Bytes peak_on_device;
    for (std::size_t rank = 0; rank < offload.copied.size(); ++rank) {
        peak = std::max(peak, prediction.metrics.devices[rank].peak.use.total());
        peak_on_device = std::max(peak_on_device, offload.peaks_on_device[rank].total());
    }
    const Duration step = prediction.metrics.step;
    return fmt::format(
        "  offload: {} to host memory and back {}; if all stashes stayed on their devices, the "
        "largest peak would be {} instead of {}, {}\n",
        format_bytes(*most),
        offload.copied.size() == 1
            ? "per step"
            : fmt::format("per step on rank {}, the most", most - offload.copied.begin()),
        format_bytes(peak_on_device),
        format_bytes(peak),
        offload.step_on_device == step ? "and the step as long"
                                       : fmt::format("the step {} instead of {}",
                                                     format_duration(offload.step_on_device),
                                                     format_duration(step)));
}

std::string breakdown_table(const Breakdown& breakdown,
                            const sim::MessagesInActions& messages,
                            const Plan& plan) {
    std::vector<std::vector<std::string>> rows{{"mean over ranks", "time", "share"}};
    const auto total = static_cast<double>(std::max<std::int64_t>(1, breakdown.sum().count()));
    const auto add = [&](std::string_view words, Duration time) {
        const std::string share = percent_text(static_cast<double>(time.count()) / total);
        if (share != percent_text(0)) {
            rows.push_back({std::string(words), format_duration(time), share});
        }
    };
    for (const BreakdownPart& part : breakdown_parts) {
        add(part.words, breakdown.*part.value);
        if (part.value == &Breakdown::recompute) {  // the last of those that hold these messages
            add("of these, waiting for shards of weights and gradients", messages.shards);
            const bool sums_alone = plan->context_parallel == 1 && plan->expert_parallel == 1;
            add(fmt::format("of these, {} of {}",
                            sums_alone ? "sums" : "messages",
                            inner_parallelism(plan)),
                messages.tensor);
        }
    }
    rows.push_back({"step", format_duration(breakdown.sum()), ""});
    return text_table(rows);
}

std::string critical_path_text(const sim::Prediction& prediction) {
    std::string text = "\n  critical path\n";
    for (const sim::CriticalStep& step : prediction.critical_path) {
        text += fmt::format("  {:>12.3f} .. {:>12.3f} ms  rank {}  {}{}\n",
                            to_milliseconds(step.begin),
                            to_milliseconds(step.end),
                            step.rank,
                            to_string(step.action),
                            !step.host_copy                 ? ""
                            : step.action.op == Op::Forward ? ": its stash to host memory"
                                                            : ": its stash back from host memory");
    }
    return text;
}

/// What a column of a timeline is, as the end of its legend.
std::string columns_text(const TimelineColumns& columns) {
    const std::string column = format_duration(columns.column);
    if (columns.are_units()) {
        return fmt::format("; a column is {}", column);
    }
    if (columns.unit) {
        return fmt::format("\nscaled to fit: a column is {}, as {} of {} are too wide",
                           column,
                           counted(columns.units, "column"),
                           format_duration(*columns.unit));
    }
    return fmt::format("\nscaled: a column is {}, as the times have no common unit", column);
}

}  // namespace

std::string inner_parallelism(const Plan& plan) {
    std::vector<std::string_view> axes;
    for (const auto& [devices, axis] : {std::pair(plan->tensor_parallel, "tensor"),
                                        std::pair(plan->context_parallel, "context"),
                                        std::pair(plan->expert_parallel, "expert")}) {
        if (devices > 1) {
            axes.emplace_back(axis);
        }
    }
    return fmt::format("{} parallelism", fmt::join(axes, ", "));
}

std::string timeline_text(const Timeline& timeline, int width) {
    if (timeline.ranks.size() > most_ranks_shown) {
        return fmt::format("  {} ranks: too many to draw here; 'pipetwin export svg' draws them\n",
                           timeline.ranks.size());
    }
    constexpr int label_width = 10;
    const TimelineColumns columns = timeline_columns(timeline, std::max(20, width - label_width));
    return fmt::format("{}{}{}\n",
                       render_timeline(timeline, columns.column),
                       timeline_legend(timeline),
                       columns_text(columns));
}

std::string text_table(const std::vector<std::vector<std::string>>& cells) {
    std::vector<std::vector<std::string>> rows = cells;
    for (std::vector<std::string>& row : rows) {
        std::ranges::transform(row, row.begin(), printable);  // each row stays one line
    }
    std::vector<std::size_t> widths(rows.front().size(), 0);
    for (const auto& row : rows) {
        for (std::size_t column = 0; column < row.size(); ++column) {
            widths[column] = std::max(widths[column], row[column].size());
        }
    }
    std::string text;
    for (const auto& row : rows) {
        std::string line = fmt::format("  {:<{}}", row.front(), widths.front());
        for (std::size_t column = 1; column < row.size(); ++column) {
            line += fmt::format("  {:>{}}", row[column], widths[column]);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + '\n';
    }
    return text;
}

std::string stages_text(int ranks, int chunks) {
    return chunks > 1
               ? fmt::format("{} with {} each", counted(ranks, "rank"), counted(chunks, "stage"))
               : counted(ranks, "stage");
}

std::string percent_text(double share) {
    return fmt::format("{:.2f} %", 100 * share);
}

std::string csv_field(const std::string& text) {
    if (text.find_first_of(",\"\n") == std::string::npos) {
        return text;
    }
    std::string quoted = "\"";
    for (const char c : text) {
        quoted += c == '"' ? "\"\"" : std::string(1, c);
    }
    return quoted + '"';
}

std::string error_text(double percent) {
    return fmt::format("{:+.2f} %", percent);
}

std::vector<std::vector<std::string>> part_rows(const Comparison& comparison) {
    std::vector<std::vector<std::string>> rows;
    if (!comparison.predicted_breakdown || !comparison.measured_breakdown) {
        for (const Comparison::ByOp& by_op : comparison.by_op) {
            rows.push_back(pair_row(fmt::format("all {}", op_words(by_op.op)), by_op.total));
        }
        return rows;
    }
    for (const BreakdownPart& part : breakdown_parts) {
        if (part.value == &Breakdown::communication_wait && comparison.in_groups) {
            rows.push_back(pair_row(std::string(in_groups_words), *comparison.in_groups));
        }
        const Pair pair{.predicted = *comparison.predicted_breakdown.*part.value,
                        .measured = *comparison.measured_breakdown.*part.value};
        if (pair.predicted == Duration{} && pair.measured == Duration{}) {
            continue;
        }
        rows.push_back(pair_row(std::string(part.words), pair));
        constexpr std::array work{&Breakdown::forward,
                                  &Breakdown::backward,
                                  &Breakdown::backward_input,
                                  &Breakdown::backward_weight,
                                  &Breakdown::recompute};
        if (std::ranges::find(work, part.value) == work.end()) {
            rows.back().back() = "";  // percents of idle time and of overhead say little
        }
    }
    return rows;
}

std::vector<std::string> pair_row(std::string name, const Pair& pair) {
    return {std::move(name),
            format_duration(pair.predicted),
            format_duration(pair.measured),
            error_text(pair.error_percent())};
}

std::string prediction_text(const sim::Prediction& prediction, const Console& console) {
    const Metrics& metrics = prediction.metrics;
    std::string text = console.styled(Style::Strong, heading(prediction.plan)) + '\n';
    text += fmt::format("  step {}, pipeline {}",
                        console.styled(Style::Strong, format_duration(metrics.step)),
                        format_duration(metrics.makespan));
    if (metrics.samples_per_second) {
        text += fmt::format(", {:.1f} samples/s", *metrics.samples_per_second);
    }
    const bool estimated = prediction.plan->cost_source == CostSource::Estimated;
    text += fmt::format("  ({}{})\n",
                        to_string(prediction.timeline.origin),
                        estimated ? " from estimated costs" : "");
    text += outlook_text(prediction) + '\n';
    text += timeline_text(prediction.timeline, console.width());
    text += '\n' + bubble_text(metrics.bubble);
    text += not_idle_text(prediction.messages, metrics.step);
    text += '\n' + device_table(prediction);
    text += offload_text(prediction);
    text += '\n' + breakdown_table(prediction.breakdown, prediction.messages, prediction.plan);
    if (console.verbose()) {
        text += critical_path_text(prediction);
    }
    return text;
}

std::string explanation_text(const Plan& plan,
                             const sim::Explanation& explanation,
                             const Console& console) {
    std::string text;
    for (const Paragraph& paragraph : explanation_paragraphs(plan, explanation)) {
        text += '\n' + paragraph_text(paragraph, console.width());
    }
    if (console.verbose()) {
        constexpr std::size_t most_waits_shown = 10;
        const std::vector<std::string> waits = wait_lines(plan, explanation, most_waits_shown);
        text += waits.empty() ? "" : "\nLongest waits, and what filled them\n";
        for (const std::string& wait : waits) {
            text += "  " + wait + '\n';
        }
    }
    return text;
}

std::string step_text(const exec::StepReport& step) {
    std::string text = fmt::format("step {:>5}  loss {:>8.4f}  |gradient| {:>9.4f}  {:>9.2f} ms",
                                   step.step,
                                   step.loss,
                                   step.grad_norm,
                                   step.step_ms);
    if (step.samples_per_second) {
        text += fmt::format("  {:>8.1f} samples/s", *step.samples_per_second);
    }
    if (step.accuracy) {
        text += fmt::format("  accuracy {:>5.1f} %", 100 * *step.accuracy);
    }
    if (step.validation_loss) {
        text += fmt::format("  validation {:>8.4f}", *step.validation_loss);
    }
    if (step.validation_accuracy) {
        text += fmt::format(", accuracy {:>5.1f} %", 100 * *step.validation_accuracy);
    }
    return text;
}

namespace {

/// Which steps of a run were compared.
std::string compared_steps(const Noise& noise) {
    return noise.steps > 0 ? fmt::format("{} compared, {} left out",
                                         counted(noise.steps, "quiet step"),
                                         noise.dropped_steps)
                           : fmt::format("0 quiet steps compared, so one of the {} others is shown",
                                         noise.dropped_steps);
}

std::string noise_line(const Noise& noise) {
    if (!noise.is_known()) {
        return "  noise: not known, as the measured trace does not say how quiet its steps were\n";
    }
    return fmt::format(
        "  noise: during the compared steps {} took {:.2f} % of the time; p90/p10 of step times "
        "{:.3f}; {}\n",
        noise.sharing_ranks > 0 ? "other ranks and programs" : "other programs",
        noise.stolen_percent,
        noise.p90_over_p10,
        compared_steps(noise));
}

}  // namespace

std::string comparison_text(const Comparison& comparison,
                            const Console& console,
                            const std::optional<ErrorRange>& expected) {
    std::vector<std::vector<std::string>> rows{
        {"", "predicted", std::string(to_string(comparison.origin)), "error"}};
    rows.push_back(pair_row("step", comparison.step));
    rows.push_back(pair_row("pipeline", comparison.makespan));
    rows.push_back({"bubble",
                    percent_text(comparison.predicted_bubble_total),
                    percent_text(comparison.measured_bubble_total),
                    ""});
    std::ranges::move(part_rows(comparison), std::back_inserter(rows));
    for (const PeakDelta& peak : comparison.peaks) {
        rows.push_back({fmt::format("peak of rank {}", peak.rank),
                        fmt::format("{} B", peak.predicted.count),
                        fmt::format("{} B", peak.measured.count),
                        error_text(peak.error_percent())});
    }
    const Noise& noise = comparison.noise;
    const std::optional<std::string> not_valid = noise.not_measurable();
    std::string text;
    if (not_valid) {
        text += fmt::format("  {}\n\n", console.styled(Style::Bad, noise_sentence(noise)));
    }
    text += text_table(rows);
    if (comparison.predicted_breakdown && comparison.measured_breakdown) {
        text +=
            "  the rows from forward to overhead are parts of the step, averaged over the ranks\n";
    }
    if (comparison.origin == Origin::Emulated) {
        text +=
            "  emulated: the device is paced, so an action takes the time that the plan says, "
            "or longer on a\n  busy machine; messages and overhead are real\n";
    }
    text += '\n' + noise_line(noise);
    if (expected) {
        text += fmt::format(
            "  expected range of the measured step: {} (90 % of the {} were this close to their "
            "estimates{})\n",
            sim::range_text(comparison.step.predicted, *expected),
            expected->of,
            unseen_text(*expected));
    }
    if (comparison.replay) {
        text += fmt::format("  error of a simulation with the run's own durations: {}\n",
                            error_text(comparison.replay->error_percent()));
    }
    const double error = comparison.step.error_percent();
    constexpr double good_percent = 5;
    const bool is_good = error < good_percent && error > -good_percent;
    text += fmt::format(
        "  error of the predicted step: {}\n",
        not_valid ? error_text(error) + ", which says nothing here"
                  : console.styled(is_good ? Style::Good : Style::Bad, error_text(error)));
    return text;
}

}  // namespace pipetwin::cli

// SPDX-License-Identifier: Apache-2.0
#include "bench/published/stack_runs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <compare>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack.h"
#include "core/costs/estimate_error.h"
#include "core/interop/hf_config.h"

namespace pipetwin::published {

namespace {

/// The stack with all sustained shares multiplied.
std::shared_ptr<const Stack> with_sustained(const Stack& stack, double factor) {
    auto changed = std::make_shared<Stack>(stack);
    for (Stack::Sustained& row : changed->sustained) {
        row.share.value *= factor;
    }
    return changed;
}

/// The step of a run for some factors on the sustained share, by which products take 1 / factor.
class Curve {
  public:
    static constexpr std::array<double, 3> factors{1.25, 1, 0.8};

    double operator()(double factor) const {
        const double at = 1 / factor;
        const std::size_t left = at < 1 ? 0 : 1;
        const double from = 1 / factors[left];
        const double to = 1 / factors[left + 1];
        return steps[left] + (at - from) / (to - from) * (steps[left + 1] - steps[left]);
    }

    std::array<double, factors.size()> steps{};
};

/// A run of a sustained share that is fitted, with its curve.
struct Fitted {
    const StackRun* run = nullptr;
    Curve curve{};
};

/// The mean distance of predicted from measured steps; every source weighs the same.
double distance(const std::vector<Fitted>& rows, double factor) {
    std::map<std::string, std::pair<double, int>> sources;
    for (const Fitted& row : rows) {
        auto& [sum, count] = sources[row.run->source];
        sum += std::abs(row.curve(factor) / row.run->measured - 1);
        ++count;
    }
    double mean = 0;
    for (const auto& [name, of] : sources) {
        mean += of.first / of.second / static_cast<double>(sources.size());
    }
    return mean;
}

/// The factor that predicts the rows best; 1 for none.
double best_factor(const std::vector<Fitted>& rows) {
    constexpr int steps = 150;
    constexpr double width = 0.0025;
    double best = 1;
    for (int i = -steps; i <= steps; ++i) {
        const double factor = std::exp(width * i);
        if (distance(rows, factor) < distance(rows, best)) {
            best = factor;
        }
    }
    return best;
}

/// Sets what is predicted of the rows of one fitted share without their sources.
void leave_out_each(const std::vector<Fitted>& rows,
                    const std::map<const StackRun*, StackRun*>& runs) {
    const double of_all = best_factor(rows);
    std::map<std::string, double> without;
    for (const Fitted& row : rows) {
        const std::string& source = row.run->source;
        if (without.contains(source)) {
            continue;
        }
        std::vector<Fitted> others = rows;
        std::erase_if(others, [&source](const Fitted& of) { return of.run->source == source; });
        without[source] = best_factor(others) / of_all;
        if (others.empty()) {
            without[source] = 1 / row.run->sustained;
        }
    }
    for (const Fitted& row : rows) {
        StackRun& run = *runs.at(row.run);
        run.left_out = row.curve(without[run.source]);
        run.best = of_all * run.sustained;
    }
}

Curve curve_of(const StackRun& row, const Stack& stack) {
    Curve curve;
    for (std::size_t i = 0; i < Curve::factors.size(); ++i) {
        const double factor = Curve::factors[i];
        curve.steps[i] = factor == 1 ? row.predicted
                                     : predict_with(*row.run, with_sustained(stack, factor))
                                           .step_seconds.value_or(row.predicted);
    }
    return curve;
}

}  // namespace

std::vector<StackRun> stack_runs(const std::vector<Set>& sets) {
    std::vector<StackRun> all;
    for (const Set& set : sets) {
        for (const Run& run : set.runs) {
            const std::optional<double> predicted =
                run.step_seconds && !run.stack.empty() ? predict(run).step_seconds : std::nullopt;
            if (!predicted) {
                continue;
            }
            const Stack::Sustained* const row =
                find_stack(run.stack)->sustained_of(run.device, run.estimate.precision);
            const bool is_fitted = row != nullptr && row->share.kind == FactKind::Fitted;
            all.push_back(
                {.set = &set,
                 .run = &run,
                 .source = fmt::format("{} {} {}", set.setup, run.device, run.estimate.precision),
                 .fitted_to = is_fitted ? row->share.fitted_to : "",
                 .sustained = row == nullptr ? 1 : row->share.value,
                 .best = row == nullptr ? 1 : row->share.value,
                 .experts = parse_hf_config(run.model, run.name).experts.count > 0,
                 .measured = *run.step_seconds,
                 .predicted = *predicted,
                 .left_out = *predicted});
        }
    }
    std::map<std::string, std::vector<Fitted>> shares;
    std::map<const StackRun*, StackRun*> rows;
    for (StackRun& row : all) {
        rows[&row] = &row;
        if (!row.fitted_to.empty()) {
            shares[row.fitted_to].push_back({&row, curve_of(row, *find_stack(row.run->stack))});
        }
    }
    for (const auto& [fitted_to, of_share] : shares) {
        leave_out_each(of_share, rows);
    }
    return all;
}

namespace {

/// The distance at which nine of ten pairs of runs of one set on as many devices are predicted in
/// the right order; none for few pairs. An error of the ratio of two steps turns them round in one
/// of its two directions only. Every set weighs the same.
std::optional<double> order_error_of(const std::vector<StackRun>& runs) {
    constexpr std::size_t least = 10;
    constexpr double in_either_direction = 0.8;
    std::vector<Grouped> errors;
    for (std::size_t i = 0; i < runs.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
            const StackRun& a = runs[i];
            const StackRun& b = runs[j];
            if (a.set == b.set && a.run->devices == b.run->devices &&
                a.run->stack == b.run->stack) {
                const double ratio = (1 + a.error()) / (1 + b.error());
                errors.push_back({std::max(ratio, 1 / ratio) - 1, a.set->name});
            }
        }
    }
    return errors.size() < least ? std::nullopt
                                 : std::optional(quantile(errors, in_either_direction));
}

/// Runs that have a range together; empty names are any.
struct RangeKey {
    bool experts = false;
    std::string stack{};
    std::string device{};

    auto operator<=>(const RangeKey&) const = default;

    bool has(const StackRun& row) const {
        return row.experts == experts && (stack.empty() || row.run->stack == stack) &&
               (device.empty() || row.run->device == device);
    }
};

/// The range of some runs. Of the runs that need a stack
/// 95 % are inside, and 88 % of them in the range that is learned without their source.
PublishedRange range_for(const std::vector<StackRun>& all, const RangeKey& key) {
    constexpr double least = 0.04;
    std::vector<StackRun> runs;
    std::ranges::copy_if(
        all, std::back_inserter(runs), [&key](const StackRun& row) { return key.has(row); });
    std::vector<Grouped> factors;
    int largest = 0;
    for (const StackRun& row : runs) {
        factors.push_back({row.measured / row.left_out, row.source});
        largest = std::max(largest, row.run->devices);
    }
    const LearnedRange learned = range_of(factors);
    const auto rounded = [](double factor) { return std::round(1000 * factor) / 1000; };
    std::optional<double> order_error;
    if (key.device.empty()) {
        order_error = order_error_of(runs);
        order_error = order_error ? std::optional(rounded(*order_error)) : std::nullopt;
    }
    return {.stack = key.stack,
            .device = key.device,
            .experts = key.experts,
            .low = rounded(std::min(learned.low, 1 - least)),
            .high = rounded(std::max(learned.high, 1 + least)),
            .runs = learned.runs,
            .sources = learned.sources,
            .largest_devices = largest,
            .order_error = order_error};
}

std::string layout_text(const Run& run) {
    const auto number = [&run](const char* key) {
        const std::string text = key_of(run, key);
        return text.empty() ? 1 : std::stoi(text);
    };
    std::vector<std::string> parts;
    const int stages = number("pipeline.stages");
    const int chunks = number("pipeline.chunks");
    if (stages > 1) {
        parts.push_back(fmt::format("{} stages", stages));
        if (chunks > 1) {
            parts.back() += fmt::format(" of {} chunks", chunks);
        }
    }
    if (const int tensor = number("pipeline.tensor_parallel"); tensor > 1) {
        parts.push_back(fmt::format("tensor parallel {}", tensor));
    }
    if (const int context = number("pipeline.context_parallel"); context > 1) {
        parts.push_back(fmt::format("samples in {} parts", context));
    }
    if (const int experts = number("pipeline.expert_parallel"); experts > 1) {
        parts.push_back(fmt::format("experts in {} parts", experts));
    }
    const int replicas = number("pipeline.data_parallel");
    if (replicas > 1) {
        const std::string shard = key_of(run, "pipeline.shard");
        parts.push_back(fmt::format("{} replicas", replicas));
        if (!shard.empty() && shard != "none") {
            parts.back() += fmt::format(" that divide the {}", shard);
        }
    }
    return parts.empty() ? "one device" : fmt::format("{}", fmt::join(parts, ", "));
}

PublishedRun published_run(const StackRun& row) {
    const Run& run = *row.run;
    const DecoderModel model = parse_hf_config(run.model, run.name);
    const std::int64_t parameters = parameter_count(model);
    // Five digits: a change of the last one is none.
    const auto rate = [&run](double step) {
        const double tokens = static_cast<double>(run.batch) * run.estimate.sequence;
        return std::stod(fmt::format("{:.5g}", tokens / run.devices / step));
    };
    return {.set = row.set->name,
            .stack = run.stack,
            .device = run.device,
            .precision = run.estimate.precision,
            .model =
                run.model_name.empty()
                    ? fmt::format("{} {:.3g}B", model.family, static_cast<double>(parameters) / 1e9)
                    : run.model_name,
            .parameters = parameters,
            .experts = row.experts,
            .devices = run.devices,
            .layout = layout_text(run),
            .year = run.year,
            .source = run.table.empty() ? row.set->source
                                        : fmt::format("{}: {}", row.set->source, run.table),
            .measured = rate(row.measured),
            .predicted = rate(row.predicted)};
}

}  // namespace

Evidence evidence_of(const std::vector<StackRun>& runs) {
    Evidence evidence;
    std::set<RangeKey> groups{{}, {.experts = true}};
    for (const StackRun& row : runs) {
        evidence.runs.push_back(published_run(row));
        groups.insert({.experts = row.experts, .stack = row.run->stack});
        groups.insert({.experts = row.experts, .stack = row.run->stack, .device = row.run->device});
    }
    // Groups are in the order of their names, empty ones first: a range is behind the wider ones.
    constexpr int few = 3;
    for (const RangeKey& key : groups) {
        PublishedRange range = range_for(runs, key);
        const PublishedRange* const wider =
            evidence.range_of(key.device.empty() ? "" : key.stack, "", key.experts);
        if (range.sources < few && wider != nullptr) {
            range.low = std::min(range.low, wider->low);
            range.high = std::max(range.high, wider->high);
        }
        evidence.ranges.push_back(std::move(range));
    }
    return evidence;
}

std::vector<bool> inside_ranges_of_others(const std::vector<StackRun>& runs) {
    std::map<std::string, Evidence> without;
    for (const StackRun& row : runs) {
        if (!without.contains(row.source)) {
            std::vector<StackRun> others = runs;
            std::erase_if(others, [&row](const StackRun& of) { return of.source == row.source; });
            without[row.source] = evidence_of(others);
        }
    }
    std::vector<bool> inside;
    for (const StackRun& row : runs) {
        const ErrorRange range = range_of_stack(
            without[row.source], row.run->stack, row.run->device, row.run->devices, row.experts);
        const double factor = row.measured / row.left_out;
        inside.push_back(factor >= range.low && factor <= range.high);
    }
    return inside;
}

namespace {

/// Calls `visit(fact)` for the facts of a stack that may be fitted.
template <class Visit>
void visit_facts(const Stack& stack, const Visit& visit) {
    const Stack::Passes& passes = stack.passes;
    for (const Fact<double>* const fact : {&passes.copies,
                                           &passes.activations,
                                           &passes.norms_forward,
                                           &passes.norms_backward,
                                           &passes.loss_forward_bytes,
                                           &passes.loss_backward_bytes}) {
        visit("passes", *fact);
    }
    for (const auto* const fact : {&passes.rows, &passes.update_bytes, &passes.gradient_bytes}) {
        if (*fact) {
            visit("passes", **fact);
        }
    }
    visit("gap", stack.launch.gap);
    visit("host", stack.launch.host);
    if (stack.launch.experts_gap) {
        visit("gap", *stack.launch.experts_gap);
    }
    if (stack.launch.expert_host) {
        visit("host of experts", *stack.launch.expert_host);
    }
    std::ranges::for_each(stack.products, [&](const auto& row) { visit("products", row.reached); });
    std::ranges::for_each(stack.sustained, [&](const auto& row) { visit("sustained", row.share); });
    std::ranges::for_each(stack.attention,
                          [&](const auto& row) { visit("attention", row.reached); });
    std::ranges::for_each(stack.casts, [&](const auto& row) { visit("casts", row.bytes); });
    visit("allocator_reserve", stack.memory.allocator_reserve);
    const Stack::Collectives& messages = stack.collectives;
    for (const auto* const fact :
         {&messages.broadcast_us_per_device, &messages.sum_us_per_hop_and_bucket}) {
        if (*fact) {
            visit(fact == &messages.broadcast_us_per_device ? "broadcast" : "hop", **fact);
        }
    }
    for (const Fact<double>* const fact : {&messages.latency_us,
                                           &messages.per_device_us,
                                           &messages.per_node_us,
                                           &messages.straggler}) {
        visit("collectives", *fact);
    }
}

}  // namespace

int fitted_numbers() {
    std::set<std::pair<std::string, std::string>> known;
    for (const std::string& name : stack_names()) {
        visit_facts(*find_stack(name), [&known](const char* what, const auto& fact) {
            if (fact.kind == FactKind::Fitted) {
                known.emplace(what, fact.fitted_to);
            }
        });
    }
    return static_cast<int>(known.size());
}

}  // namespace pipetwin::published

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/base/file_kinds.h"
#include "cli/base/output_file.h"
#include "cli/commands/commands.h"
#include "cli/interop/exchange.h"
#include "cli/text/calibration_text.h"
#include "cli/text/json_output.h"
#include "core/artifacts/measured_runs.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/suggest.h"
#include "core/costs/calibration_json.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack.h"
#include "core/costs/devices/stack_toml.h"
#include "core/interop/traces/layer_times.h"
#include "core/text/json_text.h"
#include "sim/questions/calibrated_stack.h"

namespace pipetwin::cli {

namespace {

/// Options of `calibrate`; `common.out` is a file, and given.
struct CalibrateOptions {
    CommonOptions common;
    std::filesystem::path source;       ///< a trace, or measured runs
    std::vector<std::string> forward;   ///< "attention=PATTERN", at least one for a trace
    std::vector<std::string> backward;  ///< kinds without: as autograd's numbers say
    int micro_batch_size = 0;           ///< samples that the trace's micro-batches had; 0: not said
};

/// Kinds of layers in profiles that `import hf` writes.
constexpr std::array<std::string_view, 11> estimated_kinds{"attention",
                                                           "feed_forward",
                                                           "embedding",
                                                           "head",
                                                           "block",
                                                           "linear_attention",
                                                           "mamba",
                                                           "prediction",
                                                           "encoder_attention",
                                                           "norm",
                                                           "decoder_embedding"};

/// "attention=*.attn" as the kind and the pattern.
struct KindPattern {
    std::string kind;
    std::string pattern;
};

KindPattern kind_pattern(std::string_view option, const std::string& text) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
        throw Error(ErrorKind::Usage,
                    std::string(option),
                    fmt::format("'{}' is not of the form KIND=PATTERN", text),
                    fmt::format("write the kind of layer and the name of its ranges: {} "
                                "'attention=*.attn'",
                                option));
    }
    return {.kind = text.substr(0, equals), .pattern = text.substr(equals + 1)};
}

std::vector<LayerRanges> layer_ranges(const CalibrateOptions& options) {
    std::vector<LayerRanges> ranges;
    for (const std::string& text : options.forward) {
        const KindPattern of = kind_pattern("--forward", text);
        ranges.push_back({.kind = of.kind, .forward = of.pattern});
    }
    for (const std::string& text : options.backward) {
        const KindPattern of = kind_pattern("--backward", text);
        const auto found = std::ranges::find(ranges, of.kind, &LayerRanges::kind);
        if (found == ranges.end() || !found->backward.empty()) {
            throw Error(ErrorKind::Usage,
                        "--backward",
                        found == ranges.end()
                            ? fmt::format("kind '{}' has no pattern for its forward", of.kind)
                            : fmt::format("kind '{}' is named twice", of.kind),
                        found == ranges.end()
                            ? fmt::format("give --forward '{}=PATTERN', too", of.kind)
                            : "one pattern with * can stand for several names");
        }
        found->backward = of.pattern;
    }
    return ranges;
}

void note_times(const LayerTimes& times, Console& console) {
    for (const KindTimes& of : times.kinds) {
        if (std::ranges::find(estimated_kinds, of.kind) == estimated_kinds.end()) {
            console.note(fmt::format("'{}' is not a kind of layer in profiles of 'import hf': {}",
                                     of.kind,
                                     suggestion(of.kind, estimated_kinds).text()));
        }
    }
    for (const std::string& note : times.notes) {
        console.note(note);
    }
    if (times.only_launches) {
        console.note(
            "these are times of the CPU, which launched the work, as the trace does not say which "
            "kernels belong to its ranges");
    } else if (!times.on_gpu) {
        console.note("the trace has no kernels of a GPU: these are times of the CPU");
    }
}

Json points_json(const LayerTimes& times, const std::vector<CalibrationPoint>& points) {
    Json list = Json::array();
    for (std::size_t i = 0; i < points.size(); ++i) {
        list.push_back({{"kind", points[i].kind},
                        {"micro_batch_size", points[i].micro_batch_size},
                        {"forward_ms", to_milliseconds(points[i].forward)},
                        {"backward_ms", to_milliseconds(points[i].backward)},
                        {"forwards", times.kinds[i].forward.size()},
                        {"backwards", times.kinds[i].backward.size()}});
    }
    return list;
}

std::string points_text(const LayerTimes& times, const std::vector<CalibrationPoint>& points) {
    std::string text;
    for (std::size_t i = 0; i < points.size(); ++i) {
        text += fmt::format("{:<18} forward {:>12} ({}), backward {:>12} ({})\n",
                            points[i].kind,
                            format_duration(points[i].forward),
                            counted(times.kinds[i].forward.size(), "range"),
                            format_duration(points[i].backward),
                            counted(times.kinds[i].backward.size(), "range"));
    }
    return text;
}

void refuse_missing(std::string_view option, std::string_view example) {
    throw Error(ErrorKind::Usage,
                std::string(option),
                "missing, which a trace needs",
                fmt::format("add {} {}", option, example));
}

void calibrate_layers(const CalibrateOptions& options, Console& console) {
    if (options.forward.empty()) {
        refuse_missing("--forward", "'attention=*.attn', for each kind of layer");
    }
    if (options.micro_batch_size == 0) {
        refuse_missing("--micro-batch-size", "N, the samples of a micro-batch of the trace");
    }
    const std::vector<LayerRanges> ranges = layer_ranges(options);
    layer_range_names(ranges);  // refuses patterns that are none before the trace is read
    require_free(options.common.out, options.common.force);
    const LayerTimes times = read_layer_times(options.source, ranges);
    const std::vector<CalibrationPoint> points = points_of(times, options.micro_batch_size);
    note_times(times, console);
    write_output(options.common.out, print_calibration(points), console);
    if (options.common.json) {
        Json json = json_head();
        json["source"] = options.source.string();
        json["file"] = options.common.out.string();
        json["points"] = points_json(times, points);
        console.result(json_text(json));
        return;
    }
    console.result(points_text(times, points) +
                   fmt::format("{} written; 'pipetwin import hf ... --calibrate {}' corrects an "
                               "estimate with it\n",
                               options.common.out.string(),
                               options.common.out.string()));
}

/// An option for traces that was given; empty: there is none.
std::string_view option_of_traces(const CalibrateOptions& options) {
    return !options.forward.empty()        ? "--forward"
           : !options.backward.empty()     ? "--backward"
           : options.micro_batch_size != 0 ? "--micro-batch-size"
                                           : "";
}

void expect_no_options_of_traces(const CalibrateOptions& options) {
    const std::string_view given = option_of_traces(options);
    if (!given.empty()) {
        throw Error(ErrorKind::Usage,
                    std::string(given),
                    fmt::format("{} is no trace", options.source.string()),
                    "leave it out: rows of measured runs say all that a stack is calibrated by");
    }
}

void calibrate_stack(const CalibrateOptions& options, Console& console) {
    expect_no_options_of_traces(options);
    const std::string place = options.source.string();
    std::vector<sim::StackRow> rows;
    for (const MeasuredRun& run :
         parse_measured_runs(read_file(options.source, JsonLimits{}.max_bytes), place)) {
        rows.push_back(sim::stack_row(run));
    }
    require_free(options.common.out, options.common.force);
    const std::string base = rows.front().setup.estimate.stack->name;
    const sim::StackCalibration found = sim::calibrated_stack(rows, options.common.out.string());
    std::ranges::for_each(found.warnings, [&](const std::string& text) { console.note(text); });
    const StackFile before = read_stack_file(base);
    write_output(options.common.out,
                 print_calibrated(before.text, before.file.string(), found.stack),
                 console);
    if (options.common.json) {
        Json json = json_head();
        json["source"] = place;
        json["file"] = options.common.out.string();
        json["stack"] = base;
        add_stack_calibration(found, json);
        console.result(json_text(json));
        return;
    }
    console.result(
        fmt::format("{0} written: {1}, corrected by {2}. 'pipetwin plan MODEL --stack "
                    "{0}' estimates with it\n\n{3}",
                    options.common.out.string(),
                    base,
                    counted(std::ssize(rows), "measured run"),
                    stack_calibration_text(found, console)));
}

/// Whether a file can be read and is not empty.
bool has_content(const std::filesystem::path& file) {
    try {
        return !read_file(file, JsonLimits{}.max_bytes).empty();
    } catch (const Error&) {
        return false;
    }
}

void execute_calibrate(const CalibrateOptions& options, Console& console) {
    expect_kind(options.source,
                {FileKind::TorchTrace, FileKind::Nsys},
                "a trace of PyTorch's profiler, an export of nsys, or rows of measured runs");
    const FileKind kind = kind_of_file(options.source);
    const bool is_trace = kind == FileKind::TorchTrace || kind == FileKind::Nsys ||
                          (!option_of_traces(options).empty() && !has_content(options.source));
    is_trace ? calibrate_layers(options, console) : calibrate_stack(options, console);
}

Command declare_calibrate(CLI::App& app) {
    const auto options = std::make_shared<CalibrateOptions>();
    app.add_option("source",
                   options->source,
                   "Trace of one rank, from PyTorch's profiler or exported by nsys; or rows of "
                   "measured runs as JSON, each with its model, device, stack and sequence: they "
                   "correct the stack, whose file is written")
        ->type_name("TRACE|ROWS.json")
        ->required();
    app.add_option(
           "--forward",
           options->forward,
           "Traces: KIND is a kind of layer; PATTERN matches the profiler ranges of its forward, "
           "as in 'attention=*.attn'; * is any text. Once for each kind")
        ->type_name("KIND=PATTERN")
        ->take_all()
        ->expected(1);
    app.add_option(
           "--backward",
           options->backward,
           "PATTERN matches the profiler ranges of the backward of KIND (default: the backwards "
           "that autograd ran for the operators of the forward)")
        ->type_name("KIND=PATTERN")
        ->take_all()
        ->expected(1);
    app.add_option(
           "--micro-batch-size", options->micro_batch_size, "Samples per micro-batch in the trace")
        ->type_name("N")
        ->check(CLI::Range(1, 1 << 16));
    needs_out_file(app);
    reads_no_scenario(app);
    return command_with(options, execute_calibrate);
}

}  // namespace

CommandRow calibrate_command() {
    return {.name = "calibrate",
            .help = "Correct a stack by measured runs, or read times of layers from a trace",
            .declare = declare_calibrate};
}

}  // namespace pipetwin::cli

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/base/file_kinds.h"
#include "cli/base/output_file.h"
#include "cli/commands/commands.h"
#include "cli/interop/exchange.h"
#include "cli/text/json_output.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/suggest.h"
#include "core/costs/calibration_json.h"
#include "core/interop/traces/layer_times.h"

namespace pipetwin::cli {

namespace {

/// Options of `calibrate`; `common.out` is a file, and given.
struct CalibrateOptions {
    CommonOptions common;
    std::filesystem::path trace;
    std::vector<std::string> forward;   ///< "attention=PATTERN", at least one
    std::vector<std::string> backward;  ///< kinds without: as autograd's numbers say
    int micro_batch_size = 0;           ///< samples that the trace's micro-batches had
};

/// Kinds of layers in profiles that `import hf` writes.
constexpr std::array<std::string_view, 10> estimated_kinds{"attention",
                                                           "feed_forward",
                                                           "embedding",
                                                           "head",
                                                           "block",
                                                           "linear_attention",
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

void execute_calibrate(const CalibrateOptions& options, Console& console) {
    expect_kind(options.trace,
                {FileKind::TorchTrace, FileKind::Nsys},
                "a trace of PyTorch's profiler, or an export of nsys");
    const std::vector<LayerRanges> ranges = layer_ranges(options);
    layer_range_names(ranges);  // refuses patterns that are none before the trace is read
    require_free(options.common.out, options.common.force);
    const LayerTimes times = read_layer_times(options.trace, ranges);
    const std::vector<CalibrationPoint> points = points_of(times, options.micro_batch_size);
    note_times(times, console);
    write_output(options.common.out, print_calibration(points), console);
    if (options.common.json) {
        Json json = json_head();
        json["source"] = options.trace.string();
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

Command declare_calibrate(CLI::App& app) {
    const auto options = std::make_shared<CalibrateOptions>();
    app.add_option("trace",
                   options->trace,
                   "Trace of one rank, from PyTorch's profiler or exported by nsys")
        ->type_name("TRACE")
        ->required();
    app.add_option("--forward",
                   options->forward,
                   "KIND is a kind of layer; PATTERN matches the profiler ranges of its forward, "
                   "as in 'attention=*.attn'; * is any text. Once for each kind")
        ->type_name("KIND=PATTERN")
        ->take_all()
        ->expected(1)
        ->required();
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
        ->check(CLI::Range(1, 1 << 16))
        ->required();
    needs_out_file(app);
    reads_no_scenario(app);
    return command_with(options, execute_calibrate);
}

}  // namespace

CommandRow calibrate_command() {
    return {.name = "calibrate",
            .help =
                "Read the time of each kind of layer from a trace, to correct the estimates of "
                "import hf",
            .declare = declare_calibrate};
}

}  // namespace pipetwin::cli

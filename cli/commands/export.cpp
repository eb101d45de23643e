// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/base/file_kinds.h"
#include "cli/base/output_file.h"
#include "cli/base/value_words.h"
#include "cli/commands/commands.h"
#include "cli/figures/figures.h"
#include "cli/interop/exchange.h"
#include "cli/interop/export/exporters.h"
#include "cli/interop/export_source.h"
#include "cli/run_folder/run_folder.h"
#include "cli/text/text_output.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/svg/svg.h"
#include "core/text/json_text.h"
#include "core/timeline/compare.h"
#include "sim/questions/schedule_rows.h"

namespace pipetwin::cli {

namespace {

/// The predicted timeline, with a word to the user where its costs are none.
ExportSource::Predicted predicted(const ExportSource& source, Console& console) {
    ExportSource::Predicted found = source.predicted();
    if (found.costs != "unit") {
        console.note(fmt::format("costs: {}", found.costs));
        return found;
    }
    console.note(fmt::format(
        "unit costs: 1 ms for F, I, W and R of every stage, 2 ms for B{}",
        source.kind() == ExportSource::Kind::Scenario
            ? fmt::format("; 'pipetwin profile {}' measures the real ones", source.path().string())
            : ", since a schedule file holds none"));
    return found;
}

std::string title_of(const ExportSource::Predicted& source) {
    const Schedule& schedule = source.trace.schedule;
    return timeline_title({.schedule = source.trace.schedule_name,
                           .ranks = schedule.rank_count(),
                           .micro_batches = schedule.micro_batches,
                           .replicas = source.replicas,
                           .devices_per_rank = source.devices_per_rank,
                           .has_unit_costs = source.costs == "unit"});
}

/// What an export of the timeline says of it.
Exported of_timeline(const ExportSource::Predicted& found, std::string content) {
    Exported exported = of_schedule(found.trace.schedule, std::move(content));
    exported.result.devices =
        found.trace.schedule.rank_count() * found.replicas * found.devices_per_rank;
    exported.result.costs = found.costs;
    return exported;
}

/// The step of a trace that is nearest the median, with a word to the user which one of several.
const Timeline& drawn_step(const TimelineSet& timelines, Console& console) {
    const Timeline& step = median_step(timelines);
    const auto place = static_cast<std::size_t>(&step - timelines.steps.data());
    if (place < timelines.numbers.size() && timelines.steps.size() > 1) {
        console.note(fmt::format("drawn: step {}, the one nearest the median of {}",
                                 timelines.numbers[place],
                                 counted(std::ssize(timelines.steps), "step")));
    }
    return step;
}

/// The picture in the given format.
template <FigureFormat format>
Exported picture(const ExportSource& source, const ExportOptions& options, Console& console) {
    const ExportSource::Predicted found = source.kind() == ExportSource::Kind::Trace
                                              ? source.predicted()
                                              : predicted(source, console);
    const Timeline& timeline = drawn_step(found.trace.timelines, console);
    const SvgOptions look = timeline_look(timeline, title_of(found), options.look);
    const std::optional<Trace> measured = source.measured();
    const std::string svg =
        measured ? render_svg_pair(timeline, drawn_step(measured->timelines, console), look)
                 : render_svg(timeline, look);
    return of_timeline(found, figure_bytes(svg, format));
}

Exported chrome_trace(const ExportSource& source, const ExportOptions&, Console& console) {
    const ExportSource::Predicted found = predicted(source, console);
    return of_timeline(found, print_chrome_trace(found.trace));
}

/// A format; null: it writes a folder.
struct ExportFormat {
    std::string_view name;
    Exported (*write)(const ExportSource&, const ExportOptions&, Console&);
};

constexpr auto export_formats = std::to_array<ExportFormat>({
    {"torch-csv", &export_torch_csv},
    {"chrome-trace", &chrome_trace},
    {"megatron-layout", &export_megatron_layout},
    {"megatron-flags", &export_megatron_flags},
    {"torchtitan", &export_torchtitan},
    {"torchtitan-toml", &export_torchtitan_toml},
    {"torchtitan-python", &export_torchtitan_python},
    {"bridge", &export_bridge},
    {"automodel", &export_automodel},
    {"deepspeed", &export_deepspeed},
    {"sbatch", &export_slurm_script},
    {"kubernetes", &export_kubernetes_job},
    {"json", &export_json},
    {"svg", &picture<FigureFormat::Svg>},
    {"pdf", &picture<FigureFormat::Pdf>},
    {"png", &picture<FigureFormat::Png>},
    {"hf", nullptr},
});

std::vector<std::string_view> export_names() {
    std::vector<std::string_view> names;
    std::ranges::transform(export_formats, std::back_inserter(names), &ExportFormat::name);
    return names;
}

/// The text of the model's config.json, which `plan MODEL --out` writes beside its costs; empty
/// where there is none.
std::string config_of(const ExportSource& source) {
    const bool is_scenario = source.kind() == ExportSource::Kind::Scenario;
    if (source.kind() == ExportSource::Kind::File ||
        (is_scenario && source.path().filename() != run_file::scenario)) {
        return {};
    }
    const std::filesystem::path folder = is_scenario ? source.path().parent_path() : source.path();
    std::error_code ignored;
    return std::filesystem::exists(folder / run_file::config, ignored)
               ? read_file(folder / run_file::config, JsonLimits{}.max_bytes)
               : std::string();
}

/// The format of a picture; none: it is no picture.
std::optional<FigureFormat> picture_format(std::string_view format) {
    if (format == "svg") {
        return FigureFormat::Svg;
    }
    if (format == "pdf") {
        return FigureFormat::Pdf;
    }
    return format == "png" ? std::optional(FigureFormat::Png) : std::nullopt;
}

/// Throws Error(Usage) for a picture that would be called another kind of picture, and for the look
/// of a picture beside a format that is none; Error(Unavailable) where it cannot be drawn.
void check_picture(const ExportOptions& options) {
    const std::optional<FigureFormat> format = picture_format(options.format);
    if (!format && options.look != FigureLook{}) {
        throw Error(
            ErrorKind::Usage,
            option_of_look(options.look),
            fmt::format("it is for svg, pdf and png, but the format is '{}'", options.format),
            "leave it out, or export one of these");
    }
    if (!format) {
        return;
    }
    constexpr std::array<std::string_view, 8> pictures{
        ".svg", ".pdf", ".png", ".jpg", ".jpeg", ".gif", ".eps", ".webp"};
    const std::string ending = options.common.out.extension().string();
    if (std::ranges::find(pictures, ending) != pictures.end()) {
        refuse_other_picture("--out", options.common.out, "." + options.format);
    }
    require_figures(*format);
}

void execute_export(const ExportOptions& options, Console& console) {
    const auto write =
        export_formats
            .at(format_index("export", options.format, options.source.string(), export_names()))
            .write;
    if (options.compute_only && write != &export_torch_csv) {
        throw Error(ErrorKind::Usage,
                    "--compute-only",
                    fmt::format("it is for torch-csv, but the format is '{}'", options.format),
                    "leave it out, or export torch-csv");
    }
    if (options.shard_size && write != nullptr) {
        throw Error(ErrorKind::Usage,
                    "--shard-size",
                    fmt::format("it is for hf, but the format is '{}'", options.format),
                    "leave it out, or export hf");
    }
    check_picture(options);
    if (write == nullptr) {
        Exchanged written = export_hf(options, console);
        written.format = options.format;
        written.source = options.source.string();
        written.out = options.common.out;
        report(written, options.common, console);
        return;
    }
    require_free(options.common.out, options.common.force);
    ExportSource source(options.source, options.common.overrides, options.profile);
    source.know_config(config_of(source));
    Exported exported = write(source, options, console);
    write_output(options.common.out, exported.content, console);
    if (source.kind() == ExportSource::Kind::Scenario) {
        const SettledScenario scenario =
            settle(read_scenario(options.source, options.common.overrides));
        const std::optional<sim::FoundProfile> found =
            sim::profile_for_rows(scenario, options.profile);
        for (const std::string& note :
             sim::notes_on_rows(scenario, found ? &found->profile : nullptr)) {
            console.note(note);
        }
    }
    exported.result.format = options.format;
    exported.result.source = options.source.string();
    exported.result.out = options.common.out;
    report(exported.result, options.common, console);
}

/// Refuses a source of another kind than the format is written from.
void expect_source(const ExportOptions& options) {
    if (!if_scenario(options.source).empty()) {
        expect_scenario(options.source);
    } else if (picture_format(options.format)) {
        expect_kind(options.source,
                    {FileKind::Schedule, FileKind::RunFolder, FileKind::OurTrace},
                    "a scenario *.toml, a run folder, a trace that pipetwin wrote or a schedule as "
                    "CSV");
    } else {
        expect_kind(options.source,
                    {FileKind::Schedule, FileKind::RunFolder},
                    "a scenario *.toml, a run folder or a schedule as CSV");
    }
    expect_costs(options.profile);
}

Command declare_export(CLI::App& app) {
    const auto options = std::make_shared<ExportOptions>();
    app.add_option("format",
                   options->format,
                   fmt::format("Format to write: {}", fmt::join(export_names(), ", ")))
        ->check(suggests(export_names()))
        ->type_name("FORMAT")
        ->required();
    app.add_option("source",
                   options->source,
                   "What to convert: a scenario, a schedule file, a folder of a plan or run, or "
                   "for svg, pdf and png a trace")
        ->type_name("SOURCE")
        ->required();
    add_profile(app, options->profile, "Costs of the scenario's layers: *.profile.json or CSV");
    app.add_flag("--compute-only",
                 options->compute_only,
                 "torch-csv: write only F, B, I and W; PyTorch adds the communication");
    app.add_option("--shard-size",
                   options->shard_size,
                   "hf: largest size of one file of weights (default 5 GB)")
        ->type_name("SIZE");
    add_figure_look(app, options->look);
    needs_out_file(app);
    leave_out_of_help(app, {"--seed", "--verbose"});
    Command command = command_with(options, execute_export);
    command.input = [options] { return options->source; };
    command.scenario = [options] { return if_scenario(options->source); };
    command.expect_files = [options] { expect_source(*options); };
    return command;
}

}  // namespace

CommandRow export_command() {
    return {.name = "export",
            .help =
                "Convert a scenario, a run or a schedule into a file of another program, or into a "
                "picture",
            .declare = declare_export};
}

}  // namespace pipetwin::cli

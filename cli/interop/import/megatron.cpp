// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/base/input.h"
#include "cli/base/output_file.h"
#include "cli/interop/import/base_files.h"
#include "cli/interop/import/importers.h"
#include "cli/interop/import/launch_tables.h"
#include "cli/interop/import/measured_rows.h"
#include "cli/interop/import/megatron_fragment.h"
#include "cli/interop/import/named_model.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/interop/launch/printed_arguments.h"
#include "core/interop/launch/program_logs.h"
#include "core/interop/launch/shell_words.h"
#include "core/interop/launch/swift_arguments.h"
#include "core/interop/megatron_flags.h"
#include "core/interop/megatron_layout.h"

namespace pipetwin::cli {

namespace {

constexpr std::size_t largest_layout_file = std::size_t{1} << 20;

[[noreturn]] void refuse(const std::string& place, std::string what, std::string hint) {
    throw Error(ErrorKind::Infeasible, place, std::move(what), std::move(hint));
}

LayoutPartition partition_of(const MegatronLayout& layout, const std::string& place) {
    try {
        return layout_partition(layout);
    } catch (const Error& error) {
        throw error.at(place);
    }
}

Imported with_counts(std::string content, int ranks, int stages) {
    Imported imported{.content = std::move(content), .result = {}};
    imported.result.ranks = ranks;
    imported.result.stages = stages;
    return imported;
}

// --- A layout alone. ---

int ranks_of(const MegatronLayout& layout, int chunks, const std::string& place) {
    const auto stages = static_cast<int>(layout.stages.size());
    if (stages % chunks != 0) {
        refuse(place,
               fmt::format("{} {} not a multiple of {}",
                           counted(stages, "stage"),
                           verb_for(stages, "is", "are"),
                           counted(chunks, "chunk")),
               "--chunks is what Megatron calls the virtual pipeline size");
    }
    return stages / chunks;
}

/// The unit of the partition's numbers in words, for a reader of the fragment.
std::string unit_words(const LayoutPartition& partition) {
    if (partition.unit == LayoutUnit::Blocks) {
        return fmt::format("whole blocks, {} in all; embedding and head go with the ends",
                           partition.decoder_layers);
    }
    return fmt::format("layers one by one, E, {} m and L among them", partition.prediction_layers);
}

Imported import_layout(const MegatronLayout& layout, int chunks, const std::string& place) {
    const int ranks = ranks_of(layout, chunks, place);
    const LayoutPartition partition = partition_of(layout, place);
    Imported imported = with_counts(
        fmt::format("# Megatron's pipeline layout {}\n# partition counts {}\n[pipeline]\n"
                    "stages = {}\nchunks = {}\npartition = [{}]\n",
                    print_megatron_layout(layout),
                    unit_words(partition),
                    ranks,
                    chunks,
                    fmt::join(partition.sizes, ", ")),
        ranks,
        static_cast<int>(layout.stages.size()));
    if (partition.prediction_layers > 0) {
        imported.notes.emplace_back(
            "warning: the layout has layers m, which predict further tokens: the partition fits "
            "only a model that has a layer for each letter, m included");
    }
    return imported;
}

// --- Files. ---

/// No launch file is as large as a log.
void expect_size_of_flags(std::string_view text, const std::string& place) {
    if (text.size() > largest_layout_file) {
        throw Error(ErrorKind::BadInput,
                    place,
                    fmt::format("{} bytes without a block of arguments, expected at most {}",
                                text.size(),
                                largest_layout_file),
                    "a log has to have the arguments that Megatron prints when it begins");
    }
}

/// No layout begins with a brace or a bracket, and no file of flags does.
void expect_no_other_kind(std::string_view text, const std::string& place) {
    expect_text(text, place, "a layout, flags or YAML");
    const std::size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
    const std::string_view content = text.substr(begin);
    expect_known_program(text, place);
    const bool is_json = content.starts_with('{');
    if (is_json || content.starts_with('[')) {
        throw Error(ErrorKind::BadInput,
                    place,
                    fmt::format("the file looks like {}, expected a layout, flags or YAML",
                                is_json ? "JSON" : "TOML"),
                    is_json ? "'pipetwin import deepspeed' reads DeepSpeed's JSON"
                            : "'pipetwin import torchtitan' reads torchtitan's TOML");
    }
}

/// A configuration that a program printed into its log, in the words of its files; empty: the text
/// is no such log.
PrintedText printed_config(const std::string& log, const std::string& place) {
    return has_bridge_log(log)  ? bridge_log_yaml(log, place)
           : has_swift_log(log) ? swift_log_arguments(log, place)
                                : PrintedText();
}

}  // namespace

Imported import_megatron(const ImportOptions& options) {
    const std::string place = input_name(options.file);
    const std::string log = read_input(options.file, largest_log);
    const PrintedText printed = printed_config(log, place);
    const std::string& text = printed.text.empty() ? log : printed.text;
    if (!has_printed_arguments(text) && !is_swift_arguments(text)) {
        expect_size_of_flags(text, place);
        expect_no_other_kind(text, place);
    }
    if (!are_megatron_flags(text)) {
        const std::string_view option = !options.hf.given().empty() ? options.hf.given()
                                        : !options.model.empty()    ? "--model"
                                        : !options.log.empty()      ? "--log"
                                        : !options.rows_out.empty() ? "--rows-out"
                                                                    : "";
        if (!option.empty()) {
            throw Error(ErrorKind::Usage,
                        std::string(option),
                        "a layout describes neither a model nor a run",
                        "leave it out");
        }
        return import_layout(parse_megatron_layout(text, place), options.chunks.value_or(1), place);
    }
    expect_flag_options(options);
    if (has_bridge_summary(log) && options.model.empty()) {
        throw Error(ErrorKind::BadInput,
                    place,
                    "the summary that Megatron-Bridge prints says neither the model's words nor "
                    "its positions, nor whether embedding and head share weights",
                    "add --model NAME to the command ('pipetwin devices' lists the names), or "
                    "import the file of logger.save_config_filepath with this as --log");
    }
    if (options.hf.device) {
        require_free(profile_beside(options.common.out), options.common.force);
    }
    LaunchFile file = parse_launch_file(
        text,
        printed.text.empty() ? place : fmt::format("{}, behind line {}", place, printed.line),
        given_variables(options, text));
    take_devices(file, options);
    std::vector<std::string> left_out;
    const auto take = [](const std::string& of, const std::string& at) {
        return parse_launch_file(of, at);
    };
    add_primus_module(file, options, take, add_base_settings, left_out);
    add_bases(file, options, "models/megatron", take, add_base_settings, left_out);
    add_named_model(file, options);
    const bool is_empty = std::ranges::all_of(file.settings, &Setting::is_unset);
    if (is_empty && !file.unseen.empty()) {
        throw Error(ErrorKind::BadInput,
                    place,
                    fmt::format("no flags of a training program are seen, those that {} holds are "
                                "not",
                                file.unseen.front()),
                    "write the flags in place of the variable: it has no value in this file, or "
                    "one under a condition or in a loop");
    }
    if (is_empty) {
        throw Error(ErrorKind::BadInput,
                    place,
                    "no flags of a training program, expected flags such as --num-layers 32",
                    "for a layout alone leave all flags out: Et|tL");
    }
    MegatronFlags flags = megatron_flags(file, leave_out(options));
    flags.left_out.insert(flags.left_out.end(), left_out.begin(), left_out.end());
    if (!file.framework.empty()) {
        flags.program = file.framework;
    }
    take_vocabulary(flags, options);
    Imported imported = megatron_fragment(flags, options, place);
    imported.has_open_devices = !flags.processes.has_value();
    add_measured_steps(imported,
                       options,
                       file.is_printed ? std::string_view(log) : std::string_view(),
                       {.batch = flags.global_batch_size});
    return imported;
}

}  // namespace pipetwin::cli

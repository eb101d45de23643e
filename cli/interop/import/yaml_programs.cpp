// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "cli/base/input.h"
#include "cli/base/output_file.h"
#include "cli/interop/exchange.h"
#include "cli/interop/import/importers.h"
#include "cli/interop/import/known_format.h"
#include "cli/interop/import/launch_tables.h"
#include "cli/interop/import/measured_rows.h"
#include "cli/interop/import/megatron_fragment.h"
#include "cli/interop/import/program_keys.h"
#include "core/base/error.h"
#include "core/interop/launch/program_logs.h"
#include "core/interop/launch/yaml_settings.h"
#include "core/interop/program_flags.h"

namespace pipetwin::cli {

namespace {

constexpr std::size_t largest_program_file = std::size_t{1} << 20;

/// A program whose YAML file says what Megatron's flags say.
struct YamlProgram {
    std::string_view format;  ///< as `import` calls it
    std::string_view name;
    std::string_view example;  ///< a key that its files have
    bool (*is_one)(std::string_view text);
    bool (*has_keys)(const LaunchFile& file);
    MegatronFlags (*flags)(const LaunchFile& file, LeaveOut leave_out);
};

constexpr YamlProgram nemo_program{.format = "nemo",
                                   .name = "NeMo",
                                   .example = "model.encoder_seq_length",
                                   .is_one = &is_nemo,
                                   .has_keys = &has_nemo_keys,
                                   .flags = &nemo_flags};

constexpr YamlProgram nanotron_program{.format = "nanotron",
                                       .name = "nanotron",
                                       .example = "tokens.micro_batch_size",
                                       .is_one = &is_nanotron,
                                       .has_keys = &has_nanotron_keys,
                                       .flags = &nanotron_flags};

constexpr YamlProgram neox_program{.format = "neox",
                                   .name = "GPT-NeoX",
                                   .example = "pipe_parallel_size",
                                   .is_one = &is_neox,
                                   .has_keys = &has_neox_keys,
                                   .flags = &neox_flags};

/// Throws Error(BadInput) for a text of another format, naming its command.
void expect_no_other_format(const YamlProgram& program,
                            std::string_view text,
                            const std::string& place) {
    const std::optional<KnownFormat> other = format_of_text(text);
    if (other && other->format != program.format) {
        throw Error(
            ErrorKind::BadInput,
            place,
            fmt::format("this is {}, expected a configuration of {}", other->words, program.name),
            fmt::format("'pipetwin import {}' reads it", other->format));
    }
}

/// The settings of a text, with a key of the program among them.
LaunchFile settings_of_program(const YamlProgram& program,
                               std::string_view text,
                               const std::string& place,
                               const LaunchVariables& given) {
    expect_text(text, place, fmt::format("{}'s YAML", program.name));
    if (!program.is_one(text)) {
        expect_known_program(text, place);
        if (!is_yaml(text)) {
            expect_no_other_format(program, text, place);
        }
    }
    LaunchFile file = parse_yaml_settings(text, place, given);
    if (!program.has_keys(file)) {
        expect_no_other_format(program, text, place);
        throw Error(ErrorKind::BadInput,
                    place,
                    fmt::format("no key of {} that says a model, a split or a batch, expected such "
                                "as {}",
                                program.name,
                                program.example),
                    fmt::format("is this a file of {}? 'pipetwin import auto' looks for the format",
                                program.name));
    }
    return file;
}

/// No configuration is as large as a log.
void expect_size_of_file(const YamlProgram& program,
                         std::string_view text,
                         const std::string& place) {
    if (text.size() > largest_program_file) {
        throw Error(ErrorKind::BadInput,
                    place,
                    fmt::format("{} bytes, expected at most {} of {}'s YAML",
                                text.size(),
                                largest_program_file,
                                program.name),
                    "name a log with --log FILE, beside the configuration of its run");
    }
}

Imported read_program(const YamlProgram& program, const ImportOptions& options) {
    const std::string place = input_name(options.file);
    const std::string text = read_input(options.file, largest_log);
    const bool is_nanotron_log = &program == &nanotron_program && has_nanotron_log(text);
    const bool is_neox_log = &program == &neox_program && has_neox_log(text);
    const bool is_log = is_nanotron_log || is_neox_log;
    if (!is_log) {
        expect_size_of_file(program, text, place);
    }
    LaunchFile file =
        is_nanotron_log ? parse_nanotron_log(text, place)
        : is_neox_log   ? parse_neox_log(text, place)
                        : settings_of_program(program, text, place, given_variables(options, text));
    expect_flag_options(options);
    if (options.devices && &program == &nanotron_program) {
        throw Error(ErrorKind::Usage,
                    "--devices",
                    "the file already says how many there are: dp x pp x tp",
                    "leave it out");
    }
    if (options.hf.device) {
        require_free(profile_beside(options.common.out), options.common.force);
    }
    const bool counts_replicas = &program == &neox_program;  // samples follow from the devices
    if (counts_replicas) {
        take_devices(file, options);
    }
    MegatronFlags flags = program.flags(file, leave_out(options));
    if (options.devices && !counts_replicas) {
        expect_devices(flags.processes, options);
        flags.processes = options.devices;
    }
    take_vocabulary(flags, options);
    Imported imported = megatron_fragment(flags, options, place);
    imported.has_open_devices = !flags.processes.has_value();
    add_measured_steps(imported,
                       options,
                       is_log ? std::string_view(text) : std::string_view(),
                       {.batch = flags.global_batch_size});
    return imported;
}

/// With what readers of Megatron's flags say in the keys of the program.
Imported import_program(const YamlProgram& program, const ImportOptions& options) {
    try {
        Imported imported = read_program(program, options);
        for (std::string& note : imported.notes) {
            note = in_keys_of(program.format, note);
        }
        return imported;
    } catch (const Error& error) {
        throw in_keys_of(program.format, error);
    }
}

}  // namespace

Imported import_nemo(const ImportOptions& options) {
    if (options.file != "-" && is_nemo2(read_input(options.file, largest_log))) {
        return import_megatron(options);
    }
    return import_program(nemo_program, options);
}

Imported import_neox(const ImportOptions& options) {
    return import_program(neox_program, options);
}

Imported import_nanotron(const ImportOptions& options) {
    return import_program(nanotron_program, options);
}

}  // namespace pipetwin::cli

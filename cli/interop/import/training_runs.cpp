// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/base/input.h"
#include "cli/base/output_file.h"
#include "cli/base/shell_word.h"
#include "cli/interop/import/base_files.h"
#include "cli/interop/import/importers.h"
#include "cli/interop/import/launch_tables.h"
#include "cli/interop/import/measured_rows.h"
#include "cli/interop/import/named_model.h"
#include "core/base/error.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack_choice.h"
#include "core/costs/profile_json.h"
#include "core/interop/launch/logged_config.h"
#include "core/interop/launch/program_logs.h"
#include "core/interop/launch/table_settings.h"
#include "core/interop/launch/training_run.h"
#include "core/interop/launch/yaml_settings.h"
#include "core/scenario/scenario_writer.h"
#include "core/text/json_text.h"
#include "sim/questions/estimated_model.h"

namespace pipetwin::cli {

namespace {

constexpr std::size_t largest_config_file = std::size_t{1} << 20;

/// A program whose runs are read as `TrainingRun`.
struct RunProgram {
    std::string_view name;                    ///< as people write it
    std::string_view framework;               ///< as the stacks name it
    std::span<const std::string_view> marks;  ///< of a configuration in a log
    LaunchFile (*parse)(std::string_view text, std::string_view place);
    TrainingRun (*read)(const LaunchFile& file,
                        const ImportOptions& options,
                        std::vector<std::string>& left_out);
};

/// The word of the stacks for what runs it.
std::string_view framework_of(const TrainingRun& run, const RunProgram& program) {
    return run.framework.empty() ? program.framework : std::string_view(run.framework);
}

std::string line(std::string_view key, const std::optional<int>& value) {
    return value ? fmt::format("{} = {}\n", key, *value) : std::string();
}

std::string quoted_line(std::string_view key, const std::string& value) {
    return value.empty() ? std::string() : fmt::format("{} = {}\n", key, toml_string(value));
}

/// The stack that costs of the run are to have; empty: none. Says which, and what it does not know
/// of the run.
std::string stack_of_run(const TrainingRun& run,
                         const HfOptions& options,
                         std::string_view framework,
                         bool has_costs,
                         std::vector<std::string>& notes) {
    const std::string device = options.device.value_or("");
    const std::string precision = !run.narrow.empty()     ? run.narrow
                                  : run.precision.empty() ? "bf16"
                                                          : run.precision;
    std::string stack = chosen_stack(options.stack, framework, device, precision);
    const std::string where = device.empty() ? "" : fmt::format(" that knows {}", device);
    if (stack.empty() && !options.stack) {
        notes.push_back(
            fmt::format("no stack: there is none of {}{} in {}", framework, where, precision));
    }
    if (stack.empty()) {
        return stack;
    }
    const std::shared_ptr<const Stack> known = find_stack(stack, "--stack");
    if (!device.empty()) {
        expect_products(*known, device, precision, "--stack");
    }
    if (!options.stack && !has_costs) {
        notes.push_back(fmt::format(
            "stack {}, the newest of {}{}: costs of the model have to be estimated with --stack "
            "{}; --stack NAME changes this",
            stack,
            framework,
            where,
            stack));
    }
    if (!run.not_narrow.empty()) {
        notes.push_back(
            fmt::format("warning: products of blocks are in {}, but those of {} are not, and no "
                        "costs have both: those with --precision {} are too short",
                        run.narrow,
                        run.not_narrow,
                        run.narrow));
    } else if (!run.narrow.empty() && !has_costs) {
        notes.push_back(
            fmt::format("warning: products of blocks are in {0}, which only costs say: estimate "
                        "those of the model with --precision {0}",
                        run.narrow));
    }
    if (run.compiles == false && !has_costs && known->kernels.blocks == BlockKernels::Compiled) {
        notes.push_back(
            fmt::format("warning: the file does not compile the model (compile.enable), and the "
                        "stack does: estimate its costs with --stack {} --kernels eager",
                        stack));
    }
    return stack;
}

/// The table [cluster]; empty where nothing is known of it.
std::string cluster_table(const TrainingRun& run,
                          const HfOptions& options,
                          std::string_view framework,
                          bool has_costs,
                          std::vector<std::string>& notes) {
    const std::string device =
        options.device ? find_device(*options.device, "--device").name : std::string();
    const std::string text =
        quoted_line("device", device) +
        quoted_line("stack", stack_of_run(run, options, framework, has_costs, notes));
    return text.empty() ? text : "[cluster]\n" + text;
}

// --- [model] ---

/// Samples of a micro-batch; none: the settings do not say them.
std::optional<int> micro_batch_size(const TrainingRun& run) {
    if (!run.batch || !run.micro_batches) {
        return std::nullopt;
    }
    return std::max(1, *run.batch / run.data_parallel.value_or(1) / *run.micro_batches);
}

/// The precision that costs of the run's model have; none: that of its config.json.
std::optional<std::string> precision_of_costs(const TrainingRun& run) {
    const std::string& precision = run.narrow.empty() ? run.precision : run.narrow;
    return precision.empty() ? std::nullopt : std::optional(precision);
}

/// What a cost of the run's model is asked for; none: the model is not named on the command line,
/// and the file leaves open what its costs depend on.
std::optional<sim::EstimateQuestion> question_of(const TrainingRun& run,
                                                 const ImportOptions& options,
                                                 const RunProgram& program) {
    const auto need = [&](bool is_there, std::string_view what, std::string_view option) {
        if (!is_there) {
            throw Error(ErrorKind::Infeasible,
                        input_name(options.file),
                        fmt::format("the file does not say {}, for which the costs of the model "
                                    "are estimated",
                                    what),
                        fmt::format("add {} N to the command, or leave --device out", option));
        }
    };
    if (!run.not_narrow.empty()) {
        throw Error(ErrorKind::Infeasible,
                    input_name(options.file),
                    fmt::format("products of blocks are in {}, but those of {} are not: no costs "
                                "have both",
                                run.narrow,
                                run.not_narrow),
                    "leave --device out, and estimate costs with one type");
    }
    const std::optional<int> sequence = options.hf.sequence ? options.hf.sequence : run.sequence;
    const std::optional<int> size =
        options.micro_batch_size ? options.micro_batch_size : micro_batch_size(run);
    if (options.model.empty() && (!sequence || !size)) {
        return std::nullopt;
    }
    need(sequence.has_value(), "how many tokens a sample has", "--sequence");
    need(size.has_value(), "how many samples a micro-batch has", "--micro-batch-size");
    sim::EstimateQuestion question{.device = options.hf.device.value_or(""),
                                   .framework = std::string(framework_of(run, program)),
                                   .precision = precision_of_costs(run),
                                   .whole_blocks = options.hf.whole_blocks};
    question.estimate.sequence = *sequence;
    question.estimate.micro_batch_size = *size;
    set_rates(options.hf, question);
    if (run.compiles == false && !options.hf.kernels) {
        question.kernels.blocks = BlockKernels::Eager;
    }
    return question;
}

/// Throws Error(Usage) for options of costs where none are estimated.
void expect_no_question(const ImportOptions& options) {
    if (!options.model.empty()) {
        throw Error(ErrorKind::Usage,
                    "--model",
                    "its costs are estimated for a device, and none is given",
                    "add --device NAME ('pipetwin devices' lists the names)");
    }
    HfOptions costs = options.hf;
    costs.device.reset();
    costs.stack.reset();
    const std::string_view option =
        options.micro_batch_size ? std::string_view("--micro-batch-size") : costs.given();
    if (!option.empty()) {
        throw Error(ErrorKind::Usage,
                    std::string(option),
                    "no costs of a model are estimated",
                    "add --model NAME and --device NAME, or leave it out");
    }
}

sim::ModelConfig config_of_name(const std::string& name, const RunProgram& program) {
    const std::filesystem::path file =
        sim::config_file(name, fmt::format("import {} --model", program.framework));
    return sim::model_config(read_input(file, JsonLimits{}.max_bytes), input_name(file));
}

/// The table [model], where the model is known and a device is given, with its costs; empty: it is
/// left to the user.
std::string model_table(const TrainingRun& run,
                        const ImportOptions& options,
                        const RunProgram& program,
                        const std::optional<PrintedText>& printed,
                        Imported& imported) {
    const std::string shipped =
        run.shipped_model.empty() ? shipped_name(run.model) : run.shipped_model;
    const bool is_printed = printed && options.model.empty();
    const std::string name = !options.model.empty() ? options.model
                             : is_printed           ? "the model that the log prints"
                                                    : shipped;
    if (name.empty() || !options.hf.device) {
        expect_no_question(options);
        return {};
    }
    const std::optional<sim::EstimateQuestion> question = question_of(run, options, program);
    if (!question) {
        return {};
    }
    const std::filesystem::path beside = profile_beside(options.common.out);
    require_free(beside, options.common.force);
    const sim::ModelConfig config =
        is_printed ? sim::model_config(
                         printed->text,
                         fmt::format("{}, behind line {}", input_name(options.file), printed->line))
                   : config_of_name(name, program);
    sim::EstimatedModel found = sim::estimated_model(config, *question);
    imported.notes.insert(imported.notes.end(), found.notes.begin(), found.notes.end());
    imported.profile = print_profile(found.profile);
    imported.result.layers = static_cast<int>(found.profile.layers.size());
    imported.result.parameters = parameter_count(config.model);
    return fmt::format("[model]\n{}kind = \"profile\"\nfile = {}\n",
                       toml_comment(name),
                       toml_string(beside.filename().string()));
}

// --- The fragment. ---

/// The tables of a scenario.
Imported tables_of(const TrainingRun& run,
                   const ImportOptions& options,
                   const RunProgram& program,
                   const std::optional<PrintedText>& printed_model) {
    Imported imported{.content = {}, .result = {}};
    const std::string model = model_table(run, options, program, printed_model, imported);
    std::string text = toml_comment(fmt::format("{}'s configuration{}",
                                                program.name,
                                                run.model.empty() ? "" : ", model " + run.model)) +
                       left_out_comment(run.left_out);
    if (run.sequence && model.empty()) {
        text +=
            toml_comment(fmt::format("samples of {} tokens: costs of the model need --sequence {}",
                                     *run.sequence,
                                     *run.sequence));
    }
    if (!run.harmless.empty()) {
        text += toml_comment(
            fmt::format("without effect on a prediction: {}", fmt::join(run.harmless, " ")));
    }
    text += model + "[training]\n" + line("batch", run.batch) +
            quoted_line("precision", run.precision) + quoted_line("optimizer", run.optimizer);
    if (run.clip_norm && *run.clip_norm > 0) {
        text += fmt::format("clip_norm = {}\n", *run.clip_norm);
    }
    text += quoted_line("gradients", run.gradients);
    if (run.balances_experts) {
        text += "expert_load = \"balanced\"\n";
    }
    if (run.expert_capacity) {
        text += fmt::format("expert_capacity = {}\n", *run.expert_capacity);
    }
    if (run.optimizer_state_bytes) {
        text += fmt::format("optimizer_state_bytes = {}\n", *run.optimizer_state_bytes);
    }
    text += "[pipeline]\n" + line("stages", run.stages) + fmt::format("chunks = {}\n", run.chunks) +
            quoted_line("schedule", run.schedule) + line("micro_batches", run.micro_batches) +
            line("data_parallel", run.data_parallel) +
            recompute_lines(run.recompute, run.recompute_blocks) +
            (run.recompute_early_stop ? "recompute_early_stop = true\n" : "") +
            line("tensor_parallel", run.tensor_parallel) +
            line("context_parallel", run.context_parallel) +
            quoted_line("context_method", run.context_method) +
            line("expert_parallel", run.expert_parallel) +
            line("expert_tensor_parallel", run.expert_tensor_parallel) +
            quoted_line("expert_dispatch", run.expert_dispatch);
    if (run.sequence_parallel) {
        text += "sequence_parallel = true\n";
    }
    if (run.tensor_overlap) {
        text += fmt::format("tensor_overlap = {}\n", *run.tensor_overlap);
    }
    text += quoted_line("shard", run.shard) + line("shard_group", run.shard_group) +
            line("prefetch", run.prefetch);
    if (!run.blocks.empty()) {
        text +=
            fmt::format("# whole blocks; embedding and head go with the ends\npartition = [{}]\n",
                        fmt::join(run.blocks, ", "));
    }
    text +=
        cluster_table(run, options.hf, framework_of(run, program), !model.empty(), imported.notes);
    imported.content = std::move(text);
    imported.result.ranks = run.stages.value_or(0);
    imported.result.stages = run.stages.value_or(0) * run.chunks;
    imported.result.micro_batches = run.micro_batches;
    imported.result.left_out = run.left_out;
    for (const std::string& warning : run.warnings) {
        imported.notes.push_back("warning: " + warning);
    }
    return imported;
}

/// TOML, or the JSON that torchtitan saves.
LaunchFile parse_titan_file(std::string_view text, std::string_view place) {
    const std::size_t begin = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
    const bool is_json = begin != std::string_view::npos && text[begin] == '{';
    return is_json ? parse_json_settings(text, place) : parse_toml_settings(text, place);
}

/// YAML without its empty keys.
LaunchFile parse_maxtext_file(std::string_view text, std::string_view place) {
    LaunchFile file = parse_yaml_settings(text, place);
    std::erase_if(file.settings, &Setting::is_unset);
    const bool says_any = std::ranges::any_of(file.settings, [](const Setting& setting) {
        return setting.written == "model_name" || setting.written == "per_device_batch_size" ||
               setting.written.ends_with("_parallelism");
    });
    if (!says_any) {
        throw Error(ErrorKind::BadInput,
                    std::string(place),
                    "no key of MaxText that says a model, a split or a batch, expected such as "
                    "per_device_batch_size: 4",
                    "is this a file of MaxText? 'pipetwin import auto' looks for the format");
    }
    return file;
}

/// Reads a run that its file says alone.
template <TrainingRun (*read)(const LaunchFile& file, LeaveOut leave_out)>
TrainingRun run_of_file(const LaunchFile& file,
                        const ImportOptions& options,
                        std::vector<std::string>& /*left_out*/) {
    return read(file, leave_out(options));
}

constexpr RunProgram titan_program{.name = "torchtitan",
                                   .framework = "torchtitan",
                                   .marks = titan_config_marks,
                                   .parse = &parse_titan_file,
                                   .read = &run_of_file<&torchtitan_run>};
constexpr RunProgram deepspeed_program{.name = "DeepSpeed",
                                       .framework = "deepspeed",
                                       .marks = deepspeed_config_marks,
                                       .parse = &parse_json_settings,
                                       .read = &run_of_file<&deepspeed_run>};

/// JSON or YAML.
LaunchFile parse_trainer_file(std::string_view text, std::string_view place) {
    const std::size_t begin = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
    const bool is_json = begin != std::string_view::npos && text[begin] == '{';
    LaunchFile file = is_json ? parse_json_settings(text, place) : parse_yaml_settings(text, place);
    std::erase_if(file.settings, [](const Setting& setting) {
        return setting.is_unset || setting.values.empty();
    });
    return file;
}

/// A run of the Trainer, with the file of DeepSpeed that it names: beside it, or below a folder
/// above it.
TrainingRun trainer_run_of(const LaunchFile& file,
                           const ImportOptions& options,
                           std::vector<std::string>& left_out) {
    const std::string name = trainer_deepspeed_file(file);
    if (name.empty()) {
        return trainer_run(file, leave_out(options));
    }
    std::error_code ignored;
    std::filesystem::path folder = std::filesystem::absolute(options.file, ignored).parent_path();
    while (!std::filesystem::is_regular_file(folder / name, ignored) &&
           folder.has_relative_path()) {
        folder = folder.parent_path();
    }
    const bool is_there = std::filesystem::is_regular_file(folder / name, ignored);
    const std::string what =
        fmt::format("DeepSpeed's file '{}' is neither beside it nor below a folder above it", name);
    if (!is_there && leave_out(options) != LeaveOut::All) {
        throw Error(ErrorKind::BadInput,
                    input_name(options.file),
                    what,
                    "put it beside the file, as it says what replicas share; --insist leaves it "
                    "out, and says so in the result");
    }
    if (!is_there) {
        left_out.push_back(what);
        return trainer_run(file, leave_out(options));
    }
    const std::filesystem::path found = folder / name;
    const LaunchFile deepspeed =
        parse_json_settings(read_input(found, largest_config_file), found.string());
    return trainer_run(file, leave_out(options), &deepspeed);
}

constexpr RunProgram trainer_program{.name = "the Trainer",
                                     .framework = "trainer",
                                     .marks = {},
                                     .parse = &parse_trainer_file,
                                     .read = &trainer_run_of};

constexpr RunProgram maxtext_program{.name = "MaxText",
                                     .framework = "maxtext",
                                     .marks = {},
                                     .parse = &parse_maxtext_file,
                                     .read = &run_of_file<&maxtext_run>};

/// The settings of a file of the program, or of the configuration in a log.
LaunchFile settings_of(const RunProgram& program,
                       const std::string& text,
                       const ImportOptions& options,
                       std::vector<std::string>& left_out) {
    const std::string place = input_name(options.file);
    if (has_logged_config(text, program.marks)) {
        const LoggedConfig config = logged_config(text, program.marks, place);
        LaunchFile file =
            parse_json_settings(config.json, fmt::format("{}:{}", place, config.line));
        file.is_printed = true;
        file.all_processes = logged_world_size(text);
        return file;
    }
    if (&program == &trainer_program && has_trainer_log(text)) {
        return parse_trainer_log(text, place);
    }
    if (&program != &deepspeed_program && is_primus_of(text, program.framework)) {
        return primus_settings(text, options, program.framework, left_out);
    }
    if (&program == &maxtext_program && has_maxtext_log(text)) {
        return parse_maxtext_log(text, place);
    }
    if (!parse_training_log(text).steps.empty()) {
        throw Error(
            ErrorKind::BadInput,
            place,
            fmt::format("a log without the configuration of the run, expected a line with "
                        "'{}'",
                        program.marks.empty() ? "Config param "
                                              : fmt::to_string(fmt::join(program.marks, "' or '"))),
            fmt::format("import the configuration, and this beside it: pipetwin import {} "
                        "FILE --log {} --out FILE",
                        program.framework,
                        shell_word(place)));
    }
    if (text.size() > largest_config_file) {
        throw Error(ErrorKind::BadInput,
                    place,
                    fmt::format("{} bytes, expected at most {} of a configuration",
                                text.size(),
                                largest_config_file),
                    "is this a file of another program?");
    }
    expect_known_program(text, place);
    if (&program == &deepspeed_program) {
        const std::string marked = with_marked_blanks(text);
        return program.parse(with_filled_blanks(marked, place, given_variables(options, marked)),
                             place);
    }
    return program.parse(text, place);
}

/// The devices of a run, those of one replica where it does not say how many there are.
std::int64_t devices_of(const TrainingRun& run) {
    std::int64_t devices = 1;
    for (const std::optional<int>& degree :
         {run.stages, run.data_parallel, run.tensor_parallel, run.context_parallel}) {
        devices *= degree.value_or(1);
    }
    return devices;
}

Imported import_run(const RunProgram& program, const ImportOptions& options) {
    const std::string text = read_input(options.file, largest_log);
    std::vector<std::string> left_out;
    LaunchFile file = settings_of(program, text, options, left_out);
    const bool is_said = file.all_processes.has_value();
    take_devices(file, options);
    if (file.settings.empty()) {
        throw Error(ErrorKind::BadInput,
                    input_name(options.file),
                    fmt::format("no setting of {} is in it", program.name),
                    "is this a file of another program? 'pipetwin import auto' looks for the "
                    "format");
    }
    TrainingRun run = program.read(file, options, left_out);
    run.left_out.insert(run.left_out.end(), left_out.begin(), left_out.end());
    run.warnings.insert(run.warnings.end(), file.notes.begin(), file.notes.end());
    if (!run.has_open_devices && !is_said) {  // the Trainer's processes are all replicas
        expect_devices(
            &program == &trainer_program ? run.data_parallel.value_or(1) : devices_of(run),
            options);
    }
    const bool prints_model = &program == &trainer_program && file.is_printed;
    Imported imported =
        tables_of(run, options, program, prints_model ? logged_model_config(text) : std::nullopt);
    imported.has_open_devices = run.has_open_devices;
    StepSizes sizes{.batch = run.has_open_devices ? std::nullopt : run.batch};
    if (run.batch && run.sequence && !run.has_open_devices) {
        sizes.tokens_of_device =
            *run.batch * (*run.sequence / static_cast<double>(devices_of(run)));
    }
    add_measured_steps(
        imported, options, file.is_printed ? std::string_view(text) : std::string_view(), sizes);
    return imported;
}

}  // namespace

Imported import_torchtitan(const ImportOptions& options) {
    return import_run(titan_program, options);
}

Imported import_trainer(const ImportOptions& options) {
    return import_run(trainer_program, options);
}

Imported import_maxtext(const ImportOptions& options) {
    return import_run(maxtext_program, options);
}

Imported import_deepspeed(const ImportOptions& options) {
    return import_run(deepspeed_program, options);
}

}  // namespace pipetwin::cli

// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "cli/base/output_file.h"
#include "cli/commands/commands.h"
#include "cli/text/text_output.h"
#include "cli/training/early_refusals.h"
#include "cli/training/trainable_space.h"
#include "cli/training/training_costs.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/costs/profile_json.h"
#include "core/model/model.h"
#include "core/scenario/settled_scenario.h"
#include "exec/base/noise.h"
#include "sim/questions/found_profile.h"
#include "sim/questions/prediction.h"

namespace pipetwin::cli {

namespace {

/// Options of `profile`.
struct ProfileOptions {
    CommonOptions common;
    std::filesystem::path scenario;
};

/// --out names a file if it ends in .json, else a folder.
std::filesystem::path target(const ProfileOptions& options, const ScenarioParts& scenario) {
    const std::filesystem::path& out = options.common.out;
    if (out.empty()) {
        return sim::profile_name(scenario);
    }
    if (out.extension() == ".json") {
        return out;
    }
    std::filesystem::create_directories(out);
    return out / "profile.json";
}

/// Refuses what would go wrong only after the costs are measured.
void refuse_unwritable(const std::filesystem::path& file, bool force) {
    std::error_code ignored;
    if (std::filesystem::exists(file, ignored) && !force) {
        throw Error(ErrorKind::Io,
                    file.string(),
                    "the file is there already",
                    "overwrite it with --force, or name another with --out FILE");
    }
    const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
    if (::access(folder.c_str(), W_OK) != 0) {
        const bool is_there = std::filesystem::exists(folder, ignored);
        throw Error(
            ErrorKind::Io,
            file.string(),
            fmt::format("{} '{}'",
                        is_there ? "nothing can be written to the folder" : "there is no folder",
                        folder.string()),
            is_there ? "name a file elsewhere with --out FILE"
                     : "create it, or name a file elsewhere with --out FILE");
    }
}

/// Layers are measured with random numbers, so that data which cannot be read is no reason to
/// measure nothing.
void note_unusable_data(const ScenarioParts& scenario, const Model& model, Console& console) {
    if (scenario.data.path.empty()) {
        return;
    }
    try {
        refuse_unusable_data(scenario, model);
    } catch (const Error& error) {
        console.note_lines(
            fmt::format("run and train would refuse the data of this scenario: {}: {}",
                        error.place(),
                        error.text()));
    }
}

std::string calibration_text(const CalibrationNote& note) {
    std::string text = fmt::format(
        "\n  {}, {} left out; p90/p10 {:.3f}{}",
        counted(note.clean_steps, "undisturbed step"),
        note.dropped_steps,
        note.p90_over_p10,
        note.p90_over_p10 > exec::largest_p90_over_p10
            ? fmt::format(" (above {:.2f}: the machine was busy)", exec::largest_p90_over_p10)
            : "");
    if (note.interference) {
        text +=
            fmt::format("; layers take {} longer while copies of the model run on the other cores",
                        percent_text(*note.interference));
    }
    text += '\n';
    if (note.clean_steps < Noise::fewest_steps) {
        text += fmt::format(
            "  fewer than {} undisturbed steps: predictions from these costs are unreliable\n",
            Noise::fewest_steps);
    }
    return text;
}

/// How ranks of one GPU slow each other; empty where none does.
std::string interference_text(const std::vector<RankInterference>& ranks) {
    if (ranks.empty()) {
        return {};
    }
    const auto [least, most] = std::ranges::minmax(ranks, {}, &RankInterference::interference);
    if (most.interference <= 0) {
        return {};
    }
    return fmt::format(
        "  ranks share a GPU: a rank's actions take {} to {} longer for each other rank that "
        "computes at "
        "the same time, which the times above leave out and predictions add\n",
        percent_text(least.interference),
        percent_text(most.interference));
}

/// How much longer divided backwards take; empty where that was not measured.
std::string halves_text(const std::optional<double>& halves_over_whole) {
    if (!halves_over_whole) {
        return {};
    }
    return fmt::format(
        "  a backward in two halves, as zb-h1 has it, takes {} longer, which predictions of such "
        "schedules add\n",
        percent_text(*halves_over_whole - 1));
}

std::string profile_text(const Profile& profile) {
    std::vector<std::vector<std::string>> rows{
        {"layer", "micro-batch", "forward", "backward", "saved", "parameters", "spread"}};
    for (const LayerCost& layer : profile.layers) {
        for (const LayerSample& sample : layer.samples) {
            rows.push_back({layer.name,
                            std::to_string(sample.micro_batch_size),
                            format_duration(sample.forward),
                            format_duration(sample.backward()),
                            format_bytes(sample.saved),
                            format_bytes(layer.parameter_bytes),
                            percent_text(sample.spread)});
        }
    }
    return text_table(rows) + (profile.calibration ? calibration_text(*profile.calibration) : "") +
           interference_text(profile.ranks) + halves_text(profile.halves_over_whole);
}

/// With open keys the costs are those for all plans among which `plan` may choose.
void execute_profile(const ProfileOptions& options, Console& console) {
    const Scenario written = read_scenario(options.scenario, options.common.overrides);
    if (written.model.kind == ModelKind::Profile) {
        throw Error(ErrorKind::BadInput,
                    KeyValue{"model.kind"},
                    "a model of kind 'profile' has only costs, so there is nothing to measure",
                    "give a scenario whose model is gpt, mlp or layers");
    }
    const Model model = scenario_model(written);
    const std::optional<SettledScenario> scenario =
        is_open(written) ? std::nullopt : std::optional(settle(written));
    const Scenario space = trainable_space(written);
    if (written.cluster.device == pipetwin::this_machine && written.cluster.devices.empty()) {
        if (scenario) {
            refuse_what_no_costs_help(*scenario, model);
        } else {
            refuse_what_no_costs_help(space, model);
        }
    }
    const std::filesystem::path file = target(options, written);
    refuse_unwritable(file, options.common.force);
    note_unusable_data(written, model, console);
    Profile profile = scenario ? measure_profile(*scenario, console, 1, true)
                               : measure_open_profile(space, console);
    add_calibration(profile, written, console);
    const std::string json = print_profile(profile);
    if (file == options.common.out) {
        write_output(file, json, console);
    } else {
        write_own_output(file, json, console);
    }
    console.note(fmt::format("profile: {}", file.string()));
    console.result(options.common.json ? json : profile_text(profile));
}

Command declare_profile(CLI::App& app) {
    const auto options = std::make_shared<ProfileOptions>();
    app.get_option("--out")->description(
        "Folder for NAME.profile.json, or a file that ends in .json (default: the current folder)");
    leave_out_of_help(app, {"--verbose"});
    add_scenario(app, options->scenario);
    return scenario_command(options, execute_profile);
}

}  // namespace

CommandRow profile_command() {
    return {.name = "profile",
            .help = "Measure the costs of every layer on this machine, and write NAME.profile.json",
            .declare = declare_profile};
}

}  // namespace pipetwin::cli

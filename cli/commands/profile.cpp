#include <fmt/format.h>

#include "cli/commands/commands.h"
#include "cli/predict/prediction.h"
#include "cli/text/text_output.h"
#include "cli/training/training_costs.h"
#include "core/base/error.h"
#include "core/costs/profile_json.h"
#include "core/text/json_text.h"

namespace pipetwin::cli {

namespace {

/// --out names a file if it ends in .json, else a folder.
std::filesystem::path target(const ProfileOptions& options, const ScenarioParts& scenario) {
    const std::filesystem::path& out = options.common.out;
    if (out.empty()) {
        return profile_name(scenario);
    }
    if (out.extension() == ".json") {
        return out;
    }
    std::filesystem::create_directories(out);
    return out / "profile.json";
}

std::string calibration_text(const CalibrationNote& note) {
    std::string text = fmt::format("\n  {} clean steps, {} dropped, p90/p10 {:.3f}",
                                   note.clean_steps,
                                   note.dropped_steps,
                                   note.p90_over_p10);
    if (note.interference) {
        text += fmt::format("; {} longer while the other cores do the same",
                            percent_text(*note.interference));
    }
    text += '\n';
    if (note.clean_steps < Noise::fewest_steps) {
        text += fmt::format("  fewer than {} clean steps: these costs are a poor basis\n",
                            Noise::fewest_steps);
    }
    return text;
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
    return text_table(rows) + (profile.calibration ? calibration_text(*profile.calibration) : "");
}

}  // namespace

void execute(const ProfileOptions& options, Console& console) {
    const SettledScenario scenario =
        settle(read_scenario(options.scenario, options.common.overrides));
    if (scenario.model.kind == ModelKind::Profile) {
        throw Error(
            ErrorKind::BadInput,
            "model.kind",
            "a model of kind 'profile' is known by its costs only, there is nothing to measure",
            "give a scenario whose model is gpt, mlp or layers");
    }
    const std::filesystem::path file = target(options, scenario);
    if (std::filesystem::exists(file) && !options.common.force) {
        throw Error(ErrorKind::Io,
                    file.string(),
                    "the file is there already",
                    "overwrite it with --force, or name another with --out FILE");
    }
    Profile profile = measure_profile(scenario, console);
    add_calibration(profile, scenario, console);
    const std::string json = print_profile(profile);
    write_file(file, json);
    console.note(fmt::format("profile: {}", file.string()));
    console.result(options.common.json ? json : profile_text(profile));
}

}  // namespace pipetwin::cli

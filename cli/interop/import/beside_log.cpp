// SPDX-License-Identifier: Apache-2.0
#include "cli/interop/import/beside_log.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/base/shell_word.h"
#include "cli/interop/import/loss_words.h"
#include "cli/text/calibration_text.h"
#include "cli/text/text_output.h"
#include "core/artifacts/measured_runs.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/units.h"
#include "core/base/word_list.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/scenario/scenario.h"
#include "core/scenario/settled_scenario.h"
#include "core/schedule/generators/generate.h"
#include "core/timeline/timeline.h"
#include "sim/calibration/rank_times.h"
#include "sim/questions/found_profile.h"
#include "sim/search/partition_choice.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::cli {

namespace {

/// What programs can do, by the format of their files.
sim::RunAbilities abilities_of(std::string_view format, int stages) {
    using enum ScheduleKind;
    const auto names = [](std::initializer_list<ScheduleKind> kinds) {
        std::vector<std::string_view> result;
        for (const ScheduleKind kind : kinds) {
            result.push_back(to_string(kind));
        }
        return result;
    };
    if (has_word("megatron swift nemo", format)) {
        return {.schedules = names({OneFOneB, Interleaved1F1B}), .overlaps = true};
    }
    if (format == "torchtitan") {
        return {.schedules =
                    names({OneFOneB, Interleaved1F1B, ZbV, InterleavedZb, DualPipeV, GPipe})};
    }
    if (format == "nanotron") {
        return {.schedules = names({OneFOneB, GPipe}), .selective = false};
    }
    std::vector<std::string_view> schedules;  // programs without a pipeline, where they have none
    if (stages > 1) {
        schedules = format == "maxtext" ? names({GPipe}) : names({OneFOneB});
    }
    return {.schedules = schedules, .tensor = format == "maxtext", .selective = false};
}

/// What keeps the imported tables from being the whole run; empty: nothing.
std::string missing_of(const Imported& imported, const ImportOptions& options) {
    const auto has = [&imported](std::string_view line) {
        return imported.content.find(line) != std::string::npos;
    };
    if (!imported.result.left_out.empty()) {
        return "the scenario is another run than the log's, as --insist left something out";
    }
    if (!options.hf.device) {
        return "add --device NAME to the command, the device of the run ('pipetwin devices' lists "
               "the names)";
    }
    if (!has("[model]\n")) {
        return "no costs of the model: add --model NAME to the command where the file does not "
               "say which it is ('pipetwin devices' lists the names), and --sequence N where it "
               "does not say how many tokens a sample has";
    }
    if (imported.has_open_devices) {
        return "nothing says how many devices the run had: add --devices N to the command";
    }
    if (!has("\nbatch = ") || !has("\nmicro_batches = ")) {
        return "the file does not say the whole batch, or the samples of a micro-batch";
    }
    return {};
}

/// The timers of the log that have a predicted time.
std::vector<BesideTimer> timers_beside(const std::vector<LoggedTimer>& timers,
                                       const Timeline& timeline) {
    const std::vector<sim::RankTimes> ranks = sim::rank_times(timeline);
    constexpr std::array<std::pair<std::string_view, double sim::RankTimes::*>, 4> meanings{
        {{"forward-compute", &sim::RankTimes::forward},
         {"backward-compute", &sim::RankTimes::backward},
         {"forward-backward", &sim::RankTimes::pipeline},
         {"optimizer", &sim::RankTimes::update}}};
    std::vector<BesideTimer> found;
    for (const LoggedTimer& timer : timers) {
        for (const auto& [name, time] : meanings) {
            if (timer.name == name &&
                (name != "forward-backward" || has_sums_in_pipeline(timers))) {
                const auto [least, most] = std::ranges::minmax(ranks, {}, time);
                found.push_back({.measured = timer, .least = least.*time, .most = most.*time});
            }
        }
    }
    return found;
}

/// Corrects the costs by the log's own run, and returns what is implausible of it.
std::vector<std::string> correct(BesideLog& beside,
                                 const Scenario& scenario,
                                 const Model& model,
                                 Profile& profile,
                                 const ImportOptions& options) {
    if (beside.logged.row.empty()) {
        beside.uncorrected = "the log has no report behind the first of a run";
        return {};
    }
    try {
        std::vector<sim::SettledRun> runs;
        for (const MeasuredRun& run :
             parse_measured_runs(beside.logged.row, options.common.out.string())) {
            runs.push_back(sim::settled_run(run, scenario, profile));
        }
        beside.calibration = sim::calibrate_by_runs(runs, model, profile);
        profile = sim::calibrated_profile(profile, *beside.calibration);
        return beside.calibration->warnings;
    } catch (const Error& error) {
        beside.uncorrected = error.text();
        return {};
    }
}

std::string time_text(double seconds) {
    return format_duration(from_milliseconds(seconds * 1000, "a time beside the log"));
}

/// Options of a command that has the keys.
std::string set_options(const std::vector<Override>& keys) {
    std::string text;
    for (const Override& key : keys) {
        text += fmt::format(" --set {}", shell_word(fmt::format("{}={}", key.key, key.value)));
    }
    return text;
}

/// How far a prediction is off: "7.1 % less".
std::string off_text(double predicted, double measured) {
    const double error = predicted / measured - 1;
    return fmt::format("{:.1f} % {}", std::abs(error) * 100, error < 0 ? "less" : "more");
}

Json change_json(const sim::PlanChange& change, double now) {
    Json json = Json::object();
    json["what"] = change.what;
    json["keys"] = Json::object();
    for (const Override& key : change.keys) {
        json["keys"][key.key] = key.value;
    }
    json["step_ms"] = change.step * 1000;
    json["faster_percent"] = (1 - change.step / now) * 100;
    json["peak_bytes"] = change.peak.count;
    return json;
}

/// The fastest change of each kind of keys, so that the list is not one key with several values.
std::vector<sim::PlanChange> most_telling(const std::vector<sim::PlanChange>& changes) {
    constexpr std::size_t most_listed = 5;
    std::vector<sim::PlanChange> listed;
    for (const sim::PlanChange& change : changes) {
        const auto has_same_keys = [&change](const sim::PlanChange& other) {
            return std::ranges::equal(other.keys, change.keys, {}, &Override::key, &Override::key);
        };
        if (listed.size() < most_listed && std::ranges::none_of(listed, has_same_keys)) {
            listed.push_back(change);
        }
    }
    return listed;
}

/// "forward-compute: measured 900.1 ms to 950.5 ms, predicted 880.0 ms to 930.2 ms over the ranks".
std::string timer_text(const BesideTimer& timer) {
    const auto range = [](std::optional<double> least, double most) {
        return least ? fmt::format("{} to {}", time_text(*least), time_text(most))
                     : time_text(most);
    };
    const LoggedTimer& measured = timer.measured;
    return fmt::format("{}: measured {}{}, predicted {} over the ranks\n",
                       measured.name,
                       range(measured.least, measured.most),
                       measured.of_one_rank ? " on the rank of the log"
                       : measured.least     ? ""
                                            : " at most",
                       range(timer.least, timer.most));
}

std::string changes_text(const BesideLog& beside, const ImportOptions& options) {
    const sim::FirstChanges& changes = beside.changes;
    if (changes.tried == 0) {
        return {};
    }
    const std::string costs =
        beside.calibration
            ? fmt::format("costs corrected by the log: {}",
                          times_over_estimates(*beside.calibration))
            : fmt::format("costs as estimated, not corrected by the log: {}", beside.uncorrected);
    std::string text = fmt::format("what to change first ({})\n", costs);
    const std::vector<sim::PlanChange> listed = most_telling(changes.faster);
    std::vector<std::vector<std::string>> rows{{"change", "step", "faster", "peak"}};
    for (const sim::PlanChange& change : listed) {
        rows.push_back({change.what,
                        time_text(change.step),
                        rounded_percent(1 - change.step / changes.now.step),
                        format_bytes(change.peak)});
    }
    if (listed.empty()) {
        text += fmt::format("  none of {} that were tried makes the step 1 % shorter\n",
                            counted(changes.tried, "change"));
    } else {
        text += text_table(rows);
        const bool has_rows = beside.calibration && !options.rows_out.empty();
        text += fmt::format(
            "  of {} that were tried, one at a time; the first: pipetwin simulate "
            "{}{}{}\n",
            counted(changes.tried, "change"),
            shell_word(options.common.out.string()),
            has_rows ? fmt::format(" --calibrate {}", shell_word(options.rows_out.string())) : "",
            set_options(listed.front().keys));
        if (beside.calibration && !has_rows) {
            text +=
                "  the command has the costs as estimated: import with --rows-out FILE, and it "
                "takes the corrected costs\n";
        }
    }
    if (!changes.too_large.empty()) {
        const sim::PlanChange& first = changes.too_large.front();
        text += fmt::format("  {} would be faster, but {} not fit: {} with a peak of {}\n",
                            counted(changes.too_large.size(), "change"),
                            verb_for(changes.too_large.size(), "does", "do"),
                            first.what,
                            format_bytes(first.peak));
    }
    return text;
}

}  // namespace

std::optional<BesideLog> beside_log(Imported& imported, const ImportOptions& options) {
    if (!imported.logged) {
        return std::nullopt;
    }
    if (const std::string missing = missing_of(imported, options); !missing.empty()) {
        imported.notes.push_back("no prediction beside the measured step: " + missing);
        return std::nullopt;
    }
    try {
        const Scenario scenario = parse_scenario(imported.content, options.common.out);
        std::optional<sim::FoundProfile> costs = sim::known_profile(scenario, {}, {});
        if (!costs) {
            return std::nullopt;
        }
        const Model model = sim::model_with_costs(scenario, *costs);
        const SettledScenario settled = settle(scenario);
        BesideLog beside{.logged = *imported.logged,
                         .predicted = sim::predicted_run(
                             options.common.out.string(), settled, model, costs->profile)};
        if (!beside.logged.timers.empty()) {
            beside.timers = timers_beside(
                beside.logged.timers,
                sim::simulate(sim::make_settled_plan(settled, model, costs->profile)));
        }
        for (const std::string& warning :
             correct(beside, scenario, model, costs->profile, options)) {
            imported.notes.push_back("warning: " + warning);
        }
        beside.changes = sim::first_changes(
            scenario, model, costs->profile, abilities_of(options.format, settled.pipeline.stages));
        return beside;
    } catch (const Error& error) {
        imported.notes.push_back(
            fmt::format("no prediction beside the measured step: {}", error.text()));
        return std::nullopt;
    }
}

std::string beside_text(const BesideLog& beside, const ImportOptions& options) {
    const LoggedRun& logged = beside.logged;
    const double predicted = beside.predicted.step;
    std::string text = fmt::format("step: measured {}, predicted {}, {}\n",
                                   time_text(logged.step_seconds),
                                   time_text(predicted),
                                   off_text(predicted, logged.step_seconds));
    const std::string peak = format_bytes(beside.predicted.peak);
    text += logged.peak_bytes
                ? fmt::format("peak of the fullest device: measured {}, predicted {}\n",
                              format_bytes(Bytes{*logged.peak_bytes}),
                              peak)
                : fmt::format("peak of the fullest device: predicted {}\n", peak);
    for (const BesideTimer& timer : beside.timers) {
        text += timer_text(timer);
    }
    if (logged.loss) {
        text += fmt::format("loss: {}\n", loss_text(*logged.loss));
        for (const std::string& warning : loss_warnings(*logged.loss)) {
            text += fmt::format("  {}\n", warning);
        }
    }
    return text + changes_text(beside, options);
}

Json beside_json(const BesideLog& beside) {
    const LoggedRun& logged = beside.logged;
    Json json = Json::object();
    json["measured_step_ms"] = logged.step_seconds * 1000;
    json["predicted_step_ms"] = beside.predicted.step * 1000;
    json["error_percent"] = (beside.predicted.step / logged.step_seconds - 1) * 100;
    json["measured_peak_bytes"] = logged.peak_bytes ? Json(*logged.peak_bytes) : Json(nullptr);
    json["predicted_peak_bytes"] = beside.predicted.peak.count;
    json["loss"] = logged.loss ? loss_json(*logged.loss) : Json(nullptr);
    json["timers"] = Json::array();
    for (const BesideTimer& timer : beside.timers) {
        Json one = Json::object();
        one["name"] = timer.measured.name;
        one["measured_least_ms"] =
            timer.measured.least ? Json(*timer.measured.least * 1000) : Json(nullptr);
        one["measured_most_ms"] = timer.measured.most * 1000;
        one["predicted_least_ms"] = timer.least * 1000;
        one["predicted_most_ms"] = timer.most * 1000;
        json["timers"].push_back(std::move(one));
    }
    json["compute_factor"] =
        beside.calibration ? Json(beside.calibration->compute_factor) : Json(nullptr);
    for (const auto& [key, factor] :
         {std::pair("messages_factor", &sim::Calibration::messages_factor),
          std::pair("update_factor", &sim::Calibration::update_factor)}) {
        json[key] = beside.calibration && *beside.calibration.*factor
                        ? Json(*(*beside.calibration.*factor))
                        : Json(nullptr);
    }
    json["tried"] = beside.changes.tried;
    for (const auto& [key, list] :
         {std::pair("changes", &beside.changes.faster),
          std::pair("changes_that_do_not_fit", &beside.changes.too_large)}) {
        json[key] = Json::array();
        for (const sim::PlanChange& change : *list) {
            json[key].push_back(change_json(change, beside.changes.now.step));
        }
    }
    return json;
}

}  // namespace pipetwin::cli

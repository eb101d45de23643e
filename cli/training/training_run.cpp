// SPDX-License-Identifier: Apache-2.0
#include "cli/training/training_run.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/base/exit.h"
#include "cli/base/memory_left.h"
#include "cli/base/stop_signal.h"
#include "cli/run_folder/finished_run.h"
#include "cli/run_folder/report_html.h"
#include "cli/run_folder/run_folder.h"
#include "cli/text/gpu_text.h"
#include "cli/text/json_output.h"
#include "cli/text/plan_text.h"
#include "cli/text/planning.h"
#include "cli/text/translation_text.h"
#include "cli/training/agreement.h"
#include "cli/training/early_refusals.h"
#include "cli/training/trainable_space.h"
#include "cli/training/training_costs.h"
#include "cli/training/training_record.h"
#include "core/artifacts/plan_json.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/undertaking.h"
#include "core/costs/profile_json.h"
#include "core/interop/hf_folder.h"
#include "core/model/model.h"
#include "core/schedule/schedule_csv.h"
#include "core/text/json_text.h"
#include "exec/base/cores.h"
#include "exec/base/retry.h"
#include "exec/base/stored_checkpoint.h"
#include "exec/data/data_check.h"
#include "exec/executor/backend.h"
#include "exec/profiling/profiler.h"
#include "exec/training/held_out_translations.h"
#include "exec/training/published_weights.h"

namespace pipetwin::cli {

namespace {

constexpr std::size_t largest_config = std::size_t{16} << 20;

Profile costs(const RunOptions& options,
              const SettledScenario& scenario,
              const Processes& processes,
              Console& console) {
    if (!options.profile.empty()) {
        return read_profile(options.profile);
    }
    const bool goes_on = measures_between_steps(options, scenario, processes);
    return measure_profile(scenario, console, goes_on ? 0.25 : 1);
}

/// Plans whatever is "auto" with what the layers cost here; says what was chosen, and keeps the
/// search and the settled scenario in the folder. Stages that share this machine cost more than
/// what was measured with others, so the settled plan is measured again.
SettledScenario planned(const RunOptions& options,
                        const Scenario& space,
                        RunFolder& folder,
                        Console& console) {
    const Profile profile = options.profile.empty() ? measure_open_profile(space, console)
                                                    : read_profile(options.profile);
    const Model model = scenario_model(space, &profile);
    const sim::SearchResult found = search_with_progress(space, model, profile, false, console);
    if (found.ranked.empty()) {
        throw nothing_fits(space, profile, found);
    }
    SettledScenario settled = with_plan(space, found.ranked.front());
    refuse_order_that_cannot_train(settled);
    console.note_lines(planned_text(space, found));
    const sim::Prediction best = sim::predict(settled, model, profile, memory_left());
    folder.write(run_file::search, json_text(search_json(space, found, prediction_json(best))));
    folder.write(run_file::scenario, print_scenario(settled.as_scenario()));
    return settled;
}

void write_prediction(RunFolder& folder,
                      const SettledScenario& scenario,
                      const sim::Prediction& prediction) {
    folder.write_scenario(scenario.as_scenario());
    folder.write(run_file::plan, print_plan(prediction.plan));
    folder.write(run_file::schedule, print_schedule_csv(prediction.plan->schedule));
    folder.write(run_file::predicted, print_chrome_trace(sim::predicted_trace(prediction)));
}

std::string stopped_text(int signal, const FinishedRun& run) {
    const std::size_t done = run.training.steps.size();
    return fmt::format("stopped by {} after {} of {} steps; {} holds their results",
                       StopSignal::name(signal),
                       done,
                       run.scenario.training.steps,
                       run.folder.string());
}

/// A scenario as it was written, and what can be trained of all that it may mean.
struct WantedRun {
    Scenario written;
    Scenario space;
    std::optional<SettledScenario> settled;  ///< none if something is "auto" and has to be planned
    std::unique_ptr<exec::DataCheck> data;   ///< goes on beside what follows
};

/// Ranks of one process, with each of their devices, that have to share its cores, where the
/// prediction gives each one of its own; 0: they need not.
int ranks_sharing_cores(const SettledRun& run, const Plan& plan, const exec::ProcessPlace& place) {
    const bool on_cores = exec::traits(run.scenario.cluster.backend).on_cores;
    const int ranks = plan.rank_count() * plan->replicas * plan->tensor_parallel;
    const bool share = on_cores && plan->contention.cores == 0 && place.group->is_alone() &&
                       ranks > std::ssize(exec::allowed_cores());
    return share ? ranks : 0;
}

/// A prediction gives every rank a core of its own.
void note_shared_cores(const SettledRun& run,
                       const Plan& plan,
                       const exec::ProcessPlace& place,
                       Console& console) {
    std::string who;
    if (place.shares_cores && exec::traits(run.scenario.cluster.backend).on_cores) {
        who = "the processes of a host share its cores";
    } else if (const int ranks = ranks_sharing_cores(run, plan, place); ranks > 0) {
        who = fmt::format("{} {} share {}",
                          ranks,
                          plan->tensor_parallel > 1 ? "devices of ranks" : "ranks",
                          counted(exec::allowed_cores().size(), "core"));
    }
    if (!who.empty()) {
        console.note(
            fmt::format("{}, but the prediction gives every rank a core of its own: expect longer "
                        "steps; cluster.backend = {} emulates a device per rank",
                        who,
                        exec::backends_where(&exec::BackendTraits::is_emulated)));
    }
}

/// Refuses what cannot be trained with, before anything is measured.
WantedRun wanted_run(const RunOptions& options, Open open, Processes& processes) {
    const Scenario written = read_scenario(options.scenario, options.common.overrides);
    const bool plans = open == Open::Planned && is_open(written);
    const std::optional<SettledScenario> settled =
        plans ? std::nullopt : std::optional(settle(written));
    const Scenario space = trainable_space(written);
    if (settled) {
        refuse_what_cannot_train(options, *settled, processes);
    } else {
        refuse_what_cannot_run(options,
                               space,
                               {.replicas = space.pipeline.data_parallel.value_or(1),
                                .devices = space.pipeline.tensor_parallel.value_or(1)},
                               processes);
        refuse_what_is_only_simulated(space);
    }
    const Model model = scenario_model(written);
    auto data = std::make_unique<exec::DataCheck>(written, model);
    static_cast<void>(exec::HeldOutTexts(written, model));  // refuses data without texts
    if (options.profile.empty() || !settled) {              // measuring and planning leave it time
        data->begin();
    }
    if (options.profile.empty() && settled) {
        refuse_what_no_costs_help(*settled, model);
    } else if (options.profile.empty()) {
        refuse_what_no_costs_help(space, model);
    }
    agree_on_inputs(processes, written);
    return {.written = written, .space = space, .settled = settled, .data = std::move(data)};
}

/// Refuses a folder of weights that the model cannot begin with, and says what is special of it.
void note_weights(const std::filesystem::path& folder,
                  const ScenarioParts::ModelPart& model,
                  Console& console) {
    const exec::PublishedWeights weights(folder, model);
    console.note(fmt::format("starts from the weights in {}", folder.string()));
    for (const std::string& note : weights.notes()) {
        console.note(note);
    }
}

/// In the first process: opens the run folder, settles what is open and learns what layers cost.
void measure(const RunOptions& options,
             const WantedRun& wanted,
             Processes& processes,
             SettledRun& run,
             Console& console) {
    if (options.resume) {
        const Scenario& written = wanted.written;
        refuse_other_checkpoints(written, scenario_model(written), options.common.out);
    }
    if (!options.weights.empty()) {
        note_weights(options.weights, wanted.written.model, console);
    }
    run.folder.emplace(
        options.common.out.empty() ? unused_run_folder(wanted.written.file.stem().string())
                                   : options.common.out,
        options.resume ? RunFolder::Old::GoesOn : unless_forced(options.common.force));
    run.folder->write(run_file::scenario, print_scenario(wanted.written));
    std::error_code ignored;
    const std::filesystem::path config = options.weights / hf_file::config;
    if (!options.weights.empty() && std::filesystem::is_regular_file(config, ignored)) {
        // For 'export hf', which takes the model's context from it.
        run.folder->write(run_file::config, read_file(config, largest_config));
    }
    if (!wanted.settled) {
        run.scenario = planned(options, wanted.space, *run.folder, console);
        refuse_what_does_not_fit(run.scenario, processes);
    }
    run.profile = costs(options, run.scenario, processes, console);
}

/// After it all processes plan with the same numbers.
void agree_on_costs(Processes& processes, SettledRun& run, Console& console) {
    place_on_hosts(run.scenario, processes);
    run.profile = shared_profile(std::move(run.profile), run.scenario, processes);
    processes.leader_only([&] {
        note_links(run.profile, processes, console);
        run.folder->write(run_file::scenario, print_scenario(run.scenario.as_scenario()));
        run.folder->write(run_file::profile, print_profile(run.profile));
    });
}

void tell_prediction(RunFolder& folder,
                     const SettledScenario& scenario,
                     const sim::Prediction& prediction,
                     Console& console) {
    write_prediction(folder, scenario, prediction);
    for (const std::string& note : prediction.plan->notes) {
        console.note(note);
    }
    console.note(fmt::format("predicted step: {}", format_duration(prediction.metrics.step)));
}

/// Predicts the plan again, with costs that were measured between the steps of its training.
void predict_again(SettledRun& run,
                   const exec::ProfileRounds& rounds,
                   const Model& model,
                   const Plan& plan,
                   sim::Prediction& prediction,
                   Console& console) {
    const Profile profile = rounds.profile(run.profile);
    SettledScenario same = run.scenario;
    same.pipeline.partition = plan->partition->layers_per_stage();
    Plan again = make_plan(same, model, profile);
    if (again.hash() != plan.hash()) {
        console.note(
            "the costs measured during the training would give another order of actions: the "
            "prediction is the one made before the training");
        return;
    }
    if (plan->channel_capacity) {
        again = std::move(again).with_capacity(*plan->channel_capacity);
    }
    const Duration before = prediction.metrics.step;
    prediction = sim::predict(again);
    prediction.outlook = sim::outlook(again, prediction.metrics, same, profile);
    run.profile = profile;
    run.folder->write(run_file::profile, print_profile(run.profile));
    write_prediction(*run.folder, same, prediction);
    console.note(
        fmt::format("predicted step: {} with the costs measured during the training, {} with "
                    "those measured before",
                    format_duration(prediction.metrics.step),
                    format_duration(before)));
}

/// Throws the error of a training again where its hint is to resume and there is no checkpoint.
void rethrow_without_resume(const Error& error, const std::filesystem::path& folder) {
    const bool is_of_training =
        error.kind() == ErrorKind::WorkerFailed || error.kind() == ErrorKind::Hang ||
        error.kind() == ErrorKind::NotFinite || error.kind() == ErrorKind::Disagreement;
    Hint hint = error.advice();
    const bool leads_there = !hint.resume.empty() || (hint.empty() && is_of_training);
    if (!leads_there || !exec::whole_checkpoints(folder / run_file::checkpoints).empty()) {
        return;
    }
    hint.resume =
        "no checkpoint was written: train again, with --set output.checkpoint_every=10 to continue "
        "from one next time";
    throw error.with_hint(std::move(hint));
}

/// Trains with all processes together, until the last step or until a signal stops one of them.
exec::TrainingResult trained(const RunOptions& options,
                             SettledRun& run,
                             exec::DataCheck& data,
                             const Model& model,
                             const Plan& plan,
                             const std::function<void(const exec::StepReport&)>& on_step,
                             RoundsBetweenSteps* rounds,
                             Processes& processes,
                             Console& console) {
    exec::TrainingOptions training{.resume = options.resume, .weights = options.weights};
    training.on_step = [](const exec::StepReport&) { return StopSignal::received() == 0; };
    training.place = processes.place();
    std::optional<TrainingRecord> record;
    processes.leader_only([&] {
        note_shared_cores(run, plan, training.place, console);
        record.emplace(options, run, data, on_step, rounds, console).follow(training, plan);
    });
    exec::TrainingResult result = [&] {
        try {
            return exec::train(run.scenario, model, plan, training);
        } catch (const Error& error) {
            if (run.folder) {
                rethrow_without_resume(error, run.folder->path());
            }
            throw;
        }
    }();
    if (record) {
        record->finish();
    }
    if (const int ranks = ranks_sharing_cores(run, plan, training.place); ranks > 0) {
        result.measured.noise.sharing_ranks = ranks;
        result.measured.noise.shared_cores = static_cast<int>(exec::allowed_cores().size());
    }
    return result;
}

/// The first of them, with what the others say, so that all that a folder lacks is known.
Error all_in_one(const std::vector<Error>& errors) {
    std::string text = errors.front().text();
    for (std::size_t i = 1; i < errors.size(); ++i) {
        text += fmt::format("; and {}: {}", errors[i].place(), errors[i].text());
    }
    return errors.front().with_text(text);
}

/// The part of the first process: compares what was measured with what was predicted.
FinishedRun finished_run(SettledRun& run,
                         sim::Prediction prediction,
                         exec::TrainingResult training) {
    RunFolder& folder = run.folder.value();
    const Trace measured = sim::measured_trace(prediction.plan, training.measured);
    folder.write(run_file::measured, print_chrome_trace(measured));
    training.measured.breakdown = measured.timelines.breakdown;
    training.measured.replayed_step = measured.timelines.replayed_step;
    Comparison comparison = compare(sim::predicted_trace(prediction).timelines, training.measured);
    FinishedRun finished{.folder = folder.path(),
                         .scenario = run.scenario,
                         .profile = std::move(run.profile),
                         .prediction = std::move(prediction),
                         .training = std::move(training),
                         .comparison = std::move(comparison)};
    folder.write(run_file::report_json, report_json_text(finished));
    folder.write(run_file::report_html, report_html(finished));
    std::vector<Error> lost;
    try {
        folder.finish(exec::disk_patience);
    } catch (const Error& error) {
        lost.push_back(error);
    }
    for (const std::optional<Error>& more : {finished.training.lost_checkpoint, run.lost}) {
        if (more) {
            lost.push_back(*more);
        }
    }
    if (!lost.empty()) {
        throw all_in_one(lost);
    }
    return finished;
}

}  // namespace

std::optional<FinishedRun> train_and_compare(
    const RunOptions& options,
    Open open,
    Console& console,
    const std::function<void(const exec::StepReport&)>& on_step,
    Processes& processes) {
    const WantedRun wanted = wanted_run(options, open, processes);
    processes.leader_only([&] {
        for (const std::string& note : wanted.data->notes()) {
            console.note("data: " + note);
        }
    });
    SettledRun run{.scenario = wanted.settled.value_or(SettledScenario{})};
    processes.from_first([&] {
        measure(options, wanted, processes, run, console);
        return std::string();
    });
    agree_on_costs(processes, run, console);
    const Model model = scenario_model(run.scenario, &run.profile);
    const Plan plan = sim::settled_plan(run.scenario, model, run.profile, memory_left());
    std::optional<sim::Prediction> prediction;
    processes.leader_only([&] {
        prediction = sim::predict(plan);
        prediction->outlook = sim::outlook(plan, prediction->metrics, run.scenario, run.profile);
    });
    agree_on_plan(processes, plan);
    const std::filesystem::path folder =
        processes.from_first([&] { return run.folder->path().string(); });
    processes.record_into(folder / run_file::flight);
    processes.leader_only([&] {
        if (const exec::TextPieces& pieces = wanted.data->text_pieces(); !pieces.are_bytes()) {
            run.folder->write(run_file::pieces, pieces.model());
        }
    });
    processes.leader_only(
        [&] { tell_prediction(*run.folder, run.scenario, *prediction, console); });

    const StopSignal stop;
    std::optional<RoundsBetweenSteps> rounds;
    if (measures_between_steps(options, run.scenario, processes)) {
        rounds.emplace(plan, run.scenario, model);
    }
    const Undertaking undertaking(
        fmt::format("the weights, stashes and buffers of {}", counted(plan.rank_count(), "rank")),
        "use a smaller batch or model, more micro-batches, or recompute; cluster.memory_limit "
        "refuses before the start what does not fit");
    exec::TrainingResult result = trained(options,
                                          run,
                                          *wanted.data,
                                          model,
                                          plan,
                                          on_step,
                                          rounds ? &*rounds : nullptr,
                                          processes,
                                          console);
    const int signal = StopSignal::received();
    if (const int steps = run.scenario.training.steps; result.steps.empty()) {
        throw NothingLeft(
            processes.is_first()
                ? fmt::format("{} of {} {} done: nothing is left to train",
                              steps == 1 ? "the one step" : fmt::format("all {} steps", steps),
                              folder.string(),
                              verb_for(steps, "is", "are"))
                : "all steps are done");
    }
    result.measured.noise.costs_apart = 1;
    if (rounds && rounds->has_measured()) {
        result.measured.noise.costs_apart = rounds->rounds().apart();
        predict_again(run, rounds->rounds(), model, plan, *prediction, console);
    }
    std::optional<FinishedRun> finished;
    processes.leader_only(
        [&] { finished = finished_run(run, std::move(*prediction), std::move(result)); });
    if (signal != 0) {
        throw Stopped(signal, finished ? stopped_text(signal, *finished) : "stopped");
    }
    return finished;
}

namespace {

/// Shares of right classes, where they are counted: of the first and the last step, and of the last
/// validation.
Json accuracy_json(const std::vector<exec::StepReport>& steps) {
    Json validation(nullptr);
    for (const exec::StepReport& step : steps) {
        if (step.validation_accuracy) {
            validation = *step.validation_accuracy;
        }
    }
    return {{"first", steps.front().accuracy.value()},
            {"last", steps.back().accuracy.value()},
            {"validation", std::move(validation)}};
}

}  // namespace

std::string report_json_text(const FinishedRun& run) {
    Json json = json_head();
    json["scenario"] = run.scenario.file.filename().string();
    json["origin"] = std::string(to_string(median_step(run.training.measured).origin));
    json["predicted"] = prediction_json(run.prediction);
    json["comparison"] = comparison_json(run.comparison, run.prediction.outlook.error);
    json["training"] = step_json(run.training.steps.back());
    json["memory_beside"] = memory_beside_json(run.training.memory_beside);
    json["notes"] = notes_of(run);
    json["loss"] = {{"first", run.training.steps.front().loss},
                    {"last", run.training.steps.back().loss}};
    if (run.training.steps.back().accuracy) {
        json["accuracy"] = accuracy_json(run.training.steps);
    }
    if (!run.training.translations.empty()) {
        json["translations"] = translations_json(run.training.translations);
    }
    return json_text(json);
}

}  // namespace pipetwin::cli

#include "cli/training/training_run.h"

#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/base/exit.h"
#include "cli/base/progress.h"
#include "cli/base/stop_signal.h"
#include "cli/run_folder/finished_run.h"
#include "cli/run_folder/live_file.h"
#include "cli/run_folder/metrics_file.h"
#include "cli/run_folder/report_html.h"
#include "cli/run_folder/run_folder.h"
#include "cli/text/gpu_text.h"
#include "cli/text/json_output.h"
#include "cli/text/plan_text.h"
#include "cli/text/planning.h"
#include "core/artifacts/plan_json.h"
#include "core/base/as_index.h"
#include "core/base/content_hash.h"
#include "core/base/error.h"
#include "core/costs/profile_json.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/schedule_csv.h"
#include "core/text/json_text.h"
#include "exec/base/cores.h"
#include "exec/data/batch.h"
#include "exec/gpu/cuda_module.h"
#include "exec/gpu/gpu_parts.h"
#include "exec/profiling/calibrate.h"
#include "exec/profiling/profiler.h"
#include "exec/transport/link_ladder.h"

namespace pipetwin::cli {

namespace {

constexpr std::size_t most_program_bytes = std::size_t{4} << 30U;

/// What describes machines that are not this one.
void refuse_other_machines(const ScenarioParts& scenario, int replicas, const Processes* together) {
    const Scenario::ClusterPart& cluster = scenario.cluster;
    const auto refuse = [](std::string_view key, std::string_view what, std::string hint) {
        throw Error(ErrorKind::Unavailable,
                    std::string(key),
                    fmt::format("{}: it can be simulated, but not trained with here", what),
                    std::move(hint));
    };
    if (replicas > 1 && cluster.backend == Backend::Cuda && together == nullptr) {
        refuse("pipeline.data_parallel",
               fmt::format("{} replicas on GPUs of one process", replicas),
               "start a process for each rank of each replica: mpirun, srun or 'pipetwin launch'; "
               "or set data_parallel = 1");
    }
    if (cluster.device != this_machine || !cluster.devices.empty()) {
        refuse(cluster.devices.empty() ? "cluster.device" : "cluster.devices",
               cluster.devices.empty() ? cluster.device : cluster.devices.front(),
               "'pipetwin simulate' predicts it; to train, leave the device out");
    }
    if (!cluster.speeds.empty() && cluster.backend != Backend::Paced) {
        refuse("cluster.speeds",
               "ranks of unequal speed",
               "cluster.backend = \"paced\" emulates them");
    }
}

void refuse_what_cannot_run(const RunOptions& options,
                            const ScenarioParts& scenario,
                            int replicas,
                            const Processes* together) {
    if (options.resume && options.common.out.empty()) {
        throw Error(ErrorKind::Usage,
                    "--resume",
                    "which run is to go on is not said",
                    "name its folder with --out DIR");
    }
    if (options.resume && options.common.force) {
        throw Error(ErrorKind::Usage,
                    "--resume",
                    "--force would remove what is to go on",
                    "leave one of them out");
    }
    if (scenario.model.kind == ModelKind::Profile) {
        throw Error(ErrorKind::BadInput,
                    "model.kind",
                    "a model of kind 'profile' is known by its costs only, it cannot be trained",
                    "'pipetwin simulate' predicts it; to train, describe it as gpt, mlp or layers");
    }
    refuse_other_machines(scenario, replicas, together);
    if (scenario.cluster.backend == Backend::Cuda) {
        exec::require_cuda(together != nullptr ? together->gpu() : 0);
        if (together != nullptr) {
            together->expect_a_gpu_each();
        }
    }
}

/// Whatever is planned for it.
void refuse_what_is_only_simulated(const ScenarioParts& scenario,
                                   const PipelineSettings& pipeline,
                                   int tensor_parallel) {
    if (pipeline.offload != Offload::None && scenario.cluster.backend == Backend::Cpu) {
        throw Error(
            ErrorKind::Infeasible,
            "pipeline.offload = \"stash\"",
            "the stashes of a CPU lie in host memory already",
            "'pipetwin simulate' predicts it for a device with memory of its own; to train, set "
            "pipeline.offload = \"none\", or cluster.backend = \"cuda\" or \"paced\"");
    }
    if (tensor_parallel != 1) {
        throw Error(ErrorKind::Infeasible,
                    fmt::format("pipeline.tensor_parallel = {}", tensor_parallel),
                    "a rank trains on one device; more to a rank are simulated only",
                    "'pipetwin simulate' predicts it; to train, set pipeline.tensor_parallel = 1");
    }
}

/// Before anything is measured: the order exists, and it can train.
void refuse_order_that_cannot_train(const SettledScenario& scenario) {
    const Schedule schedule = scenario_schedule(scenario);
    if (const auto why = why_not_trainable(schedule, has_stale_gradients(scenario))) {
        throw Error(ErrorKind::Infeasible,
                    fmt::format("pipeline.schedule = \"{}\"", scenario.pipeline.schedule),
                    *why,
                    "'pipetwin simulate' predicts it; to train, take another, such as 1f1b");
    }
}

/// Measuring costs would be the first to find no memory.
void refuse_what_does_not_fit(const SettledScenario& scenario, Processes* together) {
    if (scenario.cluster.backend != Backend::Cuda) {
        return;
    }
    const Model model = scenario_model(scenario);
    const auto plan_of = [&model](const SettledScenario& other) {
        return exec::unmeasured_plan(other, model);
    };
    if (together == nullptr) {
        exec::check_gpu_memory(scenario, plan_of);
    } else {
        exec::check_gpu_memory(
            scenario,
            plan_of,
            {.rank = together->world().index() % scenario.pipeline.stages, .gpu = together->gpu()});
    }
}

Profile costs(const RunOptions& options, const SettledScenario& scenario, Console& console) {
    return options.profile.empty() ? measure_profile(scenario, console)
                                   : read_profile(options.profile);
}

/// Plans whatever is "auto" with what the layers cost here; says what was chosen, and keeps the
/// search and the settled scenario in the folder. Stages that share this machine cost more than
/// what was measured with others, so the settled plan is measured again.
SettledScenario planned(const RunOptions& options,
                        const Scenario& space,
                        const RunFolder& folder,
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
    console.note(planned_text(space, found));
    const Prediction best = predict(settled_plan(settled, model, profile));
    folder.write(run_file::search, json_text(search_json(found, prediction_json(best))));
    folder.write(run_file::scenario, print_scenario(settled.as_scenario()));
    return settled;
}

/// A prediction gives every rank a core of its own.
void note_shared_cores(const ScenarioParts& scenario,
                       const Plan& plan,
                       const exec::TrainingOptions& training,
                       Console& console) {
    if (scenario.cluster.backend != Backend::Cpu) {
        return;
    }
    const std::size_t cores = exec::allowed_cores().size();
    const auto ranks = static_cast<std::size_t>(plan.rank_count() * plan->replicas);
    std::string who;
    if (training.world != nullptr && training.shares_cores) {
        who = "the processes of a host share its cores";
    } else if (training.world == nullptr && ranks > cores) {
        who = fmt::format("{} ranks share {} core{}", ranks, cores, cores == 1 ? "" : "s");
    }
    if (!who.empty()) {
        console.note(who +
                     ", but are predicted with one each: expect longer steps; cluster.backend = "
                     "\"paced\" emulates a device per rank");
    }
}

void write_prediction(const RunFolder& folder, const Prediction& prediction) {
    folder.write(run_file::plan, print_plan(prediction.plan));
    folder.write(run_file::schedule, print_schedule_csv(prediction.plan->schedule));
    folder.write(run_file::predicted, print_chrome_trace(predicted_trace(prediction)));
}

std::string stopped_text(int signal, const FinishedRun& run) {
    const std::size_t done = run.training.steps.size();
    return fmt::format("stopped by {} after {} of {} steps; {} holds what they gave",
                       signal == SIGINT ? "SIGINT" : "SIGTERM",
                       done,
                       run.scenario.training.steps,
                       run.folder.string());
}

void note_start(const std::filesystem::path& checkpoints,
                int first_step,
                const std::optional<exec::Checkpoints::Loaded>& loaded,
                Console& console) {
    if (!loaded) {
        console.note(fmt::format("no checkpoint in {}: the run starts from the beginning",
                                 checkpoints.string()));
        return;
    }
    for (const std::string& damaged : loaded->damaged) {
        console.note(fmt::format("a damaged checkpoint is left out: {}", damaged));
    }
    console.note(fmt::format("goes on with step {} from {}", first_step, loaded->folder.string()));
}

/// What all processes of a training have in common.
exec::TrainingOptions training_options(const RunOptions& options, Processes* together) {
    exec::TrainingOptions training{.resume = options.resume};
    if (together != nullptr) {
        training.world = &together->world();
        training.monitor = &together->monitor();
        training.flight = together->flight();
        const std::optional<std::vector<int>> cores = together->own_cores();
        training.cores = cores.value_or(std::vector<int>{});
        training.shares_cores = !cores;
        training.gpu = together->gpu();
    }
    return training;
}

/// Whatever keeps the scenario from being trained.
void refuse_what_cannot_train(const RunOptions& options,
                              const SettledScenario& scenario,
                              Processes* together) {
    const SettledScenario::PipelinePart& pipeline = scenario.pipeline;
    refuse_what_cannot_run(options, scenario, pipeline.data_parallel, together);
    refuse_what_is_only_simulated(scenario, pipeline, pipeline.tensor_parallel);
    refuse_order_that_cannot_train(scenario);
    refuse_what_does_not_fit(scenario, together);
}

/// Before anything is measured.
void agree_on_inputs(Processes& together, const Scenario& scenario) {
    const Model model = scenario_model(scenario);
    const std::unique_ptr<exec::DataSource> data = exec::open_data(scenario, model);
    const exec::Batch batch = data->batch(0, scenario.training.batch);
    ContentHash samples;
    data->add_content(samples);
    samples.add(std::as_bytes(std::span(batch.tokens)));
    samples.add(std::as_bytes(std::span(batch.values)));
    samples.add(std::as_bytes(std::span(batch.targets)));
    together.agree_on(
        {{"scenario", print_scenario(scenario)},
         {"data", fmt::format("{}, content {}", data->description(), samples.digits())},
         {"build",
          fmt::format("{} {}",
                      PIPETWIN_VERSION,
                      content_hash(read_file("/proc/self/exe", most_program_bytes)))}});
}

/// The first process's, in all of them, with the links between these processes.
Profile shared_profile(Profile profile, const SettledScenario& scenario, Processes& together) {
    // On GPUs, for the time of measuring.
    std::vector<std::unique_ptr<exec::Device>> gpu;
    if (scenario.cluster.backend == Backend::Cuda) {
        gpu = exec::make_cuda_devices({.device = together.gpu(),
                                       .ranks = 1,
                                       .own_multiprocessors = false,
                                       .memory = exec::ladder_memory});
    }
    const exec::MeasuredLinks links =
        exec::measured_links(together.world(),
                             scenario.pipeline.stages,
                             together.hosts(),
                             gpu.empty() ? nullptr : &gpu.front()->memory());
    if (links.inside || links.between) {
        std::erase_if(profile.links, [](const LinkCost& old) {
            return old.between == "ranks" || old.between == "nodes";
        });
    }
    for (const auto& link : {links.between, links.inside}) {
        if (link) {
            profile.links.insert(profile.links.begin(), *link);
        }
    }
    // What all plan with is what is written, to the last digit.
    return parse_profile(together.from_first([&] { return print_profile(profile); }),
                         std::string(run_file::profile));
}

/// The hosts as they are, in place of those that the scenario expects.
void place_on_hosts(SettledScenario& scenario, Processes& together) {
    const std::vector<int> hosts = together.hosts();
    if (std::ranges::max(hosts) > 0) {
        scenario.cluster.placement = Placement::Written;
        scenario.cluster.nodes = hosts;
    }
}

void note_links(const Profile& profile, Console& console) {
    for (const LinkCost& link : profile.links) {
        if (link.between == "ranks" || link.between == "nodes") {
            console.note(fmt::format("link between {}: {} and {:.3g} Gbit/s",
                                     link.between == "ranks" ? "processes" : "hosts",
                                     format_duration(link.latency),
                                     link.bytes_per_second * 8 / 1e9));
        }
    }
}

/// After it a silence as long as the longest message takes is none.
void agree_on_plan(Processes& together, const Plan& plan) {
    together.agree_on({{"schedule", plan.hash()}});
    constexpr int messages = 10;
    for (int boundary = 0; boundary + 1 < plan.stage_count(); ++boundary) {
        const LinkCost& link = plan->links[as_index(boundary)];
        together.monitor().allow(messages *
                                 exec::message_time(link, plan.cost(boundary, 0).output));
    }
}

exec::TrainingResult train_with_notes(const RunOptions& options,
                                      const SettledScenario& scenario,
                                      const Model& model,
                                      const Plan& plan,
                                      const RunFolder& folder,
                                      Console& console,
                                      const std::function<void(const exec::StepReport&)>& on_step,
                                      Processes* together) {
    std::optional<MetricsFile> metrics;
    exec::TrainingOptions training = training_options(options, together);
    note_shared_cores(scenario, plan, training, console);
    training.checkpoints = folder.file(run_file::checkpoints);
    training.on_start = [&](int first_step,
                            const std::optional<exec::Checkpoints::Loaded>& loaded) {
        metrics.emplace(folder.file(run_file::metrics), first_step);
        if (options.resume) {
            note_start(training.checkpoints, first_step, loaded, console);
        }
    };
    std::optional<LiveFile> live;
    if (options.live) {
        live.emplace(folder.file(run_file::live),
                     LiveHeader{.plan_hash = plan.hash(),
                                .schedule_name = plan->schedule_name,
                                .origin = scenario.cluster.backend == Backend::Paced ||
                                                  scenario.cluster.emulate_links
                                              ? Origin::Emulated
                                              : Origin::Measured,
                                .schedule = plan->schedule});
        training.on_timeline = [&](int step, const Timeline& timeline) {
            live->add(step, timeline);
        };
    }
    training.on_step = [&](const exec::StepReport& step) {
        metrics->add(step);
        on_step(step);
        for (const std::string& note : step.notes) {
            console.note(note);
        }
        return StopSignal::received() == 0;
    };
    training.before_checkpoint = [&] { metrics->bring_to_disk(); };
    training.on_warning = [&](const std::string& text) { console.note(text); };
    return exec::train(scenario, model, plan, training);
}

}  // namespace

Profile measure_profile(const SettledScenario& scenario, Console& console) {
    exec::ProfilerOptions options = exec::profiler_options(scenario);
    Progress progress(console, "profile");
    options.progress = [&progress](double share, const std::string& what) {
        progress.update(share, what);
    };
    return exec::profile_model(scenario_model(scenario), options);
}

void add_calibration(Profile& profile, const ScenarioParts& scenario, Console& console) {
    if (scenario.cluster.backend != Backend::Cpu) {
        return;
    }
    Progress progress(console, "interference");
    exec::CalibrateOptions options;
    options.precision = scenario.training.precision;
    options.optimizer = scenario.training.optimizer;
    options.seed = scenario.training.seed;
    options.progress = [&progress](double share, const std::string& what) {
        progress.update(share, what);
    };
    exec::add_interference_and_ladder(profile, scenario_model(scenario), options);
}

FinishedRun train_and_compare(const RunOptions& options,
                              Open open,
                              Console& console,
                              const std::function<void(const exec::StepReport&)>& on_step,
                              Processes* together) {
    const Scenario written = read_scenario(options.scenario, options.common.overrides);
    const bool plans = open == Open::Planned && is_open(written);
    std::optional<SettledScenario> settled;  // none while it has to be planned
    if (!plans) {
        settled = settle(written);
    }
    const Scenario space = trainable_space(written);
    if (settled) {
        refuse_what_cannot_train(options, *settled, together);
    } else {
        const Scenario::PipelinePart& pipeline = space.pipeline;
        refuse_what_cannot_run(options, space, pipeline.data_parallel.value_or(1), together);
        refuse_what_is_only_simulated(space, pipeline, pipeline.tensor_parallel.value_or(1));
    }
    if (together != nullptr) {
        agree_on_inputs(*together, written);
    }
    std::optional<RunFolder> opened;
    Profile profile;
    const auto measure = [&] {
        opened.emplace(
            options.common.out.empty() ? unused_run_folder(written.file.stem().string())
                                       : options.common.out,
            options.resume ? RunFolder::Old::GoesOn : unless_forced(options.common.force));
        opened->write(run_file::scenario, print_scenario(written));
        if (plans) {
            settled = planned(options, space, *opened, console);
            refuse_what_does_not_fit(*settled, together);
        }
        profile = costs(options, settled.value(), console);
        return std::string();
    };
    if (together != nullptr) {
        together->from_first(measure);
    } else {
        measure();
    }
    SettledScenario scenario = *std::move(settled);
    if (together != nullptr) {
        place_on_hosts(scenario, *together);
        profile = shared_profile(std::move(profile), scenario, *together);
        note_links(profile, console);
        opened->write(run_file::scenario, print_scenario(scenario.as_scenario()));
    }
    const RunFolder& folder = opened.value();
    folder.write(run_file::profile, print_profile(profile));
    const Model model = scenario_model(scenario, &profile);
    Prediction prediction = predict(settled_plan(scenario, model, profile));
    if (together != nullptr) {
        agree_on_plan(*together, prediction.plan);
        together->from_first([&] { return folder.path().string(); });
        together->record_into(folder.file(run_file::flight));
    }
    write_prediction(folder, prediction);
    for (const std::string& note : prediction.plan->notes) {
        console.note(note);
    }
    console.note(fmt::format("predicted step: {}", format_duration(prediction.metrics.step)));

    const StopSignal stop;
    exec::TrainingResult training = train_with_notes(
        options, scenario, model, prediction.plan, folder, console, on_step, together);
    const int signal = StopSignal::received();
    if (training.steps.empty()) {
        throw NothingLeft(fmt::format("all {} steps of {} are done: nothing is left to train",
                                      scenario.training.steps,
                                      folder.path().string()));
    }

    const Trace measured = measured_trace(prediction.plan, training.measured);
    folder.write(run_file::measured, print_chrome_trace(measured));
    training.measured.breakdown = measured.timelines.breakdown;
    training.measured.replayed_step = measured.timelines.replayed_step;
    Comparison comparison = compare(predicted_trace(prediction).timelines, training.measured);
    FinishedRun run{.folder = folder.path(),
                    .scenario = scenario,
                    .profile = std::move(profile),
                    .prediction = std::move(prediction),
                    .training = std::move(training),
                    .comparison = std::move(comparison)};
    folder.write(run_file::report_json, report_json_text(run));
    folder.write(run_file::report_html, report_html(run));
    if (signal != 0) {
        throw Stopped(signal, stopped_text(signal, run));
    }
    return run;
}

void train_along(const RunOptions& options, Processes& together) {
    SettledScenario scenario = settle(read_scenario(options.scenario, options.common.overrides));
    refuse_what_cannot_train(options, scenario, &together);
    agree_on_inputs(together, scenario.as_scenario());
    together.from_first({});  // measures
    place_on_hosts(scenario, together);
    const Profile profile = shared_profile({}, scenario, together);
    const Model model = scenario_model(scenario, &profile);
    const Plan plan = settled_plan(scenario, model, profile);
    agree_on_plan(together, plan);
    const std::filesystem::path folder = together.from_first({});
    together.record_into(folder / run_file::flight);
    const StopSignal stop;
    exec::TrainingOptions training = training_options(options, &together);
    training.on_step = [](const exec::StepReport&) { return StopSignal::received() == 0; };
    const exec::TrainingResult result = exec::train(scenario, model, plan, training);
    if (result.steps.empty()) {
        throw NothingLeft("all steps are done");
    }
    if (const int signal = StopSignal::received(); signal != 0) {
        throw Stopped(signal, "stopped");
    }
}

std::string report_json_text(const FinishedRun& run) {
    Json json = json_head();
    json["scenario"] = run.scenario.file.filename().string();
    json["origin"] = std::string(to_string(median_step(run.training.measured).origin));
    json["predicted"] = prediction_json(run.prediction);
    json["comparison"] = comparison_json(run.comparison);
    json["training"] = step_json(run.training.steps.back());
    json["memory_beside"] = memory_beside_json(run.training.memory_beside);
    json["notes"] = notes_of(run);
    json["loss"] = {{"first", run.training.steps.front().loss},
                    {"last", run.training.steps.back().loss}};
    return json_text(json);
}

}  // namespace pipetwin::cli

#include "cli/training/training_run.h"

#include <filesystem>
#include <memory>
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
#include "cli/text/translation_text.h"
#include "cli/training/early_refusals.h"
#include "cli/training/training_costs.h"
#include "core/artifacts/plan_json.h"
#include "core/base/as_index.h"
#include "core/base/content_hash.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/undertaking.h"
#include "core/costs/profile_json.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/schedule_csv.h"
#include "core/text/json_text.h"
#include "exec/base/cores.h"
#include "exec/base/retry.h"
#include "exec/data/batch.h"
#include "exec/data/data_check.h"
#include "exec/executor/backend.h"
#include "exec/gpu/cuda_module.h"
#include "exec/gpu/gpu_parts.h"
#include "exec/profiling/profiler.h"
#include "exec/training/held_out_translations.h"
#include "exec/training/published_weights.h"
#include "exec/transport/link_ladder.h"

namespace pipetwin::cli {

namespace {

constexpr std::size_t most_program_bytes = std::size_t{4} << 30U;

/// What describes machines that are not this one.
void refuse_other_machines(const ScenarioParts& scenario,
                           int replicas,
                           const Processes& processes) {
    const Scenario::ClusterPart& cluster = scenario.cluster;
    const auto refuse = [](std::string_view key, std::string_view what, std::string hint) {
        throw Error(ErrorKind::Unavailable,
                    std::string(key),
                    fmt::format("{}: it can be simulated, but not trained with here", what),
                    std::move(hint));
    };
    if (replicas > 1 && !exec::traits(cluster.backend).replicas_share_process &&
        processes.is_alone()) {
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
    if (!cluster.speeds.empty() && !exec::traits(cluster.backend).is_emulated) {
        refuse("cluster.speeds",
               "ranks of unequal speed",
               fmt::format("cluster.backend = {} emulates them",
                           exec::backends_where(&exec::BackendTraits::is_emulated)));
    }
}

void refuse_what_cannot_run(const RunOptions& options,
                            const ScenarioParts& scenario,
                            int replicas,
                            const Processes& processes) {
    if (options.resume && options.common.out.empty()) {
        throw Error(ErrorKind::Usage,
                    "--resume",
                    "the run to continue is not named",
                    "name its folder with --out DIR");
    }
    if (options.resume && options.common.force) {
        throw Error(ErrorKind::Usage,
                    "--resume",
                    "--force would remove the run that --resume continues",
                    "leave one of them out");
    }
    if (options.resume && !options.weights.empty()) {
        throw Error(ErrorKind::Usage,
                    "--weights",
                    "with --resume a run continues with the weights of its checkpoint",
                    "leave one of them out");
    }
    if (scenario.model.kind == ModelKind::Profile) {
        throw Error(ErrorKind::BadInput,
                    "model.kind",
                    "a model of kind 'profile' has only costs, so it cannot be trained",
                    "'pipetwin simulate' predicts it; to train, describe it as gpt, mlp or layers");
    }
    refuse_other_machines(scenario, replicas, processes);
    const exec::BackendTraits& backend = exec::traits(scenario.cluster.backend);
    if (backend.require != nullptr) {
        backend.require(processes.gpu());
    }
    if (backend.needs_gpu) {
        processes.expect_a_gpu_each();
    }
}

/// Whatever is planned for it.
void refuse_what_is_only_simulated(const ScenarioParts& scenario,
                                   const PipelineSettings& pipeline,
                                   int tensor_parallel) {
    if (pipeline.offload != Offload::None && !exec::traits(scenario.cluster.backend).offloads) {
        throw Error(
            ErrorKind::Infeasible,
            "pipeline.offload = \"stash\"",
            "the stashes of a CPU lie in host memory already",
            fmt::format("'pipetwin simulate' predicts it for a device with memory of its own; to "
                        "train, set pipeline.offload = \"none\", or cluster.backend = {}",
                        exec::backends_where(&exec::BackendTraits::offloads)));
    }
    if (pipeline.layer_recompute == LayerRecompute::Selective) {
        throw Error(
            ErrorKind::Infeasible,
            "pipeline.recompute = \"selective\"",
            "recompute of core attention alone can only be simulated",
            "'pipetwin simulate' predicts it; to train, set pipeline.recompute = \"block\", "
            "or \"none\"");
    }
    if (pipeline.recompute_early_stop) {
        throw Error(ErrorKind::Infeasible,
                    "pipeline.recompute_early_stop = true",
                    "recompute that leaves out a block's end can only be simulated",
                    "'pipetwin simulate' predicts it; to train, leave it out");
    }
    if (pipeline.shard > Shard::Optimizer) {
        throw Error(ErrorKind::Infeasible,
                    fmt::format("pipeline.shard = \"{}\"", to_string(pipeline.shard)),
                    "replicas that divide gradients or weights can only be simulated",
                    "'pipetwin simulate' predicts it; to train, set pipeline.shard = \"optimizer\" "
                    "or \"none\"");
    }
    if (pipeline.shard != Shard::None && scenario.training.average_decay > 0) {
        throw Error(
            ErrorKind::Infeasible,
            fmt::format("training.average_decay = {}", scenario.training.average_decay),
            "with pipeline.shard each replica would average its share of the weights alone, "
            "and none could validate with the averages: this can only be simulated",
            "'pipetwin simulate' predicts it; to train, set pipeline.shard = \"none\", or "
            "training.average_decay = 0");
    }
    if (scenario.training.gradients == GradientType::Same &&
        scenario.training.precision == Precision::Bf16) {
        throw Error(
            ErrorKind::Infeasible,
            "training.gradients = \"same\"",
            "gradients of bf16 weights are summed in fp32; in bf16 they can only be simulated",
            "'pipetwin simulate' predicts it; to train, set training.gradients = \"fp32\"");
    }
    if (tensor_parallel != 1) {
        throw Error(ErrorKind::Infeasible,
                    fmt::format("pipeline.tensor_parallel = {}", tensor_parallel),
                    "a rank trains on one device; several devices per rank can only be simulated",
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
                    "'pipetwin simulate' predicts it; to train, use another, such as 1f1b");
    }
}

/// Measuring costs would be the first to find no memory.
void refuse_what_does_not_fit(const SettledScenario& scenario, Processes& processes) {
    const auto check_memory = exec::traits(scenario.cluster.backend).check_memory;
    if (check_memory == nullptr) {
        return;
    }
    const Model model = scenario_model(scenario);
    const auto plan_of = [&model](const SettledScenario& other) {
        return exec::unmeasured_plan(other, model);
    };
    if (processes.is_alone()) {
        check_memory(scenario, plan_of, nullptr);
    } else {
        const exec::RankOnGpu own{.rank = processes.group().index() % scenario.pipeline.stages,
                                  .gpu = processes.gpu()};
        check_memory(scenario, plan_of, &own);
    }
}

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
    const Prediction best = predict(settled, model, profile);
    folder.write(run_file::search, json_text(search_json(space, found, prediction_json(best))));
    folder.write(run_file::scenario, print_scenario(settled.as_scenario()));
    return settled;
}

void write_prediction(RunFolder& folder, const Prediction& prediction) {
    folder.write(run_file::plan, print_plan(prediction.plan));
    folder.write(run_file::schedule, print_schedule_csv(prediction.plan->schedule));
    folder.write(run_file::predicted, print_chrome_trace(predicted_trace(prediction)));
}

std::string stopped_text(int signal, const FinishedRun& run) {
    const std::size_t done = run.training.steps.size();
    return fmt::format("stopped by {} after {} of {} steps; {} holds their results",
                       StopSignal::name(signal),
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
    console.note(
        fmt::format("continues with step {} from {}", first_step, loaded->folder.string()));
}

/// Refuses a settled scenario that cannot be trained with here.
void refuse_what_cannot_train(const RunOptions& options,
                              const SettledScenario& scenario,
                              Processes& processes) {
    const SettledScenario::PipelinePart& pipeline = scenario.pipeline;
    refuse_what_cannot_run(options, scenario, pipeline.data_parallel, processes);
    refuse_what_is_only_simulated(scenario, pipeline, pipeline.tensor_parallel);
    refuse_order_that_cannot_train(scenario);
    refuse_what_does_not_fit(scenario, processes);
}

/// Before anything is measured. A process alone reads none of it twice.
void agree_on_inputs(Processes& processes, const Scenario& scenario) {
    if (processes.is_alone()) {
        return;
    }
    const Model model = scenario_model(scenario);
    const std::unique_ptr<exec::DataSource> data = exec::open_data(scenario, model);
    const exec::Batch batch = data->batch(0, scenario.training.batch);
    ContentHash samples;
    data->add_content(samples);
    samples.add(std::as_bytes(std::span(batch.tokens)));
    samples.add(std::as_bytes(std::span(batch.values)));
    samples.add(std::as_bytes(std::span(batch.targets)));
    processes.agree_on(
        {{"scenario", print_scenario(scenario)},
         {"data", fmt::format("{}, content {}", data->description(), samples.digits())},
         {"build",
          fmt::format("{} {}",
                      PIPETWIN_VERSION,
                      content_hash(read_file("/proc/self/exe", most_program_bytes)))}});
}

/// The first process's, in all of them, with the links between these processes.
Profile shared_profile(Profile profile, const SettledScenario& scenario, Processes& processes) {
    if (processes.is_alone()) {
        return profile;
    }
    // On GPUs, for the time of measuring.
    std::vector<std::unique_ptr<exec::Device>> gpu;
    if (exec::traits(scenario.cluster.backend).has_memory) {
        gpu = exec::make_cuda_devices({.device = processes.gpu(),
                                       .ranks = 1,
                                       .own_multiprocessors = false,
                                       .memory = exec::ladder_memory});
    }
    const exec::MeasuredLinks links =
        exec::measured_links(processes.group(),
                             scenario.pipeline.stages,
                             processes.hosts(),
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
    return parse_profile(processes.from_first([&] { return print_profile(profile); }),
                         std::string(run_file::profile));
}

/// The hosts as they are, in place of those that the scenario expects.
void place_on_hosts(SettledScenario& scenario, const Processes& processes) {
    const std::vector<int>& hosts = processes.hosts();
    if (std::ranges::max(hosts) > 0) {
        scenario.cluster.placement = Placement::Written;
        scenario.cluster.nodes = hosts;
    }
}

/// Prints the links that were measured between processes.
void note_links(const Profile& profile, const Processes& processes, Console& console) {
    if (processes.is_alone()) {
        return;
    }
    for (const LinkCost& link : profile.links) {
        if (link.between == "ranks" || link.between == "nodes") {
            console.note(fmt::format("link between {}: {} and {:.3g} Gbit/s",
                                     link.between == "ranks" ? "processes" : "hosts",
                                     format_duration(link.latency),
                                     link.bytes_per_second * 8 / 1e9));
        }
    }
}

/// After it a silence as long as the longest message takes is none. A process alone sends none.
void agree_on_plan(Processes& processes, const Plan& plan) {
    if (processes.is_alone()) {
        return;
    }
    processes.agree_on({{"schedule", plan.hash()}});
    constexpr int messages = 10;
    for (std::size_t pair = 0; pair < plan->links.size(); ++pair) {
        processes.monitor().allow(
            messages * exec::message_time(plan->links[pair],
                                          plan.message_bytes(static_cast<int>(2 * pair), 0)));
    }
}

/// A scenario as it was written, and what can be trained of all that it may mean.
struct WantedRun {
    Scenario written;
    Scenario space;
    std::optional<SettledScenario> settled;  ///< none if something is "auto" and has to be planned
    std::unique_ptr<exec::DataCheck> data;   ///< goes on beside what follows
};

/// What is known before the first step, the same in all processes.
struct SettledRun {
    SettledScenario scenario;
    Profile profile{};
    std::optional<RunFolder> folder{};  ///< of the first process alone
    std::optional<Error> lost{};        ///< why a file that goes on with every step is not whole
};

/// Ranks of one process that have to share its cores, where the prediction gives each one of its
/// own; 0: they need not.
int ranks_sharing_cores(const SettledRun& run, const Plan& plan, const exec::ProcessPlace& place) {
    const bool on_cores = exec::traits(run.scenario.cluster.backend).on_cores;
    const int ranks = plan.rank_count() * plan->replicas;
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
        who =
            fmt::format("{} ranks share {}", ranks, counted(exec::allowed_cores().size(), "core"));
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
        const Scenario::PipelinePart& pipeline = space.pipeline;
        refuse_what_cannot_run(options, space, pipeline.data_parallel.value_or(1), processes);
        refuse_what_is_only_simulated(space, pipeline, pipeline.tensor_parallel.value_or(1));
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

void tell_prediction(RunFolder& folder, const Prediction& prediction, Console& console) {
    write_prediction(folder, prediction);
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
                   Prediction& prediction,
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
    prediction = predict(again);
    prediction.outlook = outlook(again, prediction.metrics, same, profile);
    run.profile = profile;
    run.folder->write(run_file::profile, print_profile(run.profile));
    run.folder->write(run_file::scenario, print_scenario(same.as_scenario()));
    write_prediction(*run.folder, prediction);
    console.note(
        fmt::format("predicted step: {} with the costs measured during the training, {} with "
                    "those measured before",
                    format_duration(prediction.metrics.step),
                    format_duration(before)));
}

/// What the first process keeps and says of a training while it goes on.
class TrainingRecord {
  public:
    TrainingRecord(const RunOptions& options,
                   SettledRun& run,
                   exec::DataCheck& data,
                   const std::function<void(const exec::StepReport&)>& on_step,
                   RoundsBetweenSteps* rounds,
                   Console& console)
        : options_(options),
          run_(run),
          data_(data),
          folder_(run.folder.value()),
          on_step_(on_step),
          rounds_(rounds),
          console_(console) {}

    /// Outlives the training.
    void follow(exec::TrainingOptions& training, const Plan& plan) {
        training.checkpoints = folder_.file(run_file::checkpoints);
        training.on_start = [this, &plan](int first_step, const auto& loaded) {
            if (options_.resume) {
                note_start(folder_.file(run_file::checkpoints), first_step, loaded, console_);
            }
            if (first_step < run_.scenario.training.steps) {
                begin(first_step, plan);
            }
        };
        if (options_.live) {
            training.on_timeline = [this](int step, const Timeline& timeline) {
                live_->add(step, timeline);
            };
        }
        training.on_step = [this](const exec::StepReport& step) { return add(step); };
        training.before_checkpoint = [this] { metrics_->bring_to_disk(); };
        training.on_translated = [this](double share) {
            if (!translating_) {
                translating_.emplace(console_, "translating held-out texts");
            }
            translating_->update(share);
        };
        training.on_warning = [this](const std::string& text) { console_.note(text); };
    }

    /// Writes what the disk had no room for, as far as it has room now.
    void finish() {
        try {
            if (metrics_) {
                metrics_->finish(exec::disk_patience);
            }
        } catch (const Error& error) {
            run_.lost = error;
        }
        try {
            if (live_) {
                live_->finish(exec::disk_patience);
            }
        } catch (const Error& error) {  // for a program that watched; no result of the training
            console_.note(fmt::format("{}: {}", error.place(), error.text()));
        }
    }

  private:
    /// Nothing refuses the training any more.
    void begin(int first_step, const Plan& plan) {
        data_.refuse_found();
        // The folder goes on to tell when this record has gone.
        const auto tell = [&console = console_](const std::string& text) { console.note(text); };
        folder_.keep_on(exec::disk_patience, tell);
        metrics_.emplace(folder_.file(run_file::metrics), first_step, tell);
        if (options_.live) {
            live_.emplace(folder_.file(run_file::live), live_header(plan));
        }
    }

    LiveHeader live_header(const Plan& plan) const {
        const Scenario::ClusterPart& cluster = run_.scenario.cluster;
        const bool is_emulated = exec::traits(cluster.backend).is_emulated || cluster.emulate_links;
        return {.plan_hash = plan.hash(),
                .schedule_name = plan->schedule_name,
                .origin = is_emulated ? Origin::Emulated : Origin::Measured,
                .schedule = plan->schedule};
    }

    /// Whether the training goes on.
    bool add(const exec::StepReport& step) {
        folder_.expect_still_there();
        metrics_->add(step);
        folder_.write_kept();
        data_.begin();  // only now where costs were given: the first step comes as soon as it can
        on_step_(step);
        for (const std::string& note : step.notes) {
            console_.note(note);
        }
        data_.refuse_found();
        const bool goes_on = StopSignal::received() == 0;
        if (goes_on && rounds_ != nullptr) {
            rounds_->after_step(step);
        }
        return goes_on;
    }

    const RunOptions& options_;
    SettledRun& run_;
    exec::DataCheck& data_;
    RunFolder& folder_;
    const std::function<void(const exec::StepReport&)>& on_step_;
    RoundsBetweenSteps* rounds_;  ///< null: none
    Console& console_;
    std::optional<MetricsFile> metrics_;
    std::optional<LiveFile> live_;
    std::optional<Progress> translating_;
};

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
    exec::TrainingResult result = exec::train(run.scenario, model, plan, training);
    if (record) {
        record->finish();
    }
    if (const int ranks = ranks_sharing_cores(run, plan, training.place); ranks > 0) {
        result.measured.noise.sharing_ranks = ranks;
        result.measured.noise.shared_cores = static_cast<int>(exec::allowed_cores().size());
    }
    return result;
}

/// The part of the first process: compares what was measured with what was predicted.
FinishedRun finished_run(SettledRun& run, Prediction prediction, exec::TrainingResult training) {
    RunFolder& folder = run.folder.value();
    const Trace measured = measured_trace(prediction.plan, training.measured);
    folder.write(run_file::measured, print_chrome_trace(measured));
    training.measured.breakdown = measured.timelines.breakdown;
    training.measured.replayed_step = measured.timelines.replayed_step;
    Comparison comparison = compare(predicted_trace(prediction).timelines, training.measured);
    FinishedRun finished{.folder = folder.path(),
                         .scenario = run.scenario,
                         .profile = std::move(run.profile),
                         .prediction = std::move(prediction),
                         .training = std::move(training),
                         .comparison = std::move(comparison)};
    folder.write(run_file::report_json, report_json_text(finished));
    folder.write(run_file::report_html, report_html(finished));
    folder.finish(exec::disk_patience);
    for (const std::optional<Error>& lost : {finished.training.lost_checkpoint, run.lost}) {
        if (lost) {
            throw Error(*lost);
        }
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
    const Plan plan = settled_plan(run.scenario, model, run.profile);
    std::optional<Prediction> prediction;
    processes.leader_only([&] {
        prediction = predict(plan);
        prediction->outlook = outlook(plan, prediction->metrics, run.scenario, run.profile);
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
    processes.leader_only([&] { tell_prediction(*run.folder, *prediction, console); });

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

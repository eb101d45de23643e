// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <csignal>
#include <future>
#include <sstream>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "cli/command_line.h"
#include "cli/run_folder/run_folder.h"
#include "core/artifacts/chrome_trace.h"
#include "core/artifacts/live_steps.h"
#include "exec/base/cores.h"
#include "tests/cli/support.h"

namespace pipetwin::cli {
namespace training_test {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class Training : public InFolder {
  protected:
    std::vector<std::string> command(const std::string& name,
                                     const std::vector<std::string>& more = {}) const {
        return joined({name,
                       file("small.toml", small_scenario),
                       "--profile",
                       file("small.csv", small_profile),
                       "--out",
                       path("run")},
                      more);
    }
};

constexpr std::array run_folder_files{run_file::scenario,
                                      run_file::profile,
                                      run_file::plan,
                                      run_file::schedule,
                                      run_file::predicted,
                                      run_file::measured,
                                      run_file::metrics,
                                      run_file::report_json,
                                      run_file::report_html};

TEST_F(Training, RunWritesTheWholeFolderAndComparesBothSides) {
    const Outcome outcome = pipetwin(command("run"));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    for (const std::string_view name : run_folder_files) {
        EXPECT_TRUE(std::filesystem::exists(folder() / "run" / name)) << name;
    }
    for (const char* const text :
         {"predicted", "measured", "error", "peak of rank 1", "noise", "report.html"}) {
        EXPECT_THAT(outcome.out, HasSubstr(text));
    }
}

TEST_F(Training, TheMeasuredTimelineCanBeDrawn) {
    ASSERT_EQ(pipetwin(command("train")).code, 0);
    const auto picture = [this](const std::string& source) {
        const std::string out = path("picture.svg");
        const Outcome outcome = pipetwin({"export", "svg", source, "--force", "--out", out});
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        return content_of(out);
    };
    EXPECT_THAT(picture(path("run")), AllOf(HasSubstr("predicted"), HasSubstr("measured")));
    EXPECT_THAT(picture(path("run") + "/measured.trace.json"),
                AllOf(HasSubstr("measured"), Not(HasSubstr("predicted"))));
    EXPECT_THAT(picture(path("run") + "/predicted.trace.json"),
                AllOf(HasSubstr("predicted"), Not(HasSubstr("measured"))));

    std::filesystem::remove(folder() / "run" / "predicted.trace.json");
    const Outcome outcome = pipetwin({"export", "svg", path("run"), "--out", path("x.svg")});
    EXPECT_EQ(outcome.code, 6);
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("there is no predicted.trace.json in this folder"),
                      HasSubstr("measured.trace.json draws the measurement alone")));
}

TEST_F(Training, QuietlyPrintsTheLastStepAlone) {
    const Outcome outcome = pipetwin(command("train", {"--quiet"}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    EXPECT_EQ(std::ranges::count(outcome.out, '\n'), 1);
    const std::string all = pipetwin(command("train", {"--force"})).out;
    const std::string begin = outcome.out.substr(0, outcome.out.find(" loss"));  // "step     9"
    EXPECT_THAT(all.substr(all.rfind("step ")), ::testing::StartsWith(begin));
}

TEST_F(Training, LiveStepsAreWrittenOnlyWhereTheyAreAskedFor) {
    ASSERT_EQ(pipetwin(command("train")).code, 0);
    EXPECT_FALSE(std::filesystem::exists(folder() / "run" / run_file::live));
    ASSERT_EQ(pipetwin(command("train", {"--live", "--force"})).code, 0);
    LiveReader reader("live.jsonl");
    const std::vector<LiveStep> steps = reader.feed(content_of(folder() / "run" / run_file::live));
    const Trace measured = read_chrome_trace(folder() / "run" / run_file::measured);
    EXPECT_EQ(reader.header().plan_hash, measured.plan_hash);
    EXPECT_EQ(reader.header().schedule, measured.schedule);
    std::istringstream metrics(content_of(folder() / "run" / run_file::metrics));
    std::string line;
    std::size_t lines = 0;
    while (std::getline(metrics, line)) {
        ASSERT_LT(lines, steps.size());
        EXPECT_EQ(nlohmann::json::parse(line)["step"], steps[lines].step);
        ++lines;
    }
    EXPECT_EQ(lines, steps.size());
}

TEST_F(Training, AProfileSaysHowItWasMeasured) {
    ASSERT_EQ(pipetwin(command("run")).code, 0);
    const Outcome outcome = pipetwin({"profile",
                                      (folder() / "run" / "scenario.toml").string(),
                                      "--out",
                                      path("new.profile.json"),
                                      "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const auto note = outcome.json()["calibration"];
    EXPECT_GT(note["clean_steps"].get<int>() + note["dropped_steps"].get<int>(), 0);
    if (exec::allowed_cores().size() > 1) {
        EXPECT_GE(note["interference"].get<double>(), 0);
        EXPECT_GE(note["ladder"].size(), 8U);
    }
}

TEST_F(Training, RunAsJsonIsTheReport) {
    const Outcome outcome = pipetwin(command("run", {"--json", "--quiet"}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    EXPECT_EQ(outcome.out, content_of(folder() / "run" / "report.json"));
    const auto report = outcome.json();
    EXPECT_EQ(report["origin"], "measured");
    EXPECT_TRUE(report["predicted"].contains("makespan_ms"));
    EXPECT_TRUE(report["comparison"].contains("noise"));
    EXPECT_EQ(report["training"]["step"], 2);
}

/// Two ranks on one core cannot meet their prediction; the user hears it before the run.
TEST_F(Training, RunSaysThatRanksShareACore) {
    const Outcome outcome = std::async(std::launch::async, [this] {
                                exec::pin_to(exec::allowed_cores().front());
                                return pipetwin(command("run"));
                            }).get();
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err,
                HasSubstr("2 ranks share 1 core, but the prediction gives every rank a core of its "
                          "own: expect longer steps"));
}

/// Those of all replicas.
TEST_F(Training, RunSaysThatReplicasShareACore) {
    const Outcome outcome =
        std::async(std::launch::async, [this] {
            exec::pin_to(exec::allowed_cores().front());
            return pipetwin(command("run", {"--set", "pipeline.data_parallel=2"}));
        }).get();
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err,
                HasSubstr("4 ranks share 1 core, but the prediction gives every rank a core of its "
                          "own: expect longer steps"));
}

TEST_F(Training, TrainPrintsALinePerStepAndWritesTheSameToMetrics) {
    const Outcome outcome = pipetwin(command("train"));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 3);
    EXPECT_THAT(outcome.out, HasSubstr("loss"));
    std::istringstream metrics(content_of(folder() / "run" / "metrics.jsonl"));
    int steps = 0;
    for (std::string line; std::getline(metrics, line); ++steps) {
        const auto step = nlohmann::json::parse(line);
        EXPECT_EQ(step["step"], steps);
        for (const char* const key :
             {"loss", "grad_norm", "step_ms", "samples_per_second", "peak_bytes"}) {
            EXPECT_TRUE(step.contains(key)) << key;
        }
        EXPECT_EQ(step["peak_bytes"].size(), 2U);
    }
    EXPECT_EQ(steps, 3);
}

/// A stdout that sends SIGTERM to this process when the first line comes.
class SignalOnFirstLine : public std::stringbuf {
  protected:
    int sync() override {
        if (!sent_ && !str().empty()) {
            sent_ = true;
            std::raise(SIGTERM);
        }
        return 0;
    }

  private:
    bool sent_ = false;
};

TEST_F(Training, SignalEndsItAfterTheStepAndEverythingIsWritten) {
    SignalOnFirstLine buffer;
    std::ostream out(&buffer);
    std::ostringstream err;
    EXPECT_EQ(run_command_line(command("train"), out, err), 143);
    EXPECT_THAT(err.str(), HasSubstr("stopped by SIGTERM after 1 of 3 steps"));
    const std::string metrics = content_of(folder() / "run" / "metrics.jsonl");
    EXPECT_EQ(std::count(metrics.begin(), metrics.end(), '\n'), 1);
    for (const std::string_view name : run_folder_files) {
        EXPECT_TRUE(std::filesystem::exists(folder() / "run" / name)) << name;
    }
}

TEST_F(Training, TrainAsJsonIsTheLastStep) {
    const Outcome outcome = pipetwin(command("train", {"--json"}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.json()["step"], 2);
}

TEST_F(Training, UsedFolderIsRefusedAndLeftAlone) {
    ASSERT_EQ(pipetwin(command("train")).code, 0);
    const std::string metrics = content_of(folder() / "run" / "metrics.jsonl");
    const Outcome again = pipetwin(command("train"));
    EXPECT_EQ(again.code, 6);
    EXPECT_THAT(again.err, HasSubstr("--force"));
    EXPECT_EQ(content_of(folder() / "run" / "metrics.jsonl"), metrics);
    EXPECT_EQ(pipetwin(command("train", {"--force"})).code, 0);
}

TEST_F(Training, FolderInUseIsRefusedNamingTheProcess) {
    const RunFolder held(path("run"), RunFolder::Old::Refused);
    const Outcome outcome = pipetwin(command("train"));
    EXPECT_EQ(outcome.code, 6);
    EXPECT_THAT(outcome.err, HasSubstr("in use by process"));
}

TEST_F(Training, ResolvedScenarioGivesTheSameLosses) {
    ASSERT_EQ(pipetwin(command("train")).code, 0);
    const Outcome again = pipetwin({"train",
                                    (folder() / "run" / "scenario.toml").string(),
                                    "--profile",
                                    path("small.csv"),
                                    "--out",
                                    path("again")});
    ASSERT_EQ(again.code, 0) << again.err;
    const auto losses = [this](const char* name) {
        std::istringstream metrics(content_of(folder() / name / "metrics.jsonl"));
        std::vector<double> values;
        for (std::string line; std::getline(metrics, line);) {
            values.push_back(nlohmann::json::parse(line)["loss"].get<double>());
        }
        return values;
    };
    EXPECT_EQ(losses("run"), losses("again"));
}

TEST_F(Training, SeedChangesTheLosses) {
    const auto loss = [this](const std::string& seed) {
        return pipetwin(command("train", {"--json", "--force", "--seed", seed}))
            .json()["loss"]
            .get<double>();
    };
    EXPECT_EQ(loss("5"), loss("5"));
    EXPECT_NE(loss("5"), loss("6"));
}

TEST_F(Training, CompareReadsTheRunFolderAndItsTraces) {
    ASSERT_EQ(pipetwin(command("train")).code, 0);
    const Outcome whole = pipetwin({"compare", path("run"), "--json"});
    ASSERT_EQ(whole.code, 0) << whole.err;
    const auto result = whole.json();
    for (const char* const key : {"makespan_ms",
                                  "step_ms",
                                  "bubble_total",
                                  "peak_bytes",
                                  "by_action",
                                  "breakdown_ms",
                                  "noise"}) {
        EXPECT_TRUE(result.contains(key)) << key;
    }
    for (const char* const op : {"F", "B", "I", "W", "R"}) {
        EXPECT_TRUE(result["by_action"].contains(op)) << op;
    }
    EXPECT_TRUE(result["by_action"]["I"].is_null());
    EXPECT_GT(result["by_action"]["F"]["measured_ms"].get<double>(), 0);
    EXPECT_TRUE(result["breakdown_ms"]["measured"].contains("communication_wait"));
    for (const char* const side : {"predicted", "measured"}) {
        double sum = 0;
        for (const auto& part : result["breakdown_ms"][side]) {
            sum += part.get<double>();
        }
        EXPECT_NEAR(sum, result["step_ms"][side].get<double>(), 1e-9) << side;
    }
    EXPECT_TRUE(result["replay"]["error_percent"].is_number());
    const Outcome files = pipetwin(
        {"compare", path("run/predicted.trace.json"), path("run/measured.trace.json"), "--json"});
    EXPECT_EQ(files.out, whole.out);
    EXPECT_LT(result["interval"]["low"], result["step_ms"]["predicted"]);  // costs are estimated
    EXPECT_GT(result["interval"]["high"], result["step_ms"]["predicted"]);
    EXPECT_THAT(pipetwin({"compare", path("run")}).out,
                AllOf(HasSubstr("error of the predicted step: "),
                      // of so few steps, on a machine that may have others to serve
                      AnyOf(HasSubstr("The run is too short to be compared: the errors say"),
                            HasSubstr("The machine was busy: the errors say")),
                      HasSubstr("expected range of the measured step: ")));
}

// The measured trace named first once stood under "predicted".
TEST_F(Training, CompareKnowsWhichTraceIsPredicted) {
    ASSERT_EQ(pipetwin(command("train")).code, 0);
    const std::string predicted = path("run/predicted.trace.json");
    const std::string measured = path("run/measured.trace.json");
    const std::string right = pipetwin({"compare", predicted, measured, "--json"}).out;
    const Outcome turned = pipetwin({"compare", measured, predicted, "--json"});
    EXPECT_EQ(turned.out, right);
    EXPECT_THAT(turned.err, HasSubstr("compared in that order"));
    EXPECT_EQ(pipetwin({"compare", measured, path("run"), "--json"}).out, right);
    EXPECT_EQ(pipetwin({"compare", path("run"), predicted, "--json"}).out, right);
    EXPECT_THAT(pipetwin({"compare", measured, measured}).err,
                HasSubstr("both traces are measured"));
}

TEST_F(Training, CompareOfATimelineWithItselfHasNoError) {
    ASSERT_EQ(pipetwin(command("train")).code, 0);
    const std::string predicted = path("run/predicted.trace.json");
    const auto result = pipetwin({"compare", predicted, predicted, "--json"}).json();
    EXPECT_EQ(result["step_ms"]["error_percent"], 0.0);
    EXPECT_EQ(result["makespan_ms"]["error_percent"], 0.0);
}

TEST_F(Training, CompareRefusesOtherRows) {
    ASSERT_EQ(pipetwin(command("train")).code, 0);
    ASSERT_EQ(pipetwin({"simulate",
                        "--stages",
                        "2",
                        "--micro-batches",
                        "3",
                        "--forward-ms",
                        "1",
                        "--backward-ms",
                        "1",
                        "--out",
                        path("other")})
                  .code,
              0);
    const Outcome plans = pipetwin({"compare", path("other/predicted.trace.json"), path("run")});
    EXPECT_EQ(plans.code, 3);
    EXPECT_THAT(plans.err,
                HasSubstr("'pipetwin-gui " + path("other/predicted.trace.json") + ' ' +
                          path("run") + " --view side-by-side'"));
}

TEST_F(Training, MeasuredTraceHoldsThePlan) {
    ASSERT_EQ(pipetwin(command("train")).code, 0);
    const Trace predicted = read_chrome_trace(folder() / "run" / "predicted.trace.json");
    const Trace measured = read_chrome_trace(folder() / "run" / "measured.trace.json");
    EXPECT_EQ(predicted.plan_hash, measured.plan_hash);
    EXPECT_EQ(predicted.schedule, measured.schedule);
    EXPECT_EQ(predicted.samples, 8);
    EXPECT_EQ(measured.timelines.peak_bytes.size(), 2U);
    EXPECT_TRUE(measured.timelines.breakdown.has_value());
}

// --- Schedules. ---

/// The losses of all steps of the run folder.
std::vector<double> losses(const std::filesystem::path& run) {
    std::vector<double> result;
    std::istringstream lines(content_of(run / run_file::metrics));
    for (std::string line; std::getline(lines, line);) {
        result.push_back(nlohmann::json::parse(line)["loss"]);
    }
    return result;
}

TEST_F(Training, AScheduleWrittenByHandTrainsToTheLossOfGPipe) {
    ASSERT_EQ(pipetwin(command("train")).code, 0);
    const std::vector<double> gpipe = losses(folder() / "run");
    file("own.csv",
         "0F0,0F1,0B1,0F2,0B0,0F3,0B3,0B2\n"
         "1F0,1F1,1B1,1B0,1F2,1F3,1I3,1I2,1W3,1W2\n");
    const Outcome outcome =
        pipetwin(command("train", {"--force", "--set", "pipeline.schedule=\"own.csv\""}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const std::vector<double> own = losses(folder() / "run");
    ASSERT_EQ(own.size(), gpipe.size());
    for (std::size_t step = 0; step < own.size(); ++step) {
        EXPECT_NEAR(own[step], gpipe[step], 1e-6 * gpipe[step]) << "step " << step;
    }
    EXPECT_THAT(content_of(folder() / "run" / "schedule.csv"), HasSubstr("1I2"));
}

TEST_F(Training, RecomputeStageByStageTrainsToTheSameLossAndIsInTheFolder) {
    const auto run = [this](const std::string& recompute) {
        const Outcome outcome = pipetwin(
            command("run", {"--json", "--force", "--set", "pipeline.recompute=" + recompute}));
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        return outcome.json();
    };
    EXPECT_EQ(run("none")["predicted"]["recompute"], "none");
    const std::vector<double> nowhere = losses(folder() / "run");
    const auto report = run("[\"always\", \"none\"]");
    EXPECT_EQ(losses(folder() / "run"), nowhere);
    EXPECT_EQ(report["predicted"]["recompute"], (std::vector{"always", "none"}));
    EXPECT_THAT(content_of(folder() / "run" / "scenario.toml"),
                HasSubstr("recompute = [\"always\", \"none\"]"));
    const std::string rows = content_of(folder() / "run" / "schedule.csv");
    EXPECT_THAT(rows, HasSubstr("0R0"));
    EXPECT_THAT(rows, ::testing::Not(HasSubstr("1R0")));
}

TEST_F(Training, ABrokenScheduleFileIsRefusedBeforeAnythingIsMeasured) {
    file("broken.csv", "0F0,0F1,0B0,0F2,0F3,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n");
    const Outcome outcome =
        pipetwin(command("train", {"--set", "pipeline.schedule=\"broken.csv\""}));
    EXPECT_EQ(outcome.code, 4);
    EXPECT_THAT(outcome.err, HasSubstr("0B1 is missing"));
    EXPECT_FALSE(std::filesystem::exists(folder() / "run"));
}

// Two devices may take layers of 0.06 and 0.03 ms for a sample, messages are free and eight samples
// come in four micro-batches: two stages take (4 + 1) * 2 * 0.06 ms at the least, one takes 4 * 2 *
// 0.09.
TEST_F(Training, RunPlansWhatIsAuto) {
    const std::vector<std::string> open{"--set",
                                        "pipeline.stages=auto",
                                        "--set",
                                        "pipeline.schedule=auto",
                                        "--set",
                                        "pipeline.data_parallel=auto",
                                        "--set",
                                        "cluster.count=2"};
    const Outcome outcome = pipetwin(command("run", open));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("planned: 2 stages, 4 micro-batches of 2 samples"));
    EXPECT_THAT(outcome.err, HasSubstr("proven to be the fastest of"));
    const std::string settled = content_of(folder() / "run" / "scenario.toml");
    EXPECT_THAT(settled, HasSubstr("stages = 2"));
    EXPECT_THAT(settled, HasSubstr("partition = [1, 1]"));
    EXPECT_THAT(settled, HasSubstr("data_parallel = 1"));  // more cannot be trained here
    const auto search = nlohmann::json::parse(content_of(folder() / "run" / "search.json"));
    const auto report = nlohmann::json::parse(content_of(folder() / "run" / "report.json"));
    EXPECT_EQ(search["best"]["step_ms"], report["predicted"]["step_ms"]);
    EXPECT_EQ(search["best"]["stages"], 2);
}

TEST_F(Training, RunMeasuresWhatThePlanMayNeed) {
    std::string text(small_scenario);
    text.replace(text.find("micro_batches = 4"), 17, "micro_batches = \"auto\"");
    const Outcome outcome = pipetwin({"run", file("open.toml", text), "--out", path("open")});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("planned: 2 stages"));
    EXPECT_TRUE(std::filesystem::exists(folder() / "open" / "search.json"));
}

TEST_F(Training, ProfileMeasuresWhatThePlanMayNeed) {
    std::string text(small_scenario);
    text.replace(text.find("micro_batches = 4"), 17, "micro_batches = \"auto\"");
    const std::string scenario = file("open.toml", text);
    const std::string costs = path("costs.json");
    const Outcome before = pipetwin({"plan", scenario, "--set", "cluster.count=2"});
    EXPECT_EQ(before.code, 3);
    EXPECT_THAT(before.err, HasSubstr("run 'pipetwin profile"));
    const Outcome outcome = pipetwin({"profile", scenario, "--out", costs});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const auto profile = nlohmann::json::parse(content_of(costs));
    EXPECT_GT(profile["layers"][0]["samples"].size(), 1U);  // micro-batches of several sizes
    const Outcome planned =
        pipetwin({"plan", scenario, "--profile", costs, "--set", "cluster.count=2"});
    EXPECT_EQ(planned.code, 0) << planned.err;
}

/// Averages of weights are those of all replicas, so none of them has a share alone.
TEST_F(Training, PlansWithAveragesDivideNothingAmongReplicas) {
    const std::string costs = path("costs.json");
    const std::string scenario = file("small.toml", small_scenario);
    ASSERT_EQ(pipetwin({"profile", scenario, "--out", costs}).code, 0);
    const auto shards = [&](const std::string& decay) {
        const Outcome outcome = pipetwin({"plan",
                                          scenario,
                                          "--json",
                                          "--profile",
                                          costs,
                                          "--set",
                                          "training.average_decay=" + decay,
                                          "--set",
                                          "pipeline.shard=auto",
                                          "--set",
                                          "pipeline.data_parallel=2",
                                          "--set",
                                          "pipeline.micro_batches=2"});
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        std::set<std::string> found;
        const auto json = outcome.json();
        for (const auto& candidate : json["candidates"]) {
            found.insert(candidate["shard"].get<std::string>());
        }
        return found;
    };
    EXPECT_THAT(shards("0"), Contains("optimizer"));
    EXPECT_THAT(shards("0.9"), ElementsAre("none"));
}

TEST_F(Training, TrainRefusesWhatIsNotPlanned) {
    const Outcome outcome = pipetwin(command("train", {"--set", "pipeline.schedule=auto"}));
    EXPECT_EQ(outcome.code, 3);
    EXPECT_THAT(outcome.err, HasSubstr("has to be planned first for pipeline.schedule"));
    EXPECT_FALSE(std::filesystem::exists(folder() / "run"));
}

TEST_F(Training, RunSaysWhatIsMissingWhereNoPlanFits) {
    const Outcome outcome = pipetwin(command(
        "run", {"--set", "pipeline.schedule=auto", "--set", "cluster.memory_limit=\"100 B\""}));
    EXPECT_EQ(outcome.code, 4);
    EXPECT_THAT(outcome.err, HasSubstr("can be run"));
}

TEST_F(Training, WhatCannotTrainIsRefusedBeforeAnythingIsMeasured) {
    for (const char* const schedule : {"pipedream", "pipedream-2bw", "forward-only"}) {
        const Outcome outcome =
            pipetwin(command("train", {"--set", std::string("pipeline.schedule=") + schedule}));
        EXPECT_EQ(outcome.code, 4) << schedule;
        EXPECT_THAT(outcome.err, HasSubstr("pipetwin simulate"));
        EXPECT_FALSE(std::filesystem::exists(folder() / "run"));
    }
}

// Where devices are emulated, so is their link to host memory.
TEST_F(Training, OffloadsStashesOfDevicesThatHaveMemoryOfTheirOwn) {
    const std::vector<std::string> paced{"--force", "--set", "cluster.backend=paced"};
    const auto loss = [this](const std::vector<std::string>& more) {
        const Outcome outcome = pipetwin(command("run", more));
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        EXPECT_THAT(outcome.out, ContainsRegex("predicted +emulated +error"));
        const std::string metrics = content_of(folder() / "run" / "metrics.jsonl");
        return nlohmann::json::parse(metrics.substr(0, metrics.find('\n')))["loss"].get<double>();
    };
    const double expected = loss(paced);
    std::vector<std::string> offloaded = paced;
    offloaded.insert(offloaded.end(),
                     {"--set", "pipeline.offload=stash", "--set", "cluster.host_link=pcie-4"});
    EXPECT_EQ(loss(offloaded), expected);
    for (const std::string_view trace : {run_file::predicted, run_file::measured}) {
        EXPECT_THAT(content_of(folder() / "run" / trace), HasSubstr("\"cat\":\"host\"")) << trace;
    }
}

TEST_F(Training, ACpuHasNothingToOffload) {
    for (const char* const verb : {"train", "run"}) {
        const Outcome outcome = pipetwin(command(
            verb, {"--set", "pipeline.offload=stash", "--set", "cluster.host_link=pcie-4"}));
        EXPECT_EQ(outcome.code, 4) << verb;
        EXPECT_THAT(outcome.err, HasSubstr("error: --set pipeline.offload=\"stash\": "));
        EXPECT_THAT(outcome.err, HasSubstr("set pipeline.offload = \"none\""));
        EXPECT_FALSE(std::filesystem::exists(folder() / "run"));
    }
}

TEST_F(Training, WeightGradientsThatArePutOffTrainToTheSameLoss) {
    const std::vector<std::string> one_f_one_b{"--force", "--set", "pipeline.schedule=1f1b"};
    ASSERT_EQ(pipetwin(command("train", one_f_one_b)).code, 0);
    const std::vector<double> plain = losses(folder() / "run");
    std::vector<std::string> deferred = one_f_one_b;
    deferred.insert(deferred.end(), {"--set", "pipeline.deferred_weights=2"});
    ASSERT_EQ(pipetwin(command("train", deferred)).code, 0);
    EXPECT_EQ(losses(folder() / "run"), plain);
    EXPECT_THAT(content_of(folder() / "run" / "schedule.csv"), HasSubstr("0W3"));
}

}  // namespace training_test
}  // namespace pipetwin::cli

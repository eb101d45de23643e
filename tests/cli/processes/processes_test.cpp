// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "cli/run_folder/run_folder.h"
#include "core/artifacts/chrome_trace.h"
#include "core/costs/profile_json.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/scenario/settled_scenario.h"
#include "core/schedule/edge.h"
#include "tests/cli/processes/several_processes.h"
#include "tests/cli/support.h"
#include "tests/support/published_models.h"

namespace pipetwin::cli {
namespace processes_test {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

struct Grid {
    int stages = 2;
    int replicas = 1;
    std::vector<std::string> more{};
    int devices = 1;  ///< of a rank
};
void PrintTo(const Grid& grid, std::ostream* out) {
    *out << "K=" << grid.stages << " D=" << grid.replicas << " T=" << grid.devices;
    for (const std::string& word : grid.more) {
        *out << ' ' << word;
    }
}

class SameBits : public SeveralProcesses, public ::testing::WithParamInterface<Grid> {};

TEST_P(SameBits, AsThreadsOfOneProcess) {
    const Grid& grid = GetParam();
    const std::vector<std::string> settings =
        joined({"--set",
                "pipeline.stages=" + std::to_string(grid.stages),
                "--set",
                "pipeline.data_parallel=" + std::to_string(grid.replicas),
                "--set",
                "pipeline.tensor_parallel=" + std::to_string(grid.devices),
                "--set",
                fmt::format("model.vocabulary={}", grid.devices > 1 ? 12 : 11)},
               joined(grid.more, even_partition(grid.stages, grid.more)));
    train_in_threads(settings);
    const Outcome outcome =
        run(launch(grid.stages * grid.replicas * grid.devices, "processes", settings));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(series("processes"), series("threads"));
    EXPECT_TRUE(checkpoint("processes") == checkpoint("threads"));
    EXPECT_THAT(outcome.out, HasSubstr("step     3"));
}

INSTANTIATE_TEST_SUITE_P(
    SeveralProcesses,
    SameBits,
    ::testing::Values(
        Grid{.stages = 2},
        Grid{.stages = 4},
        Grid{.stages = 2, .replicas = 2},
        Grid{.stages = 4, .replicas = 2},
        Grid{.stages = 2, .more = {"--set", "model.tied=true", "--set", "training.clip_norm=0.5"}},
        Grid{.stages = 2,
             .replicas = 2,
             .more = {"--set", "pipeline.overlap_reduction=true", "--set", "model.tied=true"}},
        Grid{.stages = 2,
             .replicas = 2,
             .more = {"--set",
                      "pipeline.shard_optimizer=true",
                      "--set",
                      "model.tied=true",
                      "--set",
                      "training.clip_norm=0.5",
                      "--set",
                      "training.precision=bf16"}},
        Grid{.stages = 2,
             .replicas = 2,
             .more = {"--set",
                      "pipeline.shard=weights",
                      "--set",
                      "pipeline.schedule=zb-h1",
                      "--set",
                      "model.tied=true",
                      "--set",
                      "training.clip_norm=0.5"}},
        Grid{.stages = 1,
             .replicas = 4,
             .more = {"--set", "pipeline.shard=gradients", "--set", "pipeline.shard_group=2"}},
        Grid{.stages = 1,
             .replicas = 2,
             .more = {"--set",
                      "pipeline.shard=weights",
                      "--set",
                      "pipeline.sequence_parallel=true",
                      "--set",
                      "training.validate_every=2",
                      "--set",
                      "data.validation=0.5",
                      "--set",
                      "training.precision=bf16"},
             .devices = 2},
        Grid{.stages = 2, .more = {"--set", "pipeline.schedule=chimera"}},
        Grid{.stages = 1, .devices = 2},
        Grid{.stages = 2,
             .more = {"--set", "pipeline.sequence_parallel=true", "--set", "model.dropout=0.1"},
             .devices = 2},
        Grid{.stages = 2,
             .more = {"--set",
                      "pipeline.schedule=zb-h1",
                      "--set",
                      "model.tied=true",
                      "--set",
                      "training.clip_norm=0.5"},
             .devices = 2},
        Grid{.stages = 2,
             .replicas = 2,
             .more = {"--set",
                      "pipeline.shard_optimizer=true",
                      "--set",
                      "training.accuracy=true",
                      "--set",
                      "training.validate_every=2",
                      "--set",
                      "data.validation=0.5",
                      "--set",
                      "training.precision=bf16"},
             .devices = 2},
        Grid{.stages = 2,
             .more = {"--set",
                      "pipeline.schedule=interleaved-1f1b",
                      "--set",
                      "pipeline.chunks=2",
                      "--set",
                      "training.precision=bf16"}},
        Grid{.stages = 2,
             .more = {"--set",
                      "pipeline.schedule=gpipe",
                      "--set",
                      "pipeline.channel_capacity=0",
                      "--set",
                      "training.validate_every=2",
                      "--set",
                      "data.validation=0.5",
                      "--set",
                      "pipeline.recompute=always"}},
        Grid{.stages = 4, .more = {"--set", "pipeline.schedule=zb-h1"}},
        Grid{.stages = 2,
             .replicas = 2,
             .more = {"--set",
                      "training.accuracy=true",
                      "--set",
                      "training.average_decay=0.9",
                      "--set",
                      "training.validate_every=2",
                      "--set",
                      "data.validation=0.5",
                      "--set",
                      "training.precision=bf16"}},
        Grid{.stages = 2,
             .replicas = 2,
             .more = {"--set",
                      "pipeline.schedule=zb-v",
                      "--set",
                      "pipeline.chunks=2",
                      "--set",
                      "training.precision=bf16"}}));

class SameBitsOfSkips : public SeveralProcesses,
                        public ::testing::WithParamInterface<std::vector<std::string>> {};

TEST_P(SameBitsOfSkips, AsThreadsOfOneProcess) {
    scenario_ = skips;
    train_in_threads(GetParam());
    const Outcome outcome = run(launch(3, "processes", GetParam()));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(series("processes"), series("threads"));
    EXPECT_TRUE(checkpoint("processes") == checkpoint("threads"));
    EXPECT_THAT(content_of(folder() / "processes" / run_file::schedule), HasSubstr("SEND_F0>2"));
}

INSTANTIATE_TEST_SUITE_P(
    SeveralProcesses,
    SameBitsOfSkips,
    ::testing::Values(std::vector<std::string>{},
                      std::vector<std::string>{
                          "--set", "pipeline.schedule=zb-h1", "--set", "training.precision=bf16"},
                      std::vector<std::string>{"--set",
                                               "pipeline.schedule=gpipe",
                                               "--set",
                                               "pipeline.channel_capacity=0",
                                               "--set",
                                               "pipeline.recompute=always"}));

class SameBitsOfALlama : public SeveralProcesses,
                         public ::testing::WithParamInterface<std::vector<std::string>> {};

TEST_P(SameBitsOfALlama, AsThreadsOfOneProcess) {
    scenario_ = llama;
    train_in_threads(GetParam());
    const Outcome outcome = run(launch(3, "processes", GetParam()));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(series("processes"), series("threads"));
    EXPECT_TRUE(checkpoint("processes") == checkpoint("threads"));
}

INSTANTIATE_TEST_SUITE_P(
    SeveralProcesses,
    SameBitsOfALlama,
    ::testing::Values(std::vector<std::string>{"--set", "model.tied=true"},
                      std::vector<std::string>{
                          "--set", "pipeline.schedule=zb-h1", "--set", "training.precision=bf16"},
                      std::vector<std::string>{"--set",
                                               "pipeline.schedule=gpipe",
                                               "--set",
                                               "pipeline.channel_capacity=0",
                                               "--set",
                                               "pipeline.recompute=always"}));

class SameBitsOfNorms : public SeveralProcesses, public ::testing::WithParamInterface<Grid> {};

/// Running statistics are those of all replicas, and of both copies of a stage: what their norms
/// have seen goes from process to process. Validations read them.
TEST_P(SameBitsOfNorms, AsThreadsOfOneProcess) {
    scenario_ = norms;
    const Grid& grid = GetParam();
    const std::vector<std::string> settings =
        joined({"--set",
                "pipeline.data_parallel=" + std::to_string(grid.replicas),
                "--set",
                "training.validate_every=2",
                "--set",
                "data.validation=0.5"},
               grid.more);
    train_in_threads(settings);
    const Outcome outcome = run(launch(grid.stages * grid.replicas, "processes", settings));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(series("processes"), series("threads"));
    EXPECT_TRUE(checkpoint("processes") == checkpoint("threads"));
}

INSTANTIATE_TEST_SUITE_P(SeveralProcesses,
                         SameBitsOfNorms,
                         ::testing::Values(Grid{.stages = 2, .replicas = 2},
                                           Grid{.stages = 2,
                                                .replicas = 2,
                                                .more = {"--set", "pipeline.shard_optimizer=true"}},
                                           Grid{.stages = 2,
                                                .more = {"--set", "pipeline.schedule=chimera"}}));

TEST_F(SeveralProcesses, BeginWithPublishedWeightsAsThreadsDo) {
    const tests::Gpt2Sizes sizes{.layers = 4, .words = 11, .inner = 64};
    tests::write_published(
        folder() / "published", tests::gpt2_tensors("BF16", sizes), tests::gpt2_config(sizes));
    const std::vector<std::string> settings{"--weights",
                                            path("published"),
                                            "--set",
                                            "model.tied=true",
                                            "--set",
                                            "training.precision=bf16",
                                            "--set",
                                            "pipeline.data_parallel=2",
                                            "--set",
                                            "pipeline.shard_optimizer=true"};
    train_in_threads(settings);
    const Outcome outcome = run(launch(4, "processes", settings));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(series("processes"), series("threads"));
    EXPECT_TRUE(checkpoint("processes") == checkpoint("threads"));
    // A folder that does not fit ends all of them.
    std::filesystem::remove(folder() / "published/model.safetensors");
    const Outcome refused = run(launch(2, "refused", {"--weights", path("published")}));
    EXPECT_EQ(refused.code, 3);
    EXPECT_THAT(refused.err, HasSubstr("neither model.safetensors nor"));
}

TEST_F(SeveralProcesses, GoOnFromACheckpointAsIfNothingHadHappened) {
    train_in_threads();
    ASSERT_EQ(run(launch(2, "parts", {"--set", "training.steps=2"})).code, 0);
    const Outcome outcome = run(launch(2, "parts", {"--resume"}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("continues with step 2"));
    EXPECT_EQ(series("parts"), series("threads"));
    EXPECT_TRUE(checkpoint("parts") == checkpoint("threads"));

    const Outcome again = run(launch(2, "parts", {"--resume"}));
    EXPECT_EQ(again.code, 0);
    EXPECT_THAT(again.err, HasSubstr("nothing is left to train"));
}

TEST_F(SeveralProcesses, MustBeAsManyAsRanks) {
    const Outcome outcome = run(launch(3, "run"));
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.err,
              "error: --ranks: 3 processes, expected 2: pipeline.stages = 2\n"
              "hint: start 2 processes, or change the scenario\n");
    EXPECT_FALSE(std::filesystem::exists(path("run")));
}

TEST_F(SeveralProcesses, ThatTorchrunStartsNeedToKnowWhereToMeet) {
    const std::vector<std::string> train{
        program.string(), "train", file("gpt.toml", gpt), "--out", path("run")};
    const Outcome nowhere = run(train, {"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0"});
    EXPECT_EQ(nowhere.code, 2);
    EXPECT_THAT(nowhere.err, HasSubstr("MASTER_ADDR"));
    const std::vector<std::string> complete{
        "RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "MASTER_ADDR=localhost", "MASTER_PORT=29500"};
    const Outcome on_cpus = run(train, complete);
    EXPECT_EQ(on_cpus.code, 5);
    EXPECT_THAT(on_cpus.err, HasSubstr("mpirun"));
}

TEST_F(SeveralProcesses, WithDifferentScenariosNameWhatDiffers) {
    train_in_threads();
    std::string other(gpt);
    other.replace(other.find("steps = 4"), 9, "steps = 5");
    std::ofstream(path("other.toml")) << other;
    std::ofstream(path("each.sh"))
        << "#!/bin/sh\n"
           "case $OMPI_COMM_WORLD_RANK in 1) f=other.toml;; *) "
           "f=gpt.toml;; esac\n"
           "exec "
        << program.string() << " train " << folder().string() << "/$f --profile "
        << path("threads/profile.json") << " --out " << path("run") << "\n";
    const Outcome outcome = run({"mpirun",
                                 "--allow-run-as-root",
                                 "--oversubscribe",
                                 "--quiet",
                                 "-n",
                                 "2",
                                 "sh",
                                 path("each.sh")});
    EXPECT_EQ(outcome.code, 10);
    EXPECT_THAT(outcome.err,
                HasSubstr("error: scenario: the processes do not have the same: [training] steps = "
                          "4 in process 0; steps = 5 in process 1\n"));
}

TEST_F(SeveralProcesses, SayWhereTheModuleComesFromWhereItIsMissing) {
    std::filesystem::create_directory(path("alone"));
    std::filesystem::create_symlink(program, path("alone/link"));
    std::filesystem::copy_file(program, path("alone/pipetwin"));
    std::vector<std::string> words = launch(2, "run");
    words.front() = path("alone/pipetwin");
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 5);
    EXPECT_THAT(outcome.err, HasSubstr("pipetwin_mpi.so"));
    EXPECT_THAT(outcome.err, HasSubstr("apt-get install"));
}

TEST_F(SeveralProcesses, EndTogetherWithTheFirstFailure) {
    train_in_threads();
    const Outcome outcome = run(launch(4,
                                       "run",
                                       {"--set",
                                        "pipeline.data_parallel=2",
                                        "--set",
                                        "training.learning_rate=1e6",
                                        "--set",
                                        "training.optimizer=sgd",
                                        "--set",
                                        "training.steps=50"}));
    EXPECT_EQ(outcome.code, 9) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("rank 1, step "));
    // One process speaks for all.
    EXPECT_EQ(outcome.err.find("error:"), outcome.err.rfind("error:"));
}

/// Long enough to be stopped in the middle.
const std::vector<std::string> endless{"--set", "training.steps=1000000"};

class StoppedProcesses : public SeveralProcesses {
  protected:
    /// Starts a training and waits until it trains.
    pid_t start_training(const std::vector<std::string>& more = {}) const {
        train_in_threads(more);
        const pid_t child = start(launch(2, "run", joined(endless, more)));
        const auto begin = Clock::now();
        while (content_of(path("out.log")).find("step     9") == std::string::npos &&
               Clock::now() - begin < std::chrono::seconds(60)) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        return child;
    }
};

TEST_F(StoppedProcesses, FinishTheStepAndWriteEverythingWhenTold) {
    const pid_t child = start_training();
    kill(child, SIGTERM);
    const Outcome outcome = end(child);
    EXPECT_EQ(outcome.code, 143) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("stopped by SIGTERM after"));
    EXPECT_TRUE(std::filesystem::exists(folder() / "run" / run_file::report_json));
    EXPECT_TRUE(processes().empty());
}

TEST_F(StoppedProcesses, FinishTheStepAndWriteEverythingWhenTheTerminalIsClosed) {
    const pid_t child = start_training();
    kill(child, SIGHUP);
    const Outcome outcome = end(child);
    EXPECT_EQ(outcome.code, 129) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("stopped by SIGHUP after"));
    EXPECT_TRUE(std::filesystem::exists(folder() / "run" / run_file::report_json));
    EXPECT_TRUE(processes().empty());
}

TEST_F(SeveralProcesses, StopAfterACheckpointWhereDataHaveBecomeShorter) {
    file("costs.csv",
         "name,forward_ms,backward_ms,output_bytes,saved_bytes,parameter_bytes\n"
         "embedding,0.01,0.02,64,64,3456\nblock0.attention,0.01,0.02,64,64,1216\n"
         "block0.feed_forward,0.01,0.02,64,64,2272\nhead,0.01,0.02,0,64,3664\n");
    file("tokens.bin", std::string(80'000, '\0'));
    file("tokens.toml",
         "[model]\nkind = \"gpt\"\nlayers = 1\nd_model = 8\nheads = 1\ncontext = 8\n"
         "vocabulary = 100\n[data]\nkind = \"tokens\"\npath = \"tokens.bin\"\n"
         "[training]\nbatch = 4\nsteps = 10000000\n"
         "[pipeline]\nstages = 2\npartition = [2, 2]\nmicro_batches = 2\n");
    const pid_t child = start({program.string(),
                               "launch",
                               "--ranks",
                               "2",
                               path("tokens.toml"),
                               "--profile",
                               path("costs.csv"),
                               "--out",
                               path("run")});
    ASSERT_TRUE(has_lines(folder() / "run" / run_file::metrics, 3));
    std::filesystem::resize_file(path("tokens.bin"), 20'000);
    const Outcome outcome = end(child);
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("the file ends here, but had 80000 bytes"));
    const std::string metrics = content_of(folder() / "run" / run_file::metrics);
    const auto steps = std::ranges::count(metrics, '\n');
    EXPECT_TRUE(std::filesystem::exists(folder() / "run" / run_file::checkpoints /
                                        fmt::format("step-{:08}", steps)));
}

TEST_F(StoppedProcesses, AllEndSoonAfterOneWasKilled) {
    const pid_t child = start_training();
    const std::vector<pid_t> all = processes();
    ASSERT_EQ(all.size(), 2U);
    const auto begin = Clock::now();
    kill(all.back(), SIGKILL);
    const Outcome outcome = end(child);
    EXPECT_EQ(outcome.code, 7);
    EXPECT_THAT(
        outcome.err,
        AllOf(HasSubstr("error: launch: process "),
              HasSubstr(fmt::format(", pid {}) was ended by signal 9 (Killed)", all.back()))));
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
    EXPECT_TRUE(processes().empty());
}

TEST_F(StoppedProcesses, ARankThatStandsStillIsFoundByItsSilence) {
    const pid_t child = start_training();
    const std::vector<pid_t> all = processes();
    ASSERT_EQ(all.size(), 2U);
    // Which of them has rank 1 stands in its own record.
    const std::string record = content_of(folder() / "run" / run_file::flight / "process-0001.txt");
    const bool first = record.find(fmt::format("pid {} ", all.front())) != std::string::npos;
    const pid_t culprit = first ? all.front() : all.back();
    const auto begin = Clock::now();
    kill(culprit, SIGSTOP);
    const Outcome outcome = end(child);
    EXPECT_EQ(outcome.code, 8);
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(30));
    EXPECT_THAT(outcome.err, HasSubstr(fmt::format("process 1 (rank 1, pid {} on ", culprit)));
    EXPECT_THAT(outcome.err, HasSubstr("has not been heard of"));
    EXPECT_TRUE(processes().empty());
    EXPECT_THAT(content_of(folder() / "run" / run_file::flight / "process-0000.txt"),
                HasSubstr("ends with a failure"));
}

/// The other device says in which collective it waits, at which layer, and for whom.
TEST_F(StoppedProcesses, ADeviceThatStandsStillIsFoundByItsSilence) {
    const pid_t child = start_training(joined({"--set",
                                               "pipeline.stages=1",
                                               "--set",
                                               "pipeline.tensor_parallel=2",
                                               "--set",
                                               "model.vocabulary=12",
                                               "--set",
                                               "training.batch=1024",
                                               "--set",
                                               "training.validate_every=0",
                                               "--set",
                                               "output.checkpoint_every=0"},
                                              even_partition(1)));
    const std::vector<pid_t> all = processes();
    ASSERT_EQ(all.size(), 2U);
    const std::string record = content_of(folder() / "run" / run_file::flight / "process-0001.txt");
    const bool first = record.find(fmt::format("pid {} ", all.front())) != std::string::npos;
    const pid_t culprit = first ? all.front() : all.back();
    // The process has to stop within a forward or backward: between two steps the other device
    // waits in no collective.
    const auto is_in_a_pass = [this] {
        const std::string text =
            content_of(folder() / "run" / run_file::flight / "process-0001.txt");
        const std::size_t newest = text.find("\n> ");
        const std::string line = newest == std::string::npos
                                     ? ""
                                     : text.substr(newest, text.find('\n', newest + 1) - newest);
        return line.find(" 0F0") != std::string::npos || line.find(" 0B0") != std::string::npos;
    };
    kill(culprit, SIGSTOP);
    for (int i = 0; i < 1000 && !is_in_a_pass(); ++i) {
        kill(culprit, SIGCONT);
        std::this_thread::sleep_for(std::chrono::milliseconds(1 + i % 7));
        kill(culprit, SIGSTOP);
    }
    ASSERT_TRUE(is_in_a_pass());
    const Outcome outcome = end(child);
    EXPECT_EQ(outcome.code, 8);
    EXPECT_THAT(
        outcome.err,
        AllOf(HasSubstr(fmt::format("process 1 (rank 0, device 1, pid {} on ", culprit)),
              HasSubstr("has not been heard of"),
              ::testing::ContainsRegex("process 0 \\(rank 0, device 0, pid [^\n]*waits in the "
                                       "[a-z-]+( of layer '[a-z0-9_.]+')? among devices 0-1 of the "
                                       "rank: device 1 has not come")));
    EXPECT_TRUE(processes().empty());
}

TEST_F(StoppedProcesses, WhatWasKilledGoesOnAsIfNothingHadHappened) {
    train_in_threads({"--set", "training.steps=40"});
    const pid_t child = start(launch(2, "run", {"--set", "training.steps=40"}));
    const auto checkpoint = folder() / "run" / run_file::checkpoints / "step-00000002";
    while (!std::filesystem::exists(checkpoint) && waitpid(child, nullptr, WNOHANG) == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    for (const pid_t process : processes()) {
        kill(process, SIGKILL);
    }
    waitpid(child, nullptr, 0);
    const Outcome outcome = run(launch(2, "run", {"--set", "training.steps=40", "--resume"}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(series("run"), series("threads"));
}

/// Two hosts on this machine: network namespaces that a shaped link connects.
class TwoHosts : public SeveralProcesses {
  protected:
    void SetUp() override {
        SeveralProcesses::SetUp();
        if (IsSkipped()) {
            return;
        }
        if (geteuid() != 0) {
            GTEST_SKIP() << "namespaces need root";
        }
        std::ofstream(path("up.sh"))
            << "set -e\n"
               "ip netns add $1a; ip netns add $1b\n"
               "ip link add v$1a netns $1a type veth peer name v$1b netns $1b\n"
               "ip -n $1a addr add 10.77.$2.1/24 dev v$1a\n"
               "ip -n $1b addr add 10.77.$2.2/24 dev v$1b\n"
               "for n in $1a $1b; do ip -n $n link set lo up; ip -n $n link "
               "set v$n up; ip netns exec $n tc qdisc add dev v$n root tbf "
               "rate 1gbit burst 64kb latency 400ms; done\n";
        if (shell("sh " + path("up.sh") + " " + name_ + " " + net_) != 0) {
            shell_down();
            GTEST_SKIP() << "no network namespaces here (iproute2, CAP_NET_ADMIN)";
        }
        // What mpirun takes for ssh: `agent HOST COMMAND...`. That host has been up for 5000 s
        // more.
        std::ofstream(path("agent"))
            << "#!/bin/sh\nshift\n"
               "clock=\"--fork --time --monotonic 5000 --boottime 5000\"\n"
               "unshare $clock true 2>/dev/null || clock=\n"
               "exec ip netns exec "
            << name_ << "b unshare --uts $clock sh -c \"hostname " << name_ << "b; $*\"\n";
        std::filesystem::permissions(path("agent"), std::filesystem::perms::owner_all);
    }
    void TearDown() override { shell_down(); }

    int shell(const std::string& command) const {
        return std::system((command + " >" + path("shell.log") + " 2>&1").c_str());
    }

    void shell_down() const {
        for (const char* const host : {"a", "b"}) {
            shell("ip netns pids " + name_ + host + " | xargs -r kill -KILL");  // mpirun's daemon
            shell("ip netns del " + name_ + host);
        }
    }

    void shape(const std::string& rate) const {
        for (const char* const host : {"a", "b"}) {
            const std::string name = name_ + host;
            ASSERT_EQ(shell("ip netns exec " + name + " tc qdisc change dev v" + name +
                            " root tbf rate " + rate + " burst 64kb latency 400ms"),
                      0)
                << content_of(path("shell.log"));
        }
    }

    /// As many processes on each host.
    std::vector<std::string> train(const std::vector<std::string>& more, int of_each = 1) const {
        const std::string subnet = "10.77." + net_ + ".0/24";
        std::string words = fmt::format(
            "hostname {0}a; exec mpirun --quiet --allow-run-as-root --mca plm_rsh_agent "
            "{1} -host {0}a:{8},10.77.{2}.2:{8} -n {9} --bind-to none --mca pml ob1 --mca btl "
            "self,tcp --mca btl_tcp_if_include {3} --mca oob_tcp_if_include {3} {4} train "
            "{5} --profile {6} --out {7}",
            name_,
            path("agent"),
            net_,
            subnet,
            program.string(),
            file("gpt.toml", gpt),
            path("threads/profile.json"),
            path("hosts"),
            of_each,
            2 * of_each);
        for (const std::string& word : more) {
            words += " " + word;
        }
        return {"ip", "netns", "exec", name_ + "a", "unshare", "--uts", "sh", "-c", words};
    }

    const std::string net_ = std::to_string(getpid() % 250);
    const std::string name_ = "pt" + std::to_string(getpid() % 100000);
};

TEST_F(TwoHosts, GiveTheBitsOfThreads) {
    train_in_threads();
    const Outcome outcome = run(train({}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(series("hosts"), series("threads"));
    EXPECT_TRUE(checkpoint("hosts") == checkpoint("threads"));
    // On one clock, though theirs differ: no message came before it was sent, or hours later. The
    // error of a clock is at most half of a round trip, which takes a busy machine a millisecond.
    const std::chrono::milliseconds half_round_trip{1};
    const Trace trace = read_chrome_trace(folder() / "hosts" / run_file::measured);
    for (const Timeline& step : trace.timelines.steps) {
        EXPECT_LT(step_time(step), std::chrono::seconds(10));
        std::map<std::pair<int, int>, Duration> sent;  // of edge and micro-batch
        for (const auto& row : step.ranks) {
            for (const Span& span : row) {
                if (is_send(span.action.op)) {
                    sent[{edge_of(trace.schedule, span.action), span.action.micro_batch}] =
                        span.begin;
                }
            }
        }
        for (const auto& row : step.ranks) {
            for (const Span& span : row) {
                if (is_receive(span.action.op)) {
                    EXPECT_GT(
                        span.end + half_round_trip,
                        sent.at({edge_of(trace.schedule, span.action), span.action.micro_batch}));
                }
            }
        }
    }
}

/// Ranks 1 and 2 of four talk over a cable, the others over the memory of their host. The cable is
/// so slow that the memory is faster however busy the machine is.
TEST_F(TwoHosts, ArePlannedWithTheLinksThatTheyHave) {
    shape("200mbit");
    const std::vector<std::string> four = joined({"--set", "pipeline.stages=4"}, even_partition(4));
    train_in_threads(four);
    const Outcome outcome = run(train(four, 2));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Profile profile = read_profile(path("hosts/profile.json"));
    ASSERT_EQ(profile.links.size(), 2U);
    EXPECT_EQ(profile.links[0].between, "ranks");
    EXPECT_EQ(profile.links[1].between, "nodes");
    EXPECT_LT(profile.links[1].bytes_per_second, 30e6);
    EXPECT_GT(profile.links[0].bytes_per_second, profile.links[1].bytes_per_second);
    const SettledScenario scenario = settle(read_scenario(path("hosts/scenario.toml")));
    EXPECT_EQ(scenario.cluster.placement, Placement::Written);
    EXPECT_EQ(scenario.cluster.nodes, (std::vector<int>{0, 0, 1, 1}));
    const Plan plan = make_plan(scenario, scenario_model(scenario), profile);
    EXPECT_EQ(plan->links[0], profile.links[0]);
    EXPECT_EQ(plan->links[1], profile.links[1]);
    EXPECT_EQ(plan->links[2], profile.links[0]);
    EXPECT_EQ(series("hosts"), series("threads"));
}

/// Each side finds the other silent. What mpirun itself does then is its own affair, so it is
/// ended.
TEST_F(TwoHosts, AreBothToldThatTheNetworkBetweenThemIsCut) {
    train_in_threads();
    const pid_t child = start(train(endless));
    const auto wait_until = [](const auto& done, std::chrono::seconds patience) {
        const auto begin = Clock::now();
        while (!done() && Clock::now() - begin < patience) {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
        return done();
    };
    const auto record = [this](int process) {
        return content_of(folder() / "hosts" / run_file::flight /
                          fmt::format("process-000{}.txt", process));
    };
    ASSERT_TRUE(wait_until(
        [&] { return content_of(path("out.log")).find("step     9") != std::string::npos; },
        std::chrono::seconds(60)))
        << content_of(path("err.log"));
    ASSERT_EQ(shell("ip -n " + name_ + "b link set v" + name_ + "b down"), 0);
    const bool both = wait_until(
        [&] {
            return record(0).find("ends with") != std::string::npos &&
                   record(1).find("ends with") != std::string::npos;
        },
        std::chrono::seconds(30));
    kill(child, SIGKILL);
    end(child);
    EXPECT_TRUE(both);
    EXPECT_THAT(record(0), HasSubstr("process 1 (rank 1, pid"));
    EXPECT_THAT(record(1), HasSubstr("process 0 (rank 0, pid"));
}

}  // namespace processes_test
}  // namespace pipetwin::cli

// SPDX-License-Identifier: Apache-2.0
#include "tests/cli/processes/gpu_processes.h"

#include <chrono>
#include <csignal>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/costs/profile_json.h"

/// ... which reach each other by MPI for all but what crosses a boundary.
namespace pipetwin::cli {
namespace gpu_processes_test {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

class SameBitsOfGpus : public GpuProcesses,
                       public ::testing::WithParamInterface<PipelineSettings> {};

/// What NCCL carries, in the order in which the plan's rows have it, is what threads hand over.
TEST_P(SameBitsOfGpus, AsOneProcess) {
    const std::vector<std::string> settings = GetParam().words();
    train_in_one_process(settings);
    const Outcome outcome =
        run(launch(GetParam().stages, "processes", settings), gpus(GetParam().stages));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(series("processes"), series("one"));
    EXPECT_TRUE(checkpoint("processes") == checkpoint("one"));
    const Profile profile = read_profile(path("processes/profile.json"));
    EXPECT_EQ(profile.links.at(0).between, "ranks");  // measured from GPU to GPU
    EXPECT_GT(profile.links.at(0).bytes_per_second, 0);
}

INSTANTIATE_TEST_SUITE_P(
    GpuProcesses,
    SameBitsOfGpus,
    ::testing::Values(
        PipelineSettings{.stages = 2},
        PipelineSettings{.stages = 4, .more = {"--set", "training.precision=bf16"}},
        PipelineSettings{.stages = 2,
                         .more = {"--set",
                                  "model.tied=true",
                                  "--set",
                                  "model.vocabulary=257",
                                  "--set",
                                  "training.clip_norm=0.5"}},
        PipelineSettings{
            .stages = 2,
            .more = {"--set", "pipeline.schedule=interleaved-1f1b", "--set", "pipeline.chunks=2"}},
        PipelineSettings{.stages = 2,
                         .more = {"--set",
                                  "pipeline.channel_capacity=0",
                                  "--set",
                                  "pipeline.schedule=gpipe",
                                  "--set",
                                  "pipeline.message_order=lower-rank-first",
                                  "--set",
                                  "training.validate_every=2",
                                  "--set",
                                  "data.validation=0.5"}}));

TEST_F(GpuProcesses, HandOnWhatSkipsAStageAsThreadsDo) {
    scenario_ = skips;
    train_in_one_process({});
    const Outcome outcome = run(launch(3, "processes"), gpus(3));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(series("processes"), series("one"));
    EXPECT_TRUE(checkpoint("processes") == checkpoint("one"));
    EXPECT_THAT(content_of(folder() / "processes" / run_file::schedule), HasSubstr("SEND_F0>2"));
}

class ReplicasOnGpus : public GpuProcesses {
  protected:
    void train(const std::string& out, const std::vector<std::string>& more) const {
        const Outcome outcome = run(launch(4, out, more), gpus(4));
        ASSERT_EQ(outcome.code, 0) << outcome.err;
    }
};

/// Sums of gradients are made from GPU to GPU, in the order of the replicas: it makes no difference
/// to the bits who updates what, nor when the sums set out.
TEST_F(ReplicasOnGpus, HaveTheSameBitsWhoeverUpdatesWhat) {
    train_in_threads();  // on the CPU
    const std::vector<std::string> two{"--set", "pipeline.data_parallel=2"};
    train("processes", two);
    expect_losses_of_threads("processes");
    train("overlapped", joined(two, {"--set", "pipeline.overlap_reduction=true"}));
    EXPECT_EQ(series("overlapped"), series("processes"));
    EXPECT_TRUE(checkpoint("overlapped") == checkpoint("processes"));
    train("sharded", joined(two, {"--set", "pipeline.shard_optimizer=true"}));
    EXPECT_TRUE(checkpoint("sharded") == checkpoint("processes"));
}

// A GPU keeps a vocabulary of 257 as one of 264, whose rows and columns the shares cut, too; files
// do not.
TEST_F(ReplicasOnGpus, AddUpMoreThanTwoInHalfPrecision) {
    const std::vector<std::string> half{
        "--set", "training.precision=bf16", "--set", "model.vocabulary=257"};
    train_in_threads(joined(half, {"--set", "pipeline.micro_batches=8"}));  // of one sample, each
    const std::vector<std::string> four =
        joined(joined(half, {"--set", "pipeline.stages=1", "--set", "pipeline.data_parallel=4"}),
               even_partition(1));
    train("processes", four);
    train("sharded", joined(four, {"--set", "pipeline.shard_optimizer=true"}));
    EXPECT_TRUE(checkpoint("sharded") == checkpoint("processes"));
    const Outcome on_cpu = pipetwin(joined({"train",
                                            file("gpt.toml", scenario_),
                                            "--out",
                                            path("sharded"),
                                            "--resume",
                                            "--set",
                                            "training.steps=6"},
                                           half));
    EXPECT_EQ(on_cpu.code, 0) << on_cpu.err;
    EXPECT_EQ(losses("sharded").size(), 6);
}

/// Beside sums of gradients, which NCCL's messages make from GPU to GPU, replicas exchange what
/// their norms have seen. Validations read the running statistics.
TEST_F(ReplicasOnGpus, HaveTheRunningStatisticsOfAllReplicas) {
    scenario_ = norms;
    const std::vector<std::string> settings{
        "--set", "training.validate_every=2", "--set", "data.validation=0.5"};
    train_in_threads(settings);
    const std::vector<std::string> two = joined(settings, {"--set", "pipeline.data_parallel=2"});
    train("processes", joined(two, {"--set", "pipeline.micro_batches=1"}));
    expect_losses_of_threads("processes");
    expect_losses_of_threads("processes", "validation_loss");
    train("sharded",
          joined(two,
                 {"--set", "pipeline.micro_batches=1", "--set", "pipeline.shard_optimizer=true"}));
    EXPECT_TRUE(checkpoint("sharded") == checkpoint("processes"));
}

/// Two copies of a stage hand each other their gradients from GPU to GPU, and what their norms have
/// seen.
TEST_F(GpuProcesses, WhoseStagesHaveTwoCopiesHaveTheBitsOfOneProcess) {
    scenario_ = norms;
    const std::vector<std::string> settings{"--set",
                                            "pipeline.schedule=chimera",
                                            "--set",
                                            "training.validate_every=2",
                                            "--set",
                                            "data.validation=0.5"};
    train_in_one_process(settings);
    const Outcome outcome = run(launch(2, "processes", settings), gpus(2));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(series("processes"), series("one"));
    EXPECT_TRUE(checkpoint("processes") == checkpoint("one"));
}

TEST_F(GpuProcesses, NeedAGpuEach) {
    train_in_threads();
    const Outcome outcome = run(launch(2, "run"), gpus(1));
    EXPECT_EQ(outcome.code, 5);
    EXPECT_THAT(outcome.err,
                HasSubstr("error: cluster.backend = \"cuda\": 2 processes are on the "
                          "host of process 0 (rank 0, pid "));
    EXPECT_THAT(outcome.err, HasSubstr("which shows them 1 GPU: each needs one of its own\n"));
    EXPECT_EQ(outcome.err.find("error:"), outcome.err.rfind("error:"));  // said once
    std::vector<std::string> variables = gpus(1);
    variables.emplace_back("NCCL_HOSTID=of-this-process");
    EXPECT_EQ(run(launch(2, "run"), variables).code, 0) << content_of(path("err.log"));
}

TEST_F(GpuProcesses, HaveTheLinksThatTheyHave) {
    train_in_threads();
    const Outcome outcome = run(launch(2, "run", {"--set", "cluster.emulate_links=true"}), gpus(2));
    EXPECT_EQ(outcome.code, 4);
    EXPECT_THAT(outcome.err, HasSubstr("error: --set cluster.emulate_links: "));
}

class StoppedGpuProcesses : public GpuProcesses {
  protected:
    pid_t start_training(const std::vector<std::string>& more = {}) const {
        train_in_threads(more);
        const pid_t child =
            start(launch(2, "run", joined({"--set", "training.steps=1000000"}, more)), gpus(2));
        const auto begin = Clock::now();
        while (content_of(path("out.log")).find("step     1") == std::string::npos &&
               Clock::now() - begin < std::chrono::seconds(60)) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        return child;
    }

    void expect_end_after_a_kill(const std::vector<std::string>& settings) const {
        const pid_t child = start_training(settings);
        const std::vector<pid_t> all = processes();
        ASSERT_EQ(all.size(), 2U);
        const auto begin = Clock::now();
        kill(all.back(), SIGKILL);
        EXPECT_EQ(end(child).code, 7);
        EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
        EXPECT_TRUE(processes().empty());
    }
};

TEST_F(StoppedGpuProcesses, AllEndSoonAfterOneWasKilled) {
    expect_end_after_a_kill({});
}

/// Who waits for a sum over GPUs of which one is gone does so as well.
TEST_F(StoppedGpuProcesses, AllReplicasEndSoonAfterOneWasKilled) {
    expect_end_after_a_kill(joined(even_partition(1),
                                   {"--set",
                                    "pipeline.stages=1",
                                    "--set",
                                    "pipeline.data_parallel=2",
                                    "--set",
                                    "pipeline.shard_optimizer=true"}));
}

/// Who waits for a message of a GPU still hears the alarm.
TEST_F(StoppedGpuProcesses, OneThatStandsStillIsFoundByItsSilence) {
    const pid_t child = start_training();
    const std::vector<pid_t> all = processes();
    ASSERT_EQ(all.size(), 2U);
    const auto begin = Clock::now();
    kill(all.back(), SIGSTOP);
    const Outcome outcome = end(child);
    EXPECT_EQ(outcome.code, 8);
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(30));
    EXPECT_THAT(outcome.err, HasSubstr(fmt::format(", pid {} on ", all.back())));
    EXPECT_THAT(outcome.err, HasSubstr("has not been heard of"));
    EXPECT_TRUE(processes().empty());
}

}  // namespace gpu_processes_test
}  // namespace pipetwin::cli

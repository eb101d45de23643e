// SPDX-License-Identifier: Apache-2.0
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <csignal>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/cli/processes/gpu_processes.h"

/// Processes that torchrun starts have no MPI: whatever they say goes by NCCL. It is emulated.
namespace pipetwin::cli {
namespace torchrun_test {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

/// A port of this machine that is free, or taken as long as this lives.
class Port {
  public:
    Port() {
        ::bind(socket_, address(), sizeof address_);
        socklen_t size = sizeof address_;
        ::getsockname(socket_, address(), &size);
    }
    Port(const Port&) = delete;
    Port& operator=(const Port&) = delete;
    ~Port() { ::close(socket_); }

    int number() const { return ntohs(address_.sin_port); }
    void listen() const { ::listen(socket_, 1); }

  private:
    sockaddr* address() { return reinterpret_cast<sockaddr*>(&address_); }

    int socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address_{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {}, .sin_zero = {}};
};

/// A port that nobody has from now on, not even the one who looked for it.
int free_port() {
    const Port port;
    return port.number();
}

class Torchrun : public GpuProcesses {
  protected:
    void SetUp() override {}

    struct Job {
        std::vector<pid_t> processes;
    };

    /// As torchrun does for one machine.
    Job start_all(int count,
                  const std::string& out,
                  const std::vector<std::string>& more = {},
                  const std::vector<std::string>& variables = {}) const {
        return start_at(free_port(), count, out, more, variables);
    }

    Job start_at(int port,
                 int count,
                 const std::string& out,
                 const std::vector<std::string>& more = {},
                 const std::vector<std::string>& variables = {}) const {
        Job job;
        const std::vector<std::string> words = train(out, more);  // which writes what all read
        for (int process = 0; process < count; ++process) {
            job.processes.push_back(
                start_one(words, process, joined(variables, place(port, count))));
        }
        return job;
    }

    pid_t start_one(const std::vector<std::string>& words,
                    int process,
                    std::vector<std::string> variables) const {
        variables.push_back(fmt::format("RANK={}", process));
        variables.push_back(fmt::format("LOCAL_RANK={}", process));
        return start(words, variables, log_of(process));
    }

    /// What all have in common.
    static std::vector<std::string> place(int port, int count) {
        return joined(gpus(count),
                      {fmt::format("WORLD_SIZE={}", count),
                       fmt::format("LOCAL_WORLD_SIZE={}", count),
                       "MASTER_ADDR=127.0.0.1",
                       fmt::format("MASTER_PORT={}", port)});
    }

    std::vector<std::string> train(const std::string& out,
                                   const std::vector<std::string>& more) const {
        return joined({program.string(),
                       "train",
                       file("gpt.toml", scenario_),
                       "--profile",
                       path("threads/profile.json"),
                       "--out",
                       path(out)},
                      joined(on_gpus, more));
    }

    static std::string log_of(int process) { return fmt::format("process{}-", process); }

    std::vector<Outcome> end_all(const Job& job) const {
        std::vector<Outcome> outcomes;
        for (std::size_t process = 0; process < job.processes.size(); ++process) {
            outcomes.push_back(end(job.processes[process], log_of(static_cast<int>(process))));
        }
        return outcomes;
    }

    std::vector<Outcome> run_all(int count,
                                 const std::string& out,
                                 const std::vector<std::string>& more = {},
                                 const std::vector<std::string>& variables = {}) const {
        return end_all(start_all(count, out, more, variables));
    }

    /// Everything that was said of what went wrong.
    static std::string errors(const std::vector<Outcome>& outcomes) {
        std::string all;
        for (const Outcome& outcome : outcomes) {
            all += outcome.err;
        }
        return all;
    }

    static auto all_end_with(int code) { return Each(Field(&Outcome::code, code)); }
};

class SameBitsByTorchrun : public Torchrun,
                           public ::testing::WithParamInterface<PipelineSettings> {};

TEST_P(SameBitsByTorchrun, AsOneProcess) {
    const std::vector<std::string> settings = GetParam().words();
    train_in_one_process(settings);
    const std::vector<Outcome> outcomes = run_all(GetParam().stages, "processes", settings);
    EXPECT_THAT(outcomes, all_end_with(0)) << errors(outcomes);
    EXPECT_EQ(series("processes"), series("one"));
    EXPECT_TRUE(checkpoint("processes") == checkpoint("one"));
}

INSTANTIATE_TEST_SUITE_P(Torchrun,
                         SameBitsByTorchrun,
                         ::testing::Values(PipelineSettings{.stages = 3,
                                                            .more = {"--set",
                                                                     "model.tied=true",
                                                                     "--set",
                                                                     "training.clip_norm=0.5",
                                                                     "--set",
                                                                     "training.precision=bf16"}},
                                           PipelineSettings{.stages = 2,
                                                            .more = {"--set",
                                                                     "pipeline.channel_capacity=0",
                                                                     "--set",
                                                                     "pipeline.schedule=gpipe",
                                                                     "--set",
                                                                     "training.validate_every=2",
                                                                     "--set",
                                                                     "data.validation=0.5"}}));

/// The one of PyTorch. Without being told where the output goes Debian's stumbles over its Python.
TEST_F(Torchrun, ItselfStartsThem) {
    if (std::system("torchrun --help >/dev/null 2>&1") != 0) {
        GTEST_SKIP() << "no torchrun (python3-torch)";
    }
    train_in_one_process({});
    const std::string port = fmt::format("--master_port={}", free_port());
    const std::vector<std::string> torchrun{"torchrun",
                                            "-r",
                                            "1",
                                            "-t",
                                            "1",
                                            "--log_dir",
                                            path("logs"),
                                            port,
                                            "--nproc_per_node=2",
                                            "--no_python"};
    const Outcome outcome = run(joined(torchrun, train("processes", {})), gpus(2));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("step     3"));
    EXPECT_EQ(series("processes"), series("one"));
}

/// Their gradients are summed in the hosts' memory, which messages come from by way of the GPUs'.
TEST_F(Torchrun, TrainsReplicas) {
    train_in_threads();  // on the CPU
    const std::vector<Outcome> outcomes =
        run_all(4,
                "processes",
                {"--set", "pipeline.data_parallel=2", "--set", "pipeline.shard_optimizer=true"});
    EXPECT_THAT(outcomes, all_end_with(0)) << errors(outcomes);
    expect_losses_of_threads("processes");
}

/// Devices of a rank, a GPU each: what they add up of row-cut products, embedding and loss goes
/// from memory to memory by NCCL.
class DevicesByTorchrun : public Torchrun, public ::testing::WithParamInterface<std::string> {};

TEST_P(DevicesByTorchrun, HaveTheLossesOfThreadsAndOneResultForAllStages) {
    const std::vector<std::string> settings{"--set",
                                            "pipeline.tensor_parallel=2",
                                            "--set",
                                            "model.vocabulary=12",
                                            "--set",
                                            "training.clip_norm=0.5",
                                            "--set",
                                            GetParam()};
    const auto of_stages = [&](int stages) {
        return joined({"--set", fmt::format("pipeline.stages={}", stages)},
                      joined(even_partition(stages, settings), settings));
    };
    train_in_threads(of_stages(2));
    const std::vector<Outcome> two = run_all(4, "processes", of_stages(2));
    EXPECT_THAT(two, all_end_with(0)) << errors(two);
    expect_losses_of_threads("processes");
    const std::vector<Outcome> one = run_all(2, "one", of_stages(1));
    EXPECT_THAT(one, all_end_with(0)) << errors(one);
    EXPECT_EQ(losses("processes"), losses("one"));
}

INSTANTIATE_TEST_SUITE_P(Torchrun,
                         DevicesByTorchrun,
                         ::testing::Values("model.dropout=0.1",
                                           "pipeline.sequence_parallel=true",
                                           "model.tied=true"));

/// Replicas that divide gradients, and weights, too, which NCCL gathers before layers work.
TEST_F(Torchrun, TrainsReplicasThatDivideWeights) {
    const std::vector<std::string> wide{"--set",
                                        "model.d_model=128",
                                        "--set",
                                        "model.layers=2",
                                        "--set",
                                        "pipeline.partition=[1, 1]",
                                        "--set",
                                        "training.clip_norm=0.5"};
    train_in_threads(wide);
    for (const std::string shard : {"gradients", "weights"}) {
        const std::vector<Outcome> outcomes =
            run_all(4,
                    shard,
                    joined(wide,
                           {"--set",
                            "pipeline.data_parallel=2",
                            "--set",
                            fmt::format("pipeline.shard=\"{}\"", shard)}));
        EXPECT_THAT(outcomes, all_end_with(0)) << errors(outcomes);
        expect_losses_of_threads(shard);
    }
}

/// Which have the running statistics of all of them; without MPI NCCL carries what norms have seen.
TEST_F(Torchrun, TrainsReplicasWithNorms) {
    scenario_ = norms;
    const std::vector<std::string> settings{
        "--set", "training.validate_every=2", "--set", "data.validation=0.5"};
    train_in_threads(settings);
    const std::vector<Outcome> outcomes =
        run_all(4,
                "processes",
                joined(settings,
                       {"--set", "pipeline.data_parallel=2", "--set", "pipeline.micro_batches=1"}));
    EXPECT_THAT(outcomes, all_end_with(0)) << errors(outcomes);
    expect_losses_of_threads("processes");
    expect_losses_of_threads("processes", "validation_loss");
}

TEST_F(Torchrun, GoesOnFromACheckpointAsIfNothingHadHappened) {
    train_in_one_process({});
    EXPECT_THAT(run_all(2, "parts", {"--set", "training.steps=2"}), all_end_with(0));
    const std::vector<Outcome> outcomes = run_all(2, "parts", {"--resume"});
    EXPECT_THAT(outcomes, all_end_with(0)) << errors(outcomes);
    EXPECT_EQ(series("parts"), series("one"));
    EXPECT_TRUE(checkpoint("parts") == checkpoint("one"));
}

/// torchrun's own store may listen at MASTER_PORT; then NCCL takes the port behind it.
TEST_F(Torchrun, LeavesItsStoreThePort) {
    train_in_threads();
    Port store;
    store.listen();
    const std::vector<Outcome> outcomes = end_all(start_at(store.number(),
                                                           2,
                                                           "run",
                                                           {"--set", "training.steps=1"},
                                                           {"TORCHELASTIC_USE_AGENT_STORE=True"}));
    EXPECT_THAT(outcomes, all_end_with(0)) << errors(outcomes);
}

TEST_F(Torchrun, NamesThePlaceWhereProcessesCannotMeet) {
    train_in_threads();
    Port taken;
    taken.listen();
    const Job job = start_at(taken.number(), 2, "run");
    const Outcome first = end(job.processes[0], log_of(0));
    EXPECT_EQ(first.code, 5);
    EXPECT_THAT(first.err, HasSubstr(fmt::format("error: 127.0.0.1:{}: ", taken.number())));
    kill(job.processes[1], SIGKILL);  // as torchrun does then
    end(job.processes[1], log_of(1));
}

TEST_F(Torchrun, RefusesDifferentScenarios) {
    train_in_threads();
    const std::vector<std::string> variables = place(free_port(), 2);
    std::string other(gpt);
    other.replace(other.find("steps = 4"), 9, "steps = 5");
    std::vector<std::string> words = train("run", {});
    words[2] = file("other.toml", other);
    const pid_t first = start_one(train("run", {}), 0, variables);
    const Job job{{first, start_one(words, 1, variables)}};
    const std::vector<Outcome> outcomes = end_all(job);
    EXPECT_THAT(outcomes, all_end_with(10));
    EXPECT_THAT(errors(outcomes),
                HasSubstr("error: scenario: the processes do not have the same: [training] steps = "
                          "4 in process 0; steps = 5 in process 1\n"));
}

TEST_F(Torchrun, NeedsAGpuForEachProcess) {
    train_in_threads();
    const std::vector<Outcome> outcomes =
        run_all(2, "run", {}, {"PIPETWIN_EMULATED_GPUS=1"});  // the first of two counts
    EXPECT_THAT(outcomes, all_end_with(5));
    EXPECT_THAT(errors(outcomes),
                HasSubstr("2 processes are on the host of process 0, which shows them 1 GPU: each "
                          "needs one of its own\n"));
}

class StoppedTorchrun : public Torchrun {
  protected:
    Job start_training(const std::vector<std::string>& more) const {
        train_in_threads();
        const std::vector<std::string> long_run = {
            "--set", "training.steps=1000000", "--set", "pipeline.stages=3"};
        Job job = start_all(3, "run", joined(joined(long_run, even_partition(3)), more));
        const auto begin = Clock::now();
        while (content_of(path(log_of(0) + "out.log")).find("step     1") == std::string::npos &&
               Clock::now() - begin < std::chrono::seconds(60)) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        return job;
    }

    /// What the others say after one was sent a signal.
    std::vector<Outcome> after(int signal,
                               std::size_t which,
                               std::chrono::seconds limit,
                               const std::vector<std::string>& more = {}) const {
        Job job = start_training(more);
        const auto begin = Clock::now();
        const pid_t victim = job.processes[which];
        kill(victim, signal);
        std::vector<Outcome> others;
        for (std::size_t process = 0; process < job.processes.size(); ++process) {
            if (process != which) {
                others.push_back(end(job.processes[process], log_of(static_cast<int>(process))));
            }
        }
        EXPECT_LT(Clock::now() - begin, limit);
        kill(victim, SIGKILL);  // as torchrun does when another has ended
        end(victim, log_of(static_cast<int>(which)));
        EXPECT_THAT(others, all_end_with(8)) << errors(others);
        EXPECT_THAT(
            errors(others),
            AllOf(HasSubstr(fmt::format("process {} (rank {}, pid {} on ", which, which, victim)),
                  HasSubstr(") has not been heard of")));
        return others;
    }
};

TEST_F(StoppedTorchrun, AllEndSoonAfterOneWasKilled) {
    after(SIGKILL, 1, std::chrono::seconds(5));
}

TEST_F(StoppedTorchrun, AllEndSoonAfterTheFirstWasKilled) {
    after(SIGKILL, 0, std::chrono::seconds(5));
}

/// The first process asks the others for their parameters most of the time.
TEST_F(StoppedTorchrun, AllEndSoonAfterOneWasKilledWhileTheyWroteACheckpoint) {
    after(SIGKILL, 1, std::chrono::seconds(5), {"--set", "output.checkpoint_every=1"});
}

/// Through which all others know of each other.
TEST_F(StoppedTorchrun, TheFirstThatStandsStillIsFoundByItsSilence) {
    after(SIGSTOP, 0, std::chrono::seconds(30));
}

}  // namespace torchrun_test
}  // namespace pipetwin::cli

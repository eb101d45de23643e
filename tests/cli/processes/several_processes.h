// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "cli/run_folder/run_folder.h"
#include "tests/cli/support.h"
#include "tests/support/places.h"

/// Trainings of several processes, started by the program as a user would. They need MPI.
namespace pipetwin::cli {

inline const std::filesystem::path program =
    std::filesystem::path(places::program_folder()) / "pipetwin";

inline constexpr std::string_view gpt = R"([model]
kind = "gpt"
layers = 4
d_model = 16
heads = 2
context = 8
vocabulary = 11
[data]
kind = "synthetic"
[training]
batch = 8
steps = 4
[pipeline]
stages = 2
partition = [2, 2]
micro_batches = 2
schedule = "1f1b"
channel_capacity = 2
[output]
checkpoint_every = 2
)";

/// A Llama by a recipe: groups, scaled positions, a decay of weights alone, a rate that rises and
/// falls, clipped gradients.
inline constexpr std::string_view llama = R"([model]
kind = "llama"
layers = 2
d_model = 10
heads = 4
key_value_heads = 2
head_size = 6
context = 8
vocabulary = 11
feed_forward = 14
rotary_base = 30
rotary_factor = 8
rotary_context = 30
[data]
kind = "synthetic"
[training]
batch = 8
steps = 4
learning_rate_schedule = "cosine"
warmup_steps = 2
betas = [0.9, 0.95]
weight_decay = 0.1
weight_decay_of = "weights"
clip_norm = 0.5
[pipeline]
stages = 3
partition = [2, 2, 2]
micro_batches = 2
schedule = "1f1b"
channel_capacity = 2
[output]
checkpoint_every = 2
)";

/// A model in which outputs go past a stage, in three stages that are written down.
inline constexpr std::string_view skips = R"([model]
kind = "layers"
input = 12
[[model.layer]]
type = "linear"
name = "down"
outputs = 128
[[model.layer]]
type = "gelu"
name = "left"
[[model.layer]]
type = "linear"
name = "bottom"
outputs = 128
inputs = ["down"]
[[model.layer]]
type = "gelu"
[[model.layer]]
type = "concat"
name = "both"
inputs = ["gelu3", "left"]
[[model.layer]]
type = "linear"
outputs = 128
[[model.layer]]
type = "add"
name = "sum"
inputs = ["linear5", "left"]
[[model.layer]]
type = "linear"
outputs = 5
[[model.layer]]
type = "cross_entropy"
[data]
kind = "synthetic"
[training]
batch = 8
steps = 4
[pipeline]
stages = 3
partition = [2, 2, 5]
micro_batches = 2
schedule = "1f1b"
channel_capacity = 2
[output]
checkpoint_every = 2
)";

/// Images, a convolution and batch norms, in two stages that are written down.
inline constexpr std::string_view norms = R"([model]
kind = "layers"
image = [4, 5, 3]
[[model.layer]]
type = "batch_norm"
[[model.layer]]
type = "conv2d"
outputs = 8
kernel = 3
padding = 1
bias = false
[[model.layer]]
type = "batch_norm"
cumulative = true
[[model.layer]]
type = "relu"
[[model.layer]]
type = "global_avg_pool"
[[model.layer]]
type = "linear"
outputs = 5
[[model.layer]]
type = "cross_entropy"
[data]
kind = "synthetic"
[training]
batch = 8
steps = 4
[pipeline]
stages = 2
partition = [2, 5]
micro_batches = 2
schedule = "1f1b"
channel_capacity = 2
[output]
checkpoint_every = 2
)";

/// The blocks of the GPT shared out to the pieces of another pipeline than its own. Which
/// partition is fastest follows from what was measured, links included: trainings whose bits are
/// compared have one that is written down.
inline std::vector<std::string> even_partition(int stages,
                                               const std::vector<std::string>& settings = {}) {
    constexpr int blocks = 4;
    const bool has_chunks = std::ranges::find(settings, "pipeline.chunks=2") != settings.end();
    const int pieces = has_chunks ? 2 * stages : stages;
    std::vector<int> sizes;
    for (int piece = 0; piece < pieces; ++piece) {
        sizes.push_back(blocks / pieces + (piece < blocks % pieces ? 1 : 0));
    }
    return {"--set", fmt::format("pipeline.partition=[{}]", fmt::join(sizes, ","))};
}

class SeveralProcesses : public InFolder {
  protected:
    void SetUp() override {
        if (!std::filesystem::exists(program.parent_path() / "pipetwin_mpi.so")) {
            GTEST_SKIP() << "built without MPI (libopenmpi-dev)";
        }
        if (std::system("mpirun --version >/dev/null 2>&1") != 0) {
            GTEST_SKIP() << "no mpirun (openmpi-bin)";
        }
    }

    /// What it says goes to files that begin with `log`.
    pid_t start(const std::vector<std::string>& words,
                const std::vector<std::string>& more_environment = {},
                const std::string& log = "") const {
        std::vector<std::string> variables = more_environment;
        variables.emplace_back("ASAN_OPTIONS=detect_leaks=0");  // MPI leaves a lot behind
        // Open MPI's jobs share a folder, and one that ends may remove it while another begins.
        variables.emplace_back("OMPI_MCA_orte_tmpdir_base=" + folder().string());
        for (char** variable = environ; *variable != nullptr; ++variable) {
            variables.emplace_back(*variable);
        }
        posix_spawn_file_actions_t files;
        posix_spawn_file_actions_init(&files);
        const auto to = [&files](int descriptor, const std::string& name) {
            posix_spawn_file_actions_addopen(
                &files, descriptor, name.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        };
        to(STDOUT_FILENO, path(log + "out.log"));
        to(STDERR_FILENO, path(log + "err.log"));
        pid_t child = 0;
        const int error = posix_spawnp(&child,
                                       words.front().c_str(),
                                       &files,
                                       nullptr,
                                       pointers(words).data(),
                                       pointers(variables).data());
        posix_spawn_file_actions_destroy(&files);
        EXPECT_EQ(error, 0);
        return child;
    }

    Outcome end(pid_t child, const std::string& log = "") const {
        int status = 0;
        waitpid(child, &status, 0);
        return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                .out = content_of(path(log + "out.log")),
                .err = content_of(path(log + "err.log"))};
    }

    Outcome run(const std::vector<std::string>& words,
                const std::vector<std::string>& more_environment = {}) const {
        return end(start(words, more_environment));
    }

    std::vector<std::string> launch(int ranks,
                                    const std::string& out,
                                    const std::vector<std::string>& more = {}) const {
        return joined({program.string(),
                       "launch",
                       "--ranks",
                       std::to_string(ranks),
                       file("gpt.toml", scenario_),
                       "--profile",
                       path("threads/profile.json"),
                       "--out",
                       path(out)},
                      more);
    }

    /// Once, in threads: what all others are compared with, and the profile that they plan with.
    void train_in_threads(const std::vector<std::string>& more = {}) const {
        const Outcome outcome = pipetwin(joined(
            {"train", file("gpt.toml", scenario_), "--out", path("threads"), "--force"}, more));
        ASSERT_EQ(outcome.code, 0) << outcome.err;
    }

    /// What each step gave, and not how long it took.
    std::string series(const std::string& run) const {
        std::istringstream metrics(content_of(folder() / run / run_file::metrics));
        std::string steps;
        for (std::string line; std::getline(metrics, line);) {
            const auto step = nlohmann::json::parse(line);
            const nlohmann::json none;
            steps += nlohmann::json{step["step"],
                                    step["loss"],
                                    step["grad_norm"],
                                    step["peak_bytes"],
                                    step["validation_loss"],
                                    step.value("accuracy", none),
                                    step.value("validation_accuracy", none)}
                         .dump() +
                     '\n';
        }
        return steps;
    }

    /// Every file of the newest checkpoint.
    std::map<std::string, std::string> checkpoint(const std::string& run) const {
        std::map<std::string, std::string> files;
        const auto newest = folder() / run / run_file::checkpoints / "step-00000004";
        for (const auto& entry : std::filesystem::directory_iterator(newest)) {
            files[entry.path().filename().string()] = content_of(entry.path());
        }
        return files;
    }

    /// Those that train, by what they were called with.
    std::vector<pid_t> processes() const {
        std::vector<pid_t> found;
        for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
            const std::string name = entry.path().filename().string();
            if (name.find_first_not_of("0123456789") != std::string::npos) {
                continue;
            }
            std::ifstream file(entry.path() / "cmdline");
            std::stringstream words;
            words << file.rdbuf();
            const std::string text = words.str();
            if (text.starts_with(program.string() + '\0' + "train") &&
                text.find(folder().string()) != std::string::npos) {
                found.push_back(std::stoi(name));
            }
        }
        return found;
    }

    std::string_view scenario_ = gpt;  ///< what is trained

  private:
    static std::vector<char*> pointers(const std::vector<std::string>& words) {
        std::vector<char*> pointers;
        for (const std::string& word : words) {
            pointers.push_back(const_cast<char*>(word.c_str()));  // which posix_spawn leaves alone
        }
        pointers.push_back(nullptr);
        return pointers;
    }
};

}  // namespace pipetwin::cli

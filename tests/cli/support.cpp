// SPDX-License-Identifier: Apache-2.0
#include "tests/cli/support.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "cli/command_line.h"
#include "tests/support/places.h"

namespace pipetwin::cli {

nlohmann::json Outcome::json() const {
    return nlohmann::json::parse(out);
}

Outcome pipetwin(const std::vector<std::string>& args, const Terminal& terminal) {
    std::ostringstream out;
    std::ostringstream err;
    Outcome outcome;
    outcome.code = run_command_line(args, out, err, terminal);
    outcome.out = out.str();
    outcome.err = err.str();
    return outcome;
}

std::vector<std::string> joined(std::vector<std::string> args,
                                const std::vector<std::string>& more) {
    args.insert(args.end(), more.begin(), more.end());
    return args;
}

std::vector<std::string> simulate_args(const Numbers& plan, const std::vector<std::string>& more) {
    return joined({"simulate",
                   "--stages",
                   std::to_string(plan.stages),
                   "--micro-batches",
                   std::to_string(plan.micro_batches),
                   "--forward-ms",
                   plan.forward,
                   "--backward-ms",
                   plan.backward},
                  more);
}

std::string InFolder::file(std::string_view name, std::string_view content) const {
    return folder_.write(name, content).string();
}

std::string content_of(const std::filesystem::path& path) {
    std::ifstream stream(path, std::ios::binary);
    std::ostringstream content;
    content << stream.rdbuf();
    return content.str();
}

Child::Child(const std::vector<std::string>& args,
             const std::string& log,
             const std::vector<std::string>& environment)
    : log_(log) {
    const std::string program = places::program_folder() + "/pipetwin";
    std::vector<std::string> words = joined({program}, args);
    std::vector<std::string> variables = environment;
    for (char** variable = environ; *variable != nullptr; ++variable) {
        variables.emplace_back(*variable);
    }
    const auto pointers = [](std::vector<std::string>& texts) {
        std::vector<char*> all;
        for (std::string& text : texts) {
            all.push_back(text.data());
        }
        all.push_back(nullptr);
        return all;
    };
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    const auto to = [&](int descriptor, const std::string& name) {
        posix_spawn_file_actions_addopen(
            &files, descriptor, name.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    };
    to(STDOUT_FILENO, log + ".out");
    to(STDERR_FILENO, log + ".err");
    const int error = posix_spawn(&process_,
                                  program.c_str(),
                                  &files,
                                  nullptr,
                                  pointers(words).data(),
                                  pointers(variables).data());
    posix_spawn_file_actions_destroy(&files);
    if (error != 0) {
        process_ = -1;
        ADD_FAILURE() << "cannot start " << program;
    }
}

Child::Child(Child&& other) noexcept
    : process_(std::exchange(other.process_, -1)), log_(std::move(other.log_)) {}

Child::~Child() {
    if (process_ > 0) {
        kill(process_, SIGKILL);
        waitpid(process_, nullptr, 0);
    }
}

Outcome Child::end() {
    int status = 0;
    waitpid(std::exchange(process_, -1), &status, 0);
    return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status),
            .out = content_of(log_ + ".out"),
            .err = content_of(log_ + ".err")};
}

bool has_lines(const std::filesystem::path& file, int lines) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < end) {
        if (std::ranges::count(content_of(file), '\n') >= lines) {
            return true;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
}

const std::string_view small_scenario = R"toml([model]
kind = "mlp"
sizes = [8, 16, 4]
[data]
kind = "synthetic"
[training]
batch = 8
steps = 3
optimizer = "sgd"
learning_rate = 0.1
[pipeline]
stages = 2
micro_batches = 4
)toml";

const std::string_view small_profile =
    "name,forward_ms,backward_ms,output_bytes,saved_bytes,parameter_bytes\n"
    "linear0,0.02,0.04,64,160,576\n"
    "linear1,0.01,0.02,0,100,272\n";

const std::string_view three_layers = R"([model]
kind = "mlp"
sizes = [8, 16, 16, 4]
[data]
kind = "synthetic"
[training]
batch = 8
steps = 1
[pipeline]
stages = 2
micro_batches = 4
schedule = "1f1b"
[cluster]
count = 2
)";

const std::string_view three_layers_costs =
    R"({"schema_version": 1, "source": "measured", "layers": [
  {"name": "linear0", "kind": "linear", "parameter_bytes": 576, "samples": [
    {"micro_batch_size": 2, "forward_ns": 1000, "backward_ns": 2000, "output_bytes": 128,
     "saved_bytes": 64}]},
  {"name": "linear1", "kind": "linear", "parameter_bytes": 1088, "samples": [
    {"micro_batch_size": 2, "forward_ns": 1000, "backward_ns": 2000, "output_bytes": 128,
     "saved_bytes": 128}]},
  {"name": "linear2", "kind": "linear", "parameter_bytes": 272, "samples": [
    {"micro_batch_size": 2, "forward_ns": 1000, "backward_ns": 2000, "output_bytes": 32,
     "saved_bytes": 128}]}]})";

}  // namespace pipetwin::cli

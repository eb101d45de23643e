// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/base/exit.h"
#include "cli/base/stop_signal.h"
#include "cli/commands/commands.h"
#include "cli/processes/processes.h"
#include "cli/training/run_options.h"
#include "core/base/error.h"
#include "core/scenario/settled_scenario.h"
#include "exec/transport/mpi_process_group.h"

namespace pipetwin::cli {

namespace {

/// Options of `launch`.
struct LaunchOptions : RunOptions {
    int ranks = 0;
    std::vector<std::string> train;  ///< the words of `train` for each process
};

constexpr int command_not_found = 127;

/// Processes of one machine reach each other through its memory. They are bound by themselves
/// (exec/base/cores.h), may be more than there are cores, and what they say is enough.
std::vector<std::string> mpirun_words(const LaunchOptions& options) {
    std::vector<std::string> words{"mpirun",
                                   "--quiet",
                                   "-n",
                                   std::to_string(options.ranks),
                                   "--oversubscribe",
                                   "--bind-to",
                                   "none",
                                   "--mca",
                                   "pml",
                                   "ob1",
                                   "--mca",
                                   "btl",
                                   "self,vader"};
    if (geteuid() == 0) {
        words.emplace_back("--allow-run-as-root");
    }
    words.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
    words.insert(words.end(), options.train.begin(), options.train.end());
    return words;
}

/// Becomes a process that runs the words; in the child.
[[noreturn]] void become(std::vector<std::string> words, pid_t parent) {
    std::vector<char*> arguments;
    for (std::string& word : words) {
        arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);
    for (const char* const name : {"RANK", "WORLD_SIZE", "LOCAL_RANK"}) {
        unsetenv(name);  // of another launcher; mpirun's own would not count beside them
    }
    setpgid(0, 0);  // a Ctrl+C comes from us alone
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() == parent) {
        execvp(arguments.front(), arguments.data());
    }
    _exit(command_not_found);
}

/// The processes that mpirun has started here.
std::vector<pid_t> children_of(pid_t parent) {
    std::ifstream file(fmt::format("/proc/{0}/task/{0}/children", parent));
    return {std::istream_iterator<pid_t>(file), std::istream_iterator<pid_t>()};
}

/// Which of the processes it is, by the variable that mpirun gives it; none: it has not begun.
std::optional<int> index_of(pid_t process) {
    std::ifstream file(fmt::format("/proc/{}/environ", process));
    const std::string_view name = "OMPI_COMM_WORLD_RANK=";
    for (std::string variable; std::getline(file, variable, '\0');) {
        if (variable.starts_with(name)) {
            return std::stoi(variable.substr(name.size()));
        }
    }
    return std::nullopt;
}

/// True if the process has ended, although mpirun may not have noticed yet.
bool has_ended(pid_t process) {
    std::ifstream file(fmt::format("/proc/{}/stat", process));
    std::string line;
    std::getline(file, line);
    const std::size_t name_end = line.rfind(')');
    return name_end == std::string::npos || line.compare(name_end + 2, 1, "Z") == 0;
}

/// True if a pipe is written to whose other end is closed. mpirun, which passes on what processes
/// print, would tell none of them.
bool has_no_reader(int file) {
    pollfd pipe{.fd = file, .events = 0, .revents = 0};
    return poll(&pipe, 1, 0) > 0 && (pipe.revents & POLLERR) != 0;
}

struct Ended {
    int code = 0;            ///< of mpirun, 128 + the signal where one ended it or a process
    bool is_mpirun = false;  ///< it was mpirun itself that a signal ended
    std::optional<std::pair<int, pid_t>> first;  ///< which process ended first: its index
};

/// Waits for it; a signal to stop goes to the processes themselves, for mpirun would kill them
/// before they have written what they have to.
Ended wait_for(pid_t mpirun) {
    const StopSignal stop;
    constexpr std::chrono::milliseconds between_looks{10};
    int passed_on = 0;
    int status = 0;
    Ended result;
    std::map<pid_t, int> known;
    while (true) {
        for (const auto& [process, index] : known) {
            if (!result.first && has_ended(process)) {
                result.first = {index, process};
            }
        }
        const pid_t ended = waitpid(mpirun, &status, WNOHANG);
        if (ended == mpirun) {
            result.is_mpirun = WIFSIGNALED(status);
            result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            return result;
        }
        for (const pid_t process : children_of(mpirun)) {
            if (const auto index = known.contains(process) ? std::nullopt : index_of(process)) {
                known[process] = *index;
            }
        }
        if (StopSignal::received() == 0 && has_no_reader(STDOUT_FILENO)) {
            StopSignal::note(SIGPIPE);
        }
        if (const int signal = StopSignal::received(); signal != passed_on) {
            passed_on = signal;
            for (const pid_t process : children_of(mpirun)) {
                kill(process, signal);
            }
        }
        std::this_thread::sleep_for(between_looks);
    }
}

/// "process 3 (rank 1 of replica 1, pid 4711)"
std::string who(const Ended& ended, int stages) {
    if (ended.is_mpirun) {
        return "mpirun";
    }
    if (!ended.first) {
        return "a process";
    }
    const auto [index, process] = *ended.first;
    return fmt::format("process {} (rank {}{}, pid {})",
                       index,
                       index % stages,
                       index >= stages ? fmt::format(" of replica {}", index / stages) : "",
                       process);
}

void execute_launch(const LaunchOptions& options, Console&) {
    const SettledScenario scenario =
        settle(read_scenario(options.scenario, options.common.overrides));
    expect_processes(options.ranks, scenario, "--ranks");
    exec::require_mpi();
    const std::vector<std::string> words = mpirun_words(options);
    const pid_t self = getpid();
    const pid_t child = fork();
    if (child < 0) {
        throw std::system_error(errno, std::system_category(), "fork");
    }
    if (child == 0) {
        become(words, self);
    }
    const Ended ended = wait_for(child);
    const int code = ended.code;
    if (code == command_not_found) {
        throw Error(ErrorKind::Unavailable,
                    "mpirun",
                    "it was not found in PATH",
                    "install it: apt-get install openmpi-bin");
    }
    constexpr int by_signal = 128;
    if (code > by_signal && StopSignal::name(code - by_signal).empty()) {
        throw Error(ErrorKind::WorkerFailed,
                    "launch",
                    fmt::format("{} was ended by signal {} ({})",
                                who(ended, scenario.pipeline.stages),
                                code - by_signal,
                                strsignal(code - by_signal)),  // NOLINT(concurrency-mt-unsafe)
                    "'flight' in the run folder shows what each process was doing; --resume "
                    "continues where a checkpoint was written");
    }
    if (code != 0) {
        throw ReportedByPeer(code);
    }
}

/// The words that each process is called with.
std::vector<std::string> words_of_train(const std::vector<std::string>& args) {
    std::vector<std::string> words{"train"};
    for (std::size_t i = 1; i < args.size(); ++i) {
        if (args[i] == "--ranks") {
            ++i;
        } else if (!args[i].starts_with("--ranks=")) {
            words.push_back(args[i]);
        }
    }
    return words;
}

Command declare_launch(CLI::App& app) {
    const auto options = std::make_shared<LaunchOptions>();
    add_training(app, *options);
    leave_out_of_help(app, {"--verbose"});
    app.add_option("--ranks",
                   options->ranks,
                   "Number of processes, one for each device of each rank of each replica: "
                   "pipeline.stages times pipeline.data_parallel times pipeline.tensor_parallel")
        ->type_name("N")
        ->required()
        ->check(CLI::Range(1, 4096));
    Command command = scenario_command(options, execute_launch);
    command.complete = [options](const std::vector<std::string>& args, CommonOptions&) {
        options->train = words_of_train(args);
    };
    command.extra_word = "--ranks";
    return command;
}

}  // namespace

CommandRow launch_command() {
    return {.name = "launch",
            .help = "Train on this machine, with one process per rank",
            .declare = declare_launch};
}

}  // namespace pipetwin::cli

#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/processes.h"
#include "core/error.h"
#include "core/scenario.h"
#include "exec/transport/mpi_world.h"

namespace pipetwin::cli {

namespace {

/// Processes of one machine reach each other through its memory. They are bound by themselves
/// (exec/cores.h), may be more than there are cores, and what they say is enough.
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

}  // namespace

void execute(const LaunchOptions& options, Console&) {
    const Scenario scenario = read_scenario(options.scenario, options.common.overrides);
    require_settled(scenario);
    expect_processes(options.ranks, scenario);
    exec::require_mpi();
    std::vector<std::string> words = mpirun_words(options);
    std::vector<char*> arguments;
    for (std::string& word : words) {
        arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);
    execvp(arguments.front(), arguments.data());
    throw Error(ErrorKind::Unavailable,
                "mpirun",
                std::system_category().message(errno),
                "install it: apt-get install openmpi-bin");
}

}  // namespace pipetwin::cli

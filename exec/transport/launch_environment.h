// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace pipetwin::exec {

/// The program that started the processes of a training.
enum class Launcher { Torchrun, OpenMpi, Pmi, Slurm };

/// "torchrun", "mpirun", "PMI", "srun".
std::string to_string(Launcher launcher);

/// The place of a process among those that its launcher started.
struct LaunchedProcess {
    Launcher launcher{};
    int index = 0;
    int count = 1;
    int local_index = 0;        ///< among those of this host
    int local_count = 0;        ///< those of this host; 0: the launcher does not tell
    std::string meeting_place;  ///< torchrun: "host:port" where NCCL lets all meet
};

/// Looks up an environment variable; none where it is not set.
using Variables = std::function<std::optional<std::string>(const std::string& name)>;
/// Reads the environment of this process.
Variables environment_variables();

/// From the variables of torchrun, Open MPI, PMI and Slurm, the first of them that has set any;
/// none: the process was started alone. Throws Error(Usage), naming the variable, where one is
/// missing or is no number in its range.
std::optional<LaunchedProcess> launched_process(const Variables& variables);

}  // namespace pipetwin::exec

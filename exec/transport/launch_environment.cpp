// SPDX-License-Identifier: Apache-2.0
#include "exec/transport/launch_environment.h"

#include <array>
#include <charconv>
#include <cstdlib>

#include <fmt/format.h>

#include "core/base/error.h"

namespace pipetwin::exec {
namespace {

/// The names that a launcher uses; null: it does not tell.
struct Names {
    Launcher launcher;
    const char* index;
    const char* count;
    const char* local_index;
};

// docs/cluster.md says which of them counts where several are set.
constexpr std::array known{
    Names{Launcher::Torchrun, "RANK", "WORLD_SIZE", "LOCAL_RANK"},
    Names{Launcher::OpenMpi,
          "OMPI_COMM_WORLD_RANK",
          "OMPI_COMM_WORLD_SIZE",
          "OMPI_COMM_WORLD_LOCAL_RANK"},
    Names{Launcher::Pmi, "PMI_RANK", "PMI_SIZE", nullptr},
    Names{Launcher::Slurm, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
};

std::string hint_for(Launcher launcher) {
    return fmt::format("let {} set it, or unset the others to train in one process",
                       to_string(launcher));
}

int number(const Variables& variables, const char* name, int least, int most, Launcher launcher) {
    const std::optional<std::string> text = variables(name);
    if (!text) {
        throw Error(ErrorKind::Usage,
                    name,
                    fmt::format("{} started this process, but the variable is not set",
                                to_string(launcher)),
                    hint_for(launcher));
    }
    int value = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (error != std::errc() || end != text->data() + text->size() || value < least ||
        value > most) {
        throw Error(
            ErrorKind::Usage,
            name,
            fmt::format("found '{}', expected a whole number from {} to {}", *text, least, most),
            hint_for(launcher));
    }
    return value;
}

std::string text_of(const Variables& variables, const char* name, Launcher launcher) {
    const std::optional<std::string> text = variables(name);
    if (!text || text->empty()) {
        throw Error(ErrorKind::Usage,
                    name,
                    fmt::format("{} started this process, but the variable is not set",
                                to_string(launcher)),
                    hint_for(launcher));
    }
    return *text;
}

/// NCCL_COMM_ID, where it is set. Else the port of torchrun's first process, or the one
/// behind it where torchrun keeps a store of its own there.
std::string meeting_place(const Variables& variables) {
    constexpr int most_ports = 65535;
    constexpr Launcher launcher = Launcher::Torchrun;
    const std::string address = text_of(variables, "MASTER_ADDR", launcher);
    const int port = number(variables, "MASTER_PORT", 1, most_ports - 1, launcher);
    if (const auto place = variables("NCCL_COMM_ID"); place && !place->empty()) {
        return *place;
    }
    const bool is_taken = variables("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
    const bool is_ipv6 = address.find(':') != std::string::npos;
    const std::string host = is_ipv6 ? '[' + address + ']' : address;
    return fmt::format("{}:{}", host, is_taken ? port + 1 : port);
}

}  // namespace

std::string to_string(Launcher launcher) {
    switch (launcher) {
        case Launcher::Torchrun:
            return "torchrun";
        case Launcher::OpenMpi:
            return "mpirun";
        case Launcher::Pmi:
            return "PMI";
        case Launcher::Slurm:
            return "srun";
    }
    throw InternalError("a launcher");
}

Variables environment_variables() {
    return [](const std::string& name) -> std::optional<std::string> {
        // NOLINTNEXTLINE(concurrency-mt-unsafe): read before any worker starts
        const char* const text = std::getenv(name.c_str());
        return text == nullptr ? std::nullopt : std::optional<std::string>(text);
    };
}

std::optional<LaunchedProcess> launched_process(const Variables& variables) {
    constexpr int most_processes = 1 << 20;
    for (const Names& names : known) {
        if (!variables(names.index) && !variables(names.count)) {
            continue;
        }
        // An sbatch script itself is no task of a step.
        if (names.launcher == Launcher::Slurm && !variables("SLURM_STEP_NODELIST")) {
            continue;
        }
        LaunchedProcess process{.launcher = names.launcher, .meeting_place = {}};
        process.count = number(variables, names.count, 1, most_processes, names.launcher);
        process.index = number(variables, names.index, 0, process.count - 1, names.launcher);
        if (names.local_index != nullptr && variables(names.local_index)) {
            process.local_index =
                number(variables, names.local_index, 0, process.count - 1, names.launcher);
        }
        if (names.launcher == Launcher::Torchrun && process.count > 1) {
            process.meeting_place = meeting_place(variables);
            if (variables("LOCAL_WORLD_SIZE")) {
                process.local_count =
                    number(variables, "LOCAL_WORLD_SIZE", 1, process.count, names.launcher);
            }
        }
        return process;
    }
    return std::nullopt;
}

}  // namespace pipetwin::exec

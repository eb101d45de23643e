// SPDX-License-Identifier: Apache-2.0
#include "cli/processes/processes.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/base/exit.h"
#include "cli/base/stop_signal.h"
#include "core/base/as_index.h"
#include "core/base/number_text.h"
#include "core/scenario/scenario.h"
#include "core/scenario/settled_scenario.h"
#include "exec/base/cores.h"
#include "exec/executor/backend.h"
#include "exec/gpu/cuda_module.h"
#include "exec/transport/byte_message.h"
#include "exec/transport/gpu_process_group.h"
#include "exec/transport/mpi_process_group.h"
#include "exec/transport/nccl_process_group.h"

namespace pipetwin::cli {
namespace {

/// Time that the other processes have to end after one has failed.
constexpr std::chrono::seconds patience{3};

/// Time that a process leaves to each process before it to report the error, where it is not known
/// which processes are left.
constexpr std::chrono::milliseconds turn{500};

/// How long a process may say nothing.
constexpr std::chrono::seconds silence_limit{10};

std::string host_name() {
    std::array<char, 256> name{};
    gethostname(name.data(), name.size() - 1);
    return name.data();
}

bool by_nccl_alone(const exec::LaunchedProcess& launched) {
    return launched.launcher == exec::Launcher::Torchrun;
}

Error too_few_gpus(const std::string& whose, std::ptrdiff_t processes, int gpus) {
    return {ErrorKind::Unavailable,
            KeyValue{"cluster.backend", "\"cuda\""},
            fmt::format("{} {} on the host of {}, which shows them {}: each needs one of its own",
                        counted(processes, "process"),
                        verb_for(processes, "is", "are"),
                        whose,
                        counted(gpus, "GPU")),
            "start fewer on it, or train in one process, whose ranks can share a GPU"};
}

/// NCCL takes no two processes of a host on one GPU, but where NCCL_HOSTID tells it that they are
/// on two.
bool may_share_gpus() {
    return std::getenv("NCCL_HOSTID") != nullptr;  // NOLINT(concurrency-mt-unsafe): nobody sets it
}

/// torchrun starts no MPI, so that nothing but GPUs can carry what the processes say.
void require_nccl(const exec::LaunchedProcess& launched, const ScenarioParts& scenario) {
    if (!exec::traits(scenario.cluster.backend).needs_gpu) {
        throw Error(ErrorKind::Unavailable,
                    "torchrun",
                    "it starts no MPI, and NCCL connects only GPUs",
                    "set cluster.backend = \"cuda\", or start the processes with mpirun, srun, or "
                    "'pipetwin launch --ranks N' on one machine");
    }
    exec::require_cuda();
    const auto gpus = static_cast<int>(exec::probe_cuda().devices.size());
    const int here = std::max(launched.local_count, launched.local_index + 1);
    if (here > gpus && !may_share_gpus()) {
        throw too_few_gpus(fmt::format("process {}", launched.index), here, gpus);
    }
}

void refuse_without_transport(const exec::LaunchedProcess& launched,
                              const ScenarioParts& scenario) {
    if (exec::traits(scenario.cluster.backend).needs_gpu && scenario.cluster.emulate_links) {
        throw Error(ErrorKind::Infeasible,
                    KeyValue{"cluster.emulate_links"},
                    "links between the GPUs of several processes cannot be emulated",
                    "leave it out, or train in one process");
    }
    if (by_nccl_alone(launched)) {
        require_nccl(launched, scenario);
    } else {
        exec::require_mpi();
    }
}

int local_gpu(const exec::LaunchedProcess& launched) {
    const auto gpus = static_cast<int>(exec::probe_cuda().devices.size());
    return launched.local_index % std::max(gpus, 1);
}

std::unique_ptr<exec::ProcessGroup> join(const exec::LaunchedProcess& launched, int link_ctas) {
    if (!by_nccl_alone(launched)) {
        return exec::join_mpi();
    }
    return exec::join_nccl(exec::cuda_links(local_gpu(launched), link_ctas),
                           launched.meeting_place,
                           {.index = launched.index, .count = launched.count});
}

/// The number of this process among those of its host: the first one has the first GPU, and so on.
int own_gpu(const std::vector<int>& hosts, int gpus, int process) {
    const int host = hosts.at(as_index(process));
    const auto before = std::count(hosts.begin(), hosts.begin() + process, host);
    return static_cast<int>(before % std::max(gpus, 1));
}

std::string boot_id() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string id;
    std::getline(file, id);
    return id;
}

std::string text_of(const std::exception_ptr& failure) {
    try {
        std::rethrow_exception(failure);
    } catch (const std::exception& exception) {
        return exception.what();
    }
}

/// What a process tells the others when it ends.
struct LastWord {
    int code = 0;          ///< that it ends with
    bool follows = false;  ///< from the failure of another one
};

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
        lines.push_back(line);
    }
    return lines;
}

/// The first line that differs between texts with "[table]" and "key = value" in their lines, as
/// scenarios have them, with the table that it stands in.
struct Difference {
    std::string table;
    std::vector<std::string> lines;  ///< [text]
};
Difference first_difference(const std::vector<std::string>& texts) {
    std::vector<std::vector<std::string>> lines;
    for (const std::string& text : texts) {
        lines.push_back(lines_of(text));
    }
    Difference found;
    found.lines.resize(texts.size());
    const auto line = [](const std::vector<std::string>& all, std::size_t number) {
        return number < all.size() ? all[number] : std::string("nothing");
    };
    for (std::size_t number = 0;; ++number) {
        for (std::size_t i = 0; i < lines.size(); ++i) {
            found.lines[i] = line(lines[i], number);
        }
        if (std::ranges::adjacent_find(found.lines, std::ranges::not_equal_to()) !=
                found.lines.end() ||
            number >= lines.front().size()) {
            return found;
        }
        if (found.lines.front().starts_with('[')) {
            found.table = found.lines.front() + " ";
        }
    }
}

}  // namespace

std::optional<exec::LaunchedProcess> one_of_several() {
    auto process = exec::launched_process(exec::environment_variables());
    return process && process->count > 1 ? process : std::nullopt;
}

void expect_processes(int count, const SettledScenario& scenario, std::string_view place) {
    const int stages = scenario.pipeline.stages;
    const int replicas = scenario.pipeline.data_parallel;
    const int devices = scenario.pipeline.tensor_parallel;
    const int expected = stages * replicas * devices;
    if (count != expected) {
        const auto times = [](std::string_view key, int degree) {
            return degree > 1 ? fmt::format(" times pipeline.{} = {}", key, degree) : "";
        };
        throw Error(ErrorKind::Usage,
                    std::string(place),
                    fmt::format("{}, expected {}: pipeline.stages = {}{}{}",
                                counted(count, "process"),
                                expected,
                                stages,
                                times("data_parallel", replicas),
                                times("tensor_parallel", devices)),
                    fmt::format("start {}, or change the scenario", counted(expected, "process")));
    }
}

Processes::Processes(const exec::LaunchedProcess& launched, const SettledScenario& scenario)
    : flight_(std::make_unique<exec::FlightRecorder>()) {
    // Without MPI no host knows what is wrong on another one.
    const bool speaks = by_nccl_alone(launched) ? launched.local_index == 0 : launched.index == 0;
    try {
        expect_processes(launched.count, scenario, "processes");
        refuse_without_transport(launched, scenario);
    } catch (const Error& error) {
        if (speaks) {
            throw;
        }
        throw ReportedByPeer(exit_code(error.kind()));
    }
    joined_ = join(launched, scenario.cluster.link_ctas);
    if (joined_->size() != launched.count || joined_->index() != launched.index) {
        throw Error(ErrorKind::Unavailable,
                    "MPI",
                    fmt::format("this process is {} of {} by its environment, but {} of {} by MPI",
                                launched.index,
                                launched.count,
                                joined_->index(),
                                joined_->size()),
                    "start it with the mpirun of Open MPI 4, or with srun --mpi=pmix");
    }
    group_ = joined_.get();
    const bool on_gpus = exec::traits(scenario.cluster.backend).needs_gpu;
    meet_all(scenario.pipeline.stages, scenario.pipeline.tensor_parallel, on_gpus);
    if (on_gpus) {
        gpu_ = by_nccl_alone(launched)
                   ? local_gpu(launched)
                   : own_gpu(hosts_, gpus_[as_index(launched.index)], launched.index);
    }
    if (on_gpus && !by_nccl_alone(launched)) {
        joined_ =
            exec::with_gpus(std::move(joined_), exec::cuda_links(gpu_, scenario.cluster.link_ctas));
        group_ = joined_.get();
    }
    monitor_ = std::make_unique<exec::Monitor>(*group_, names_, silence_limit);
}

Processes::Processes()
    : hosts_{0},
      gpus_{0},
      monitor_(std::make_unique<exec::Monitor>()),
      flight_(std::make_unique<exec::FlightRecorder>()) {}

/// Learns the names, hosts and GPUs of all processes. To be called by all.
void Processes::meet_all(int ranks, int devices, bool on_gpus) {
    exec::ByteWriter self;
    self.put_text(fmt::format("{} on {}", getpid(), host_name()));
    self.put_text(host_name() + boot_id());
    self.put(on_gpus ? static_cast<int>(exec::probe_cuda().devices.size()) : 0);
    const auto all = group_->all_gather(self.bytes());
    std::vector<std::string> hosts;
    for (int process = 0; process < group_->size(); ++process) {
        exec::ByteReader theirs(all[as_index(process)]);
        std::string name = fmt::format("process {} (rank {}", process, process / devices % ranks);
        if (devices > 1) {
            name += fmt::format(", device {}", process % devices);
        }
        if (group_->size() > ranks * devices) {
            name += fmt::format(" of replica {}", process / devices / ranks);
        }
        name += fmt::format(", pid {})", theirs.get_text());
        names_.push_back(std::move(name));
        const std::string host = theirs.get_text();
        hosts_.push_back(static_cast<int>(std::ranges::find(hosts, host) - hosts.begin()));
        if (std::cmp_equal(hosts_.back(), hosts.size())) {
            hosts.push_back(host);
        }
        gpus_.push_back(theirs.get<int>());
    }
}

void Processes::expect_a_gpu_each() const {
    for (std::size_t process = 0; process < hosts_.size(); ++process) {
        const auto here = std::ranges::count(hosts_, hosts_[process]);
        const int gpus = gpus_[process];
        if (gpus > 0 && here > gpus && !may_share_gpus()) {
            throw too_few_gpus(names_[process], here, gpus);
        }
    }
}

void Processes::record_into(const std::filesystem::path& folder) {
    if (is_alone()) {
        return;
    }
    const std::size_t own = as_index(group_->index());
    flight_ = std::make_unique<exec::FlightRecorder>(
        folder / fmt::format("process-{:04}.txt", group_->index()), names_[own]);
}

void Processes::agree_on(const std::vector<std::pair<std::string, std::string>>& fields) {
    exec::ByteWriter mine;
    for (const auto& [name, value] : fields) {
        mine.put_text(value);
    }
    const auto all = group_->all_gather(mine.bytes());
    std::vector<exec::ByteReader> theirs(all.begin(), all.end());
    for (const auto& [name, value] : fields) {
        std::vector<std::string> values;
        for (exec::ByteReader& each : theirs) {
            values.push_back(each.get_text());
        }
        if (std::ranges::adjacent_find(values, std::ranges::not_equal_to()) == values.end()) {
            continue;
        }
        const Difference difference = first_difference(values);
        std::map<std::string, std::vector<std::size_t>> who_has;
        for (std::size_t process = 0; process < values.size(); ++process) {
            who_has[difference.lines[process]].push_back(process);
        }
        std::vector<std::string> groups;
        for (const auto& [what, processes] : who_has) {
            groups.push_back(fmt::format("{} in process {}", what, fmt::join(processes, ", ")));
        }
        throw Error(ErrorKind::Disagreement,
                    name,
                    fmt::format("the processes do not have the same: {}{}",
                                difference.table,
                                fmt::join(groups, "; ")),
                    "give all of them the same files, options and build");
    }
}

std::string Processes::from_first(const std::function<std::string()>& make) {
    exec::ByteWriter message;
    std::exception_ptr failure;
    if (is_first()) {
        try {
            const std::string made = make();
            message.put(true).put_text(made);
        } catch (const Error& error) {
            failure = std::current_exception();
            message.put(false).put_error(error);
        } catch (const std::exception& exception) {
            failure = std::current_exception();
            message.put(false).put_error({ErrorKind::Other, "", exception.what()});
        }
    }
    const auto all = group_->all_gather(message.bytes());
    if (failure) {
        std::rethrow_exception(failure);
    }
    exec::ByteReader first(all.front());
    if (first.get<bool>()) {
        return first.get_text();
    }
    throw first.get_error();
}

std::exception_ptr Processes::loss() const {
    return std::make_exception_ptr(
        Error(ErrorKind::Hang,
              "",
              monitor_->lost().value_or("another process") +
                  " has not been heard of for too long: it was stopped, it died, or the network to "
                  "its host is cut",
              exec::hint_of_lost_host()));
}

void Processes::run(Console& console, const std::function<void()>& work) {
    if (is_alone()) {
        return work();
    }
    std::exception_ptr failure;
    bool follows = false;  // from what another process did
    try {
        work();
    } catch (const exec::ProcessLost&) {
        failure = loss();
    } catch (const exec::ChannelClosed&) {
        failure = std::current_exception();
        follows = true;
        group_->abort();
    } catch (...) {
        failure = std::current_exception();
        group_->abort();
    }
    flight_->note(failure ? "ends with a failure: " + text_of(failure) : "ends well");
    // Whoever ends takes the others with it, so what is to be said is said before.
    const LastWord mine{.code = failure ? exit_code_of(failure) : 0, .follows = follows};
    const auto all = group_->final_barrier(std::as_bytes(std::span(&mine, 1)), patience);
    if (!all) {
        // The first that is left speaks, and takes the others with it.
        std::this_thread::sleep_for(turn * group_->index());
        // That channels were closed says nothing of its own. Some process has not come here, even
        // where the first, which hears of all, has ended before it could name it.
        if (follows || (!failure && monitor_->lost())) {
            failure = loss();
        }
        if (failure) {
            std::rethrow_exception(failure);
        }
        throw Error(ErrorKind::WorkerFailed,
                    fmt::format("process {}", group_->index()),
                    "another process has ended without a word",
                    "look at the output on its host");
    }
    std::vector<LastWord> words;
    for (const auto& each : *all) {
        words.push_back(exec::ByteReader(each).get<LastWord>());
    }
    auto speaker = std::ranges::find_if(
        words, [](const LastWord& word) { return word.code != 0 && !word.follows; });
    if (speaker == words.end()) {
        speaker = std::ranges::find_if(words, &LastWord::follows);
    }
    if (speaker == words.end()) {
        monitor_.reset();
        group_->finalize();
        if (failure && is_first()) {
            std::rethrow_exception(failure);  // nothing that failed
        }
        return;
    }
    if (speaker - words.begin() == group_->index()) {
        report_failure(failure, console);
        console.flush();
    }
    static_cast<void>(group_->final_barrier({}, patience));
    throw ReportedByPeer(speaker->code);
}

exec::ProcessPlace Processes::place() {
    exec::ProcessPlace place{
        .group = group_, .monitor = monitor_.get(), .flight = flight_.get(), .gpu = gpu_};
    if (!is_alone()) {
        const std::optional<std::vector<int>> cores = own_cores();
        place.cores = cores.value_or(std::vector<int>{});
        place.shares_cores = !cores;
    }
    return place;
}

std::optional<std::vector<int>> Processes::own_cores() {
    const std::vector<int> mine = exec::allowed_cores();
    exec::ByteWriter message;
    message.put_text(boot_id()).put_all(std::span<const int>(mine));
    const auto all = group_->all_gather(message.bytes());
    std::vector<std::vector<int>> here;  // of the processes of this host
    std::size_t place = 0;
    for (int process = 0; process < group_->size(); ++process) {
        exec::ByteReader theirs(all[as_index(process)]);
        if (theirs.get_text() == boot_id()) {
            if (process == group_->index()) {
                place = here.size();
            }
            here.push_back(theirs.get_all<int>());
        }
    }
    const bool all_alike =
        std::ranges::all_of(here, [&](const auto& each) { return each == mine; });
    if (all_alike && mine.size() >= here.size()) {
        return std::vector<int>{mine[place]};
    }
    const auto has = [](const std::vector<int>& cores, int core) {
        return std::ranges::find(cores, core) != cores.end();
    };
    for (const int core : mine) {
        if (std::ranges::count_if(here, [&](const auto& each) { return has(each, core); }) == 1) {
            return std::vector<int>{core};
        }
    }
    return std::nullopt;
}

}  // namespace pipetwin::cli

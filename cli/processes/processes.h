// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/base/console.h"
#include "core/base/error.h"
#include "exec/executor/flight_recorder.h"
#include "exec/executor/process_place.h"
#include "exec/transport/launch_environment.h"
#include "exec/transport/monitor.h"
#include "exec/transport/process_group.h"

namespace pipetwin {

struct SettledScenario;

}  // namespace pipetwin

namespace pipetwin::cli {

/// The processes of one training, seen from this one: this one alone, or one for each rank of each
/// replica.
class Processes {
  public:
    /// The calling process alone.
    Processes();
    /// Joins the others that a launcher has started. Throws Error(Usage) unless there is one for
    /// each rank of each replica, Error(Unavailable) where they cannot reach each other.
    Processes(const exec::LaunchedProcess& launched, const SettledScenario& scenario);

    exec::ProcessGroup& group() { return *group_; }
    exec::Monitor& monitor() { return *monitor_; }
    /// Begins the record of what this process does, in a folder that all processes name alike. A
    /// process alone keeps none.
    void record_into(const std::filesystem::path& folder);
    bool is_alone() const { return group_->is_alone(); }
    /// The one that writes the run folder, and speaks.
    bool is_first() const { return group_->index() == 0; }
    /// Calls `work` in the first process alone. What all do together has no place in it.
    template <class Work>
    void leader_only(const Work& work) const {
        if (is_first()) {
            work();
        }
    }

    /// Throws Error(Disagreement), naming the field and who has what, unless all have the same.
    void agree_on(const std::vector<std::pair<std::string, std::string>>& fields);

    /// What the first process gets from `make`, in all of them; what it throws as well.
    std::string from_first(const std::function<std::string()>& make);

    /// Calls `work`, then ends well together with all others; alone it ends as `work` does. Of what
    /// several of them throw, the first to have thrown says it; for all others ReportedByPeer is
    /// thrown.
    void run(Console& console, const std::function<void()>& work);

    /// [process] which host it is on, counted from 0 in the order of the processes.
    const std::vector<int>& hosts() const { return hosts_; }

    /// Throws Error(Unavailable), the same in all of them, where a host has more processes than
    /// GPUs. One without any says for itself why.
    void expect_a_gpu_each() const;

    /// The GPU that this process has for itself, of those that it sees. 0 where none is trained on.
    int gpu() const { return gpu_; }

    /// Where this process stands, for its training. To be called by all, after `record_into`.
    exec::ProcessPlace place();

  private:
    void meet_all(int ranks, int devices, bool on_gpus);
    /// The cores that this process has for itself; none where it shares them.
    std::optional<std::vector<int>> own_cores();
    /// That a process was lost, as an error: whose, as far as it is known.
    std::exception_ptr loss() const;

    std::unique_ptr<exec::ProcessGroup> joined_;  ///< of a launcher; first to come, last to go
    exec::ProcessGroup* group_ = &exec::local_process_group();
    std::vector<std::string> names_;  ///< [process]
    std::vector<int> hosts_;
    std::vector<int> gpus_;  ///< [process] how many its host shows it
    int gpu_ = 0;
    std::unique_ptr<exec::Monitor> monitor_;
    std::unique_ptr<exec::FlightRecorder> flight_;  ///< records nothing before `record_into`
};

/// What the launcher says of this process, as one of several; none: it was started alone. Throws
/// Error(Usage).
std::optional<exec::LaunchedProcess> one_of_several();

/// Throws Error(Usage), with `place`, unless there are as many processes as devices of all ranks
/// in all replicas.
void expect_processes(int count, const SettledScenario& scenario, std::string_view place);

}  // namespace pipetwin::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "exec/base/retry.h"

namespace pipetwin {

struct Scenario;

}  // namespace pipetwin

namespace pipetwin::cli {

/// The files of a run folder; other programs rely on these names.
namespace run_file {
constexpr std::string_view scenario = "scenario.toml";
constexpr std::string_view profile = "profile.json";
constexpr std::string_view pieces = "pieces.model";  ///< where data.pieces is set
constexpr std::string_view search = "search.json";   ///< where something was "auto"
constexpr std::string_view plan = "plan.json";
constexpr std::string_view schedule = "schedule.csv";
constexpr std::string_view predicted = "predicted.trace.json";
constexpr std::string_view measured = "measured.trace.json";
constexpr std::string_view metrics = "metrics.jsonl";
constexpr std::string_view live = "live.jsonl";  ///< with --live
constexpr std::string_view report_json = "report.json";
constexpr std::string_view report_html = "report.html";
constexpr std::string_view checkpoints = "checkpoints";   ///< a folder
constexpr std::string_view flight = "flight";             ///< a folder, of several processes
constexpr std::string_view config = "model.config.json";  ///< of `plan MODEL`: the model's own
constexpr std::string_view megatron_flags = "megatron-flags.txt";  ///< of `plan MODEL`, as is:
constexpr std::string_view torchtitan = "torchtitan.json";
constexpr std::string_view sbatch = "job.sbatch";
constexpr std::string_view launch = "launch.sh";
constexpr std::string_view torch_schedule = "torch-schedule.csv";
constexpr std::string_view torch_loader = "load_schedule.py";
constexpr std::string_view commands = "commands.sh";
}  // namespace run_file

/// A folder that this process alone writes to: it holds a lock on the file `lock` in it, with its
/// process id inside, which goes with the process however that ends.
///
/// Nothing but the lock is written before `begin`, so that a command that is refused leaves
/// everything as it was: a folder that was created for it goes again, and an old run that was to be
/// removed stays.
class RunFolder {
  public:
    /// What happens to a run that is in the folder already.
    enum class Old { Refused, Removed, GoesOn };

    /// Creates the folder where it is missing. Throws Error(Io) if another process holds it, naming
    /// the process, if it holds a run that is refused, naming its checkpoints, or none that could
    /// go on, or if a folder of the run is a link. What a refused command or an early end has left
    /// there is no run; a checkpoint alone is one.
    RunFolder(std::filesystem::path path, Old old);
    RunFolder(const RunFolder&) = delete;
    RunFolder& operator=(const RunFolder&) = delete;
    ~RunFolder();

    const std::filesystem::path& path() const { return path_; }
    /// The path of a file in the folder.
    std::filesystem::path file(std::string_view name) const { return path_ / name; }

    /// Writes a file in the folder, or keeps it until `begin`. Throws Error(Io), unless `keep_on`
    /// was called.
    void write(std::string_view name, std::string content);
    /// Writes the scenario of a plan whose schedule and costs are files of the folder: it names
    /// those, so that the folder may move.
    void write_scenario(Scenario scenario);
    /// Removes an old run where that is to be removed, and writes what was kept. Throws Error(Io),
    /// with the folder as it was but for that old run.
    void begin();

    /// Begins, and waits for a disk that is full for so long. From then on a file that cannot be
    /// written is kept and `tell` gets the reason, once for each file.
    void keep_on(std::chrono::milliseconds patience, std::function<void(const std::string&)> tell);
    /// Tries again to write the files that are kept, unless it did so a moment ago.
    void write_kept();
    /// Writes the files that are kept, and waits for the disk for so long. Throws Error(Io), naming
    /// the first of them that could not be written.
    void finish(std::chrono::milliseconds patience);
    /// Returns when the folder is found again after a cut of the power, with what a training needs
    /// to continue: the names of its files, and the bytes of scenario, costs and vocabulary. Throws
    /// Error(Io).
    void bring_to_disk();
    /// Throws Error(Io) if the path names this folder no more: it was removed, renamed or replaced,
    /// and what is written into open files of it is lost.
    void expect_still_there() const;

  private:
    struct Kept {
        std::string name;
        std::string content;
        bool told = false;  ///< that it cannot be written
    };

    void create();
    void lock();
    void unlock();
    void refuse_used() const;
    void expect_run() const;
    void remove_old() const;
    void write_all();
    void leave_nothing() noexcept;

    std::filesystem::path path_;
    Old old_;
    int lock_file_ = -1;
    dev_t device_ = 0;  ///< of the folder, with its inode
    ino_t inode_ = 0;
    bool has_begun_ = false;
    bool is_on_disk_ = false;                     ///< `bring_to_disk` has nothing to do
    std::vector<std::filesystem::path> created_;  ///< folders, the innermost last
    std::vector<std::filesystem::path> written_;  ///< files, before it has begun
    std::vector<Kept> kept_;                      ///< in the order of their first `write`
    std::function<void(const std::string&)> tell_;
    exec::Retry retry_;
};

/// What happens to a run that is there already, by --force.
constexpr RunFolder::Old unless_forced(bool force) {
    return force ? RunFolder::Old::Removed : RunFolder::Old::Refused;
}

/// "runs/NAME-N" with the smallest N that is not there yet, or holds no more than a refused command
/// or an early end has left.
std::filesystem::path unused_run_folder(const std::string& name);

}  // namespace pipetwin::cli

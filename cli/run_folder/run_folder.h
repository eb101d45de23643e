#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace pipetwin::cli {

/// The files of a run folder; other programs rely on these names.
namespace run_file {
constexpr std::string_view scenario = "scenario.toml";
constexpr std::string_view profile = "profile.json";
constexpr std::string_view search = "search.json";  ///< where something was "auto"
constexpr std::string_view plan = "plan.json";
constexpr std::string_view schedule = "schedule.csv";
constexpr std::string_view predicted = "predicted.trace.json";
constexpr std::string_view measured = "measured.trace.json";
constexpr std::string_view metrics = "metrics.jsonl";
constexpr std::string_view live = "live.jsonl";  ///< with --live
constexpr std::string_view report_json = "report.json";
constexpr std::string_view report_html = "report.html";
constexpr std::string_view checkpoints = "checkpoints";  ///< a folder
constexpr std::string_view flight = "flight";            ///< a folder, of several processes
}  // namespace run_file

/// A folder that this process alone writes to: it holds a lock on the file `lock` in it, with its
/// process id inside, which goes with the process however that ends.
class RunFolder {
  public:
    /// What happens to a run that is in the folder already.
    enum class Old { Refused, Removed, GoesOn };

    /// Creates the folder where it is missing. Throws Error(Io) if another process holds it, naming
    /// the process, if it holds a run that is refused, or none that could go on, or if a folder of
    /// the run is a link.
    RunFolder(std::filesystem::path path, Old old);
    RunFolder(const RunFolder&) = delete;
    RunFolder& operator=(const RunFolder&) = delete;
    ~RunFolder();

    const std::filesystem::path& path() const { return path_; }
    /// The path of a file in the folder.
    std::filesystem::path file(std::string_view name) const { return path_ / name; }
    /// Writes a file in the folder; a link of its name is replaced. Throws Error(Io).
    void write(std::string_view name, std::string_view content) const;

  private:
    void lock();
    void refuse_used() const;
    void expect_run() const;
    void remove_old() const;

    std::filesystem::path path_;
    int lock_file_ = -1;
};

/// What happens to a run that is there already, by --force.
constexpr RunFolder::Old unless_forced(bool force) {
    return force ? RunFolder::Old::Removed : RunFolder::Old::Refused;
}

/// "runs/NAME-N" with the smallest N that is not there yet.
std::filesystem::path unused_run_folder(const std::string& name);

}  // namespace pipetwin::cli

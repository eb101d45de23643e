// SPDX-License-Identifier: Apache-2.0
#include "cli/run_folder/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/scenario/scenario.h"
#include "core/text/json_text.h"
#include "core/text/own_file.h"
#include "exec/base/durable_file.h"
#include "exec/base/stored_checkpoint.h"

namespace pipetwin::cli {

namespace {

constexpr std::string_view lock_name = "lock";

/// What a command that was refused late has left in earlier versions, and the profile, which
/// `pipetwin profile --out DIR` may have put there first.
constexpr std::array early_files{run_file::scenario, run_file::search, run_file::profile};

/// What a checkpoint is of no use without.
constexpr std::array durable_files{run_file::scenario, run_file::profile, run_file::pieces};

/// What else a run leaves behind.
constexpr std::array run_files{run_file::plan,
                               run_file::schedule,
                               run_file::predicted,
                               run_file::measured,
                               run_file::metrics,
                               run_file::live,
                               run_file::report_json,
                               run_file::report_html,
                               run_file::config,
                               run_file::megatron_flags,
                               run_file::sbatch,
                               run_file::launch,
                               run_file::torch_schedule,
                               run_file::torch_loader,
                               run_file::commands,
                               run_file::torchtitan};

[[noreturn]] void fail(const std::filesystem::path& path, std::string_view doing, int code) {
    throw Error(ErrorKind::Io,
                path.string(),
                fmt::format("cannot {}: {}", doing, std::generic_category().message(code)),
                "name another folder with --out DIR");
}

/// The process id that the holder of the lock wrote into it.
std::string holder(int file) {
    std::array<char, 32> text{};
    const ssize_t count = pread(file, text.data(), text.size(), 0);
    std::string id(text.data(), count > 0 ? as_index(count) : 0);
    id.erase(id.find_last_not_of('\n') + 1);
    return id.empty() ? "another process" : "process " + id;
}

/// True if `file` still is what the path names: its last holder removes the file while holding it.
bool still_there(int file, const std::filesystem::path& path) {
    struct stat opened {};
    struct stat named {};
    return fstat(file, &opened) == 0 && stat(path.c_str(), &named) == 0 &&
           opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

/// Whether a scenario is one that a command has put into its folder, and no file of the user's.
bool is_printed_scenario(const std::filesystem::path& file) {
    try {
        constexpr std::size_t most_bytes = std::size_t{16} << 20U;
        const std::string text = read_file(file, most_bytes);
        return print_scenario(parse_scenario(text, file, {})) == text;
    } catch (const Error&) {
        return false;
    }
}

/// The first file in a folder that shows a run; empty where it holds none.
std::string_view sign_of_run(const std::filesystem::path& folder) {
    std::error_code ignored;
    if (const std::filesystem::path scenario = folder / run_file::scenario;
        std::filesystem::exists(scenario, ignored) && !is_printed_scenario(scenario)) {
        return run_file::scenario;
    }
    for (const std::string_view name : run_files) {
        if (std::filesystem::exists(folder / name, ignored)) {
            return name;
        }
    }
    const std::filesystem::path checkpoints = folder / run_file::checkpoints;
    const bool has_checkpoints =  // a link is refused for what it is
        std::filesystem::is_directory(std::filesystem::symlink_status(checkpoints, ignored));
    return has_checkpoints ? run_file::checkpoints : "";
}

/// Whether a folder, which is there, holds nothing but what a refused command or an early end has
/// left in it, and no process does.
bool holds_no_more_than_leftovers(const std::filesystem::path& folder) {
    std::error_code status;
    bool has_scenario = false;
    bool has_profile = false;  // alone it is one that the user has measured
    for (const auto& entry : std::filesystem::directory_iterator(folder, status)) {
        const std::string name = entry.path().filename().string();
        if (name != lock_name && std::ranges::find(early_files, name) == early_files.end()) {
            return false;
        }
        has_scenario = has_scenario || name == run_file::scenario;
        has_profile = has_profile || name == run_file::profile;
    }
    if (status || has_profile > has_scenario || !sign_of_run(folder).empty()) {
        return false;
    }
    const int file = open((folder / lock_name).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0) {
        return true;
    }
    const bool is_free = flock(file, LOCK_EX | LOCK_NB) == 0;
    close(file);
    return is_free;
}

}  // namespace

RunFolder::RunFolder(std::filesystem::path path, Old old) : path_(std::move(path)), old_(old) {
    if (old == Old::GoesOn) {
        expect_run();
    } else if (old == Old::Refused) {
        refuse_used();
    }
    create();
    try {
        lock();
        struct stat folder {};
        if (stat(path_.c_str(), &folder) == 0) {
            device_ = folder.st_dev;
            inode_ = folder.st_ino;
        }
        if (old == Old::Refused) {
            refuse_used();  // now that no other process writes there
        }
        expect_own_folder(file(run_file::flight));
        if (old != Old::Removed) {
            expect_own_folder(file(run_file::checkpoints));
        }
    } catch (...) {
        leave_nothing();
        throw;
    }
}

RunFolder::~RunFolder() {
    if (has_begun_) {
        unlock();
    } else {
        leave_nothing();
    }
}

void RunFolder::create() {
    std::error_code status;
    std::vector<std::filesystem::path> missing;
    for (std::filesystem::path folder = std::filesystem::absolute(path_).lexically_normal();
         !std::filesystem::exists(folder, status) && folder.has_relative_path();
         folder = folder.parent_path()) {
        missing.push_back(folder);
    }
    std::ranges::reverse(missing);
    created_ = std::move(missing);
    std::filesystem::create_directories(path_, status);
    if (status) {
        leave_nothing();
        fail(path_, "create the folder", status.value());
    }
}

/// Makes the folder what it was before the constructor, but for what other processes have written
/// meanwhile.
void RunFolder::leave_nothing() noexcept {
    std::error_code ignored;
    for (const std::filesystem::path& file : written_) {
        std::filesystem::remove(file, ignored);
    }
    unlock();
    if (!created_.empty()) {  // of several processes
        std::filesystem::remove_all(created_.back() / run_file::flight, ignored);
    }
    for (auto folder = created_.rbegin(); folder != created_.rend(); ++folder) {
        ::rmdir(folder->c_str());  // one that is not empty stays
    }
}

void RunFolder::unlock() {
    if (lock_file_ >= 0) {
        std::error_code ignored;
        std::filesystem::remove(path_ / lock_name, ignored);
        close(lock_file_);
        lock_file_ = -1;
    }
}

void RunFolder::lock() {
    const std::filesystem::path path = path_ / lock_name;
    while (true) {
        lock_file_ = open_own_file(path);
        if (flock(lock_file_, LOCK_EX | LOCK_NB) != 0) {
            const std::string who = holder(lock_file_);
            close(lock_file_);
            lock_file_ = -1;
            throw Error(ErrorKind::Io,
                        path_.string(),
                        fmt::format("the folder is in use by {}", who),
                        "wait for it to end, or name another folder with --out DIR");
        }
        if (still_there(lock_file_, path)) {
            break;
        }
        close(std::exchange(lock_file_, -1));
    }
    // For people and for errors: without room on the disk it stays empty.
    const std::string id = fmt::format("{}\n", getpid());
    if (ftruncate(lock_file_, 0) == 0) {
        static_cast<void>(pwrite(lock_file_, id.data(), id.size(), 0) > 0);
    }
}

void RunFolder::expect_run() const {
    std::error_code ignored;
    if (!std::filesystem::exists(file(run_file::scenario), ignored) &&
        exec::whole_checkpoints(file(run_file::checkpoints)).empty()) {
        throw Error(ErrorKind::Io,
                    path_.string(),
                    "there is no run here to continue",
                    "name the folder of one with --out DIR, or leave --resume out");
    }
}

void RunFolder::refuse_used() const {
    if (const std::vector<int> steps = exec::whole_checkpoints(file(run_file::checkpoints));
        !steps.empty()) {
        throw Error(ErrorKind::Io,
                    path_.string(),
                    fmt::format("the folder holds a run already, with {} after {} {}",
                                steps.size() == 1 ? "a checkpoint" : "checkpoints",
                                fmt::join(steps, " and "),
                                steps == std::vector{1} ? "step" : "steps"),
                    "continue it with 'pipetwin train SCENARIO.toml --out DIR --resume', or name "
                    "another folder with --out DIR");
    }
    if (const std::string_view name = sign_of_run(path_); !name.empty()) {
        throw Error(ErrorKind::Io,
                    path_.string(),
                    fmt::format("the folder holds a run already ({})", name),
                    "name another folder with --out DIR, or overwrite it with --force");
    }
}

void RunFolder::remove_old() const {
    const auto remove = [this](std::string_view name) {
        std::error_code status;
        std::filesystem::remove_all(file(name), status);
        if (status) {
            fail(file(name), "remove the old file", status.value());
        }
    };
    std::ranges::for_each(run_files, remove);
    remove(run_file::scenario);
    remove(run_file::search);
    remove(run_file::checkpoints);
}

void RunFolder::write(std::string_view name, std::string content) {
    const auto old = std::ranges::find(kept_, name, &Kept::name);
    if (old != kept_.end()) {
        old->content = std::move(content);
    } else {
        kept_.push_back({.name = std::string(name), .content = std::move(content)});
    }
    if (has_begun_) {
        retry_.succeeded();
        write_kept();
    }
}

void RunFolder::write_scenario(Scenario scenario) {
    if (has_schedule_file(scenario)) {
        scenario.pipeline.schedule = std::string(run_file::schedule);
    }
    if (scenario.model.kind == ModelKind::Profile) {
        scenario.model.profile = run_file::profile;
    }
    write(run_file::scenario, print_scenario(scenario));
}

void RunFolder::begin() {
    if (old_ != Old::GoesOn) {
        remove_old();
        old_ = Old::GoesOn;  // what is there from now on is of this run
    }
    write_all();
    has_begun_ = true;
}

void RunFolder::keep_on(std::chrono::milliseconds patience,
                        std::function<void(const std::string&)> tell) {
    exec::keep_trying(
        patience,
        [this] { begin(); },
        [&](const Error& error) {
            tell(fmt::format("{}: {}; waits for the disk", error.place(), error.text()));
        });
    tell_ = std::move(tell);
}

/// Writes what is kept, in its order. One that cannot be written stays, and those behind it are
/// written all the same, but not before the run has begun. Throws the first Error(Io).
void RunFolder::write_all() {
    std::vector<Kept> failed;
    std::exception_ptr first;
    for (Kept& kept : std::exchange(kept_, {})) {
        const std::filesystem::path path = file(kept.name);
        std::error_code ignored;
        const bool is_new = !has_begun_ && !std::filesystem::exists(path, ignored);
        try {
            if (!first || has_begun_) {
                const bool is_durable =
                    std::ranges::find(durable_files, kept.name) != durable_files.end();
                is_on_disk_ = false;
                replace_file(path, kept.content, is_durable ? Flush::Yes : Flush::No);
                if (is_new) {
                    written_.push_back(path);
                }
                continue;
            }
        } catch (const Error& error) {
            if (!first) {
                first = std::current_exception();
            }
            if (tell_ && !std::exchange(kept.told, true)) {
                tell_(fmt::format("{}: {}; it is written later", error.place(), error.text()));
            }
        }
        failed.push_back(std::move(kept));
    }
    kept_ = std::move(failed);
    if (first) {
        std::rethrow_exception(first);
    }
}

void RunFolder::write_kept() {
    if (retry_.has_failed() && !retry_.is_due(exec::Retry::Clock::now())) {
        return;
    }
    try {
        write_all();
        retry_.succeeded();
    } catch (const Error& error) {
        if (!tell_ || error.kind() != ErrorKind::Io) {
            throw;
        }
        retry_.failed(exec::Retry::Clock::now());
    }
}

void RunFolder::finish(std::chrono::milliseconds patience) {
    try {
        exec::keep_trying(
            patience, [this] { write_all(); }, [](const Error&) {});
    } catch (const Error& error) {
        std::vector<std::string> lacking;
        std::ranges::transform(kept_, std::back_inserter(lacking), &Kept::name);
        throw error.with_text(
            fmt::format("{}; the run folder lacks {}", error.text(), fmt::join(lacking, ", ")));
    }
}

void RunFolder::bring_to_disk() {
    if (is_on_disk_) {
        return;
    }
    exec::flush_folder(path_);
    for (const std::filesystem::path& folder : created_) {
        exec::flush_folder(folder.parent_path());
    }
    is_on_disk_ = true;
}

void RunFolder::expect_still_there() const {
    struct stat named {};
    const bool is_there = stat(path_.c_str(), &named) == 0;
    if (is_there && named.st_dev == device_ && named.st_ino == inode_) {
        return;
    }
    throw Error(ErrorKind::Io,
                path_.string(),
                is_there ? "another folder replaced the run folder during the training"
                         : "the folder has been removed or renamed while the run trained",
                "leave the folder where it is until the run ends; train again with --out DIR");
}

std::filesystem::path unused_run_folder(const std::string& name) {
    for (int number = 1;; ++number) {
        std::filesystem::path path =
            std::filesystem::path("runs") / fmt::format("{}-{}", name, number);
        std::error_code ignored;
        if (!std::filesystem::exists(path, ignored) || holds_no_more_than_leftovers(path)) {
            return path;
        }
    }
}

}  // namespace pipetwin::cli

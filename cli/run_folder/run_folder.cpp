#include "cli/run_folder/run_folder.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/text/own_file.h"

namespace pipetwin::cli {

namespace {

constexpr std::string_view lock_name = "lock";

/// Whatever a run leaves behind, but the profile: `pipetwin profile --out DIR` may have put that
/// there first.
constexpr std::array run_files{run_file::scenario,
                               run_file::search,
                               run_file::plan,
                               run_file::schedule,
                               run_file::predicted,
                               run_file::measured,
                               run_file::metrics,
                               run_file::live,
                               run_file::report_json,
                               run_file::report_html};

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

}  // namespace

RunFolder::RunFolder(std::filesystem::path path, Old old) : path_(std::move(path)) {
    if (old == Old::GoesOn) {
        expect_run();
    }
    std::error_code status;
    std::filesystem::create_directories(path_, status);
    if (status) {
        fail(path_, "create the folder", status.value());
    }
    lock();
    try {
        if (old == Old::Removed) {
            remove_old();
        } else if (old == Old::Refused) {
            refuse_used();
        }
        for (const std::string_view inner : {run_file::checkpoints, run_file::flight}) {
            expect_own_folder(file(inner));
        }
    } catch (...) {
        close(lock_file_);
        throw;
    }
}

RunFolder::~RunFolder() {
    std::error_code ignored;
    std::filesystem::remove(path_ / lock_name, ignored);
    close(lock_file_);
}

void RunFolder::lock() {
    const std::filesystem::path path = path_ / lock_name;
    while (true) {
        lock_file_ = open_own_file(path);
        if (flock(lock_file_, LOCK_EX | LOCK_NB) != 0) {
            const std::string who = holder(lock_file_);
            close(lock_file_);
            throw Error(ErrorKind::Io,
                        path_.string(),
                        fmt::format("the folder is in use by {}", who),
                        "wait for it to end, or name another folder with --out DIR");
        }
        if (still_there(lock_file_, path)) {
            break;
        }
        close(lock_file_);
    }
    const std::string id = fmt::format("{}\n", getpid());
    if (ftruncate(lock_file_, 0) != 0 ||
        pwrite(lock_file_, id.data(), id.size(), 0) != static_cast<ssize_t>(id.size())) {
        const int code = errno;
        close(lock_file_);
        fail(path, "write the lock", code);
    }
}

void RunFolder::expect_run() const {
    std::error_code ignored;
    if (!std::filesystem::exists(file(run_file::scenario), ignored)) {
        throw Error(ErrorKind::Io,
                    path_.string(),
                    "there is no run here that could go on",
                    "name the folder of one with --out DIR, or leave --resume out");
    }
}

void RunFolder::refuse_used() const {
    for (const std::string_view name : run_files) {
        std::error_code ignored;
        if (std::filesystem::exists(file(name), ignored)) {
            throw Error(ErrorKind::Io,
                        path_.string(),
                        fmt::format("the folder holds a run already ({})", name),
                        "name another folder with --out DIR, or overwrite it with --force");
        }
    }
}

void RunFolder::remove_old() const {
    for (const std::string_view name : run_files) {
        std::error_code status;
        std::filesystem::remove(file(name), status);
        if (status) {
            fail(file(name), "remove the old file", status.value());
        }
    }
    std::error_code status;
    std::filesystem::remove_all(file(run_file::checkpoints), status);
    if (status) {
        fail(file(run_file::checkpoints), "remove the old checkpoints", status.value());
    }
}

void RunFolder::write(std::string_view name, std::string_view content) const {
    replace_file(file(name), content);
}

std::filesystem::path unused_run_folder(const std::string& name) {
    for (int number = 1;; ++number) {
        std::filesystem::path path =
            std::filesystem::path("runs") / fmt::format("{}-{}", name, number);
        std::error_code ignored;
        if (!std::filesystem::exists(path, ignored)) {
            return path;
        }
    }
}

}  // namespace pipetwin::cli

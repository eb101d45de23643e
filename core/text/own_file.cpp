// SPDX-License-Identifier: Apache-2.0
#include "core/text/own_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/text/open_file.h"

namespace pipetwin {

namespace {

[[noreturn]] void refuse_to_write(const std::filesystem::path& file,
                                  std::string what,
                                  std::string hint) {
    throw Error(ErrorKind::Io, file.string(), std::move(what), std::move(hint));
}

constexpr const char* remove_it = "remove it, or name another folder with --out DIR";

}  // namespace

void replace_file(const std::filesystem::path& file, std::string_view content, Flush flush) {
    std::filesystem::path temporary;
    std::optional<OpenFile> beside;
    for (int attempt = 0; !beside; ++attempt) {  // until a name is free
        temporary = file;
        temporary += fmt::format(".{}.{}.tmp", ::getpid(), attempt);
        beside.emplace(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC);
        if (!beside->is_open()) {
            if (errno != EEXIST) {
                refuse_io(file, "cannot write");
            }
            beside.reset();
        }
    }
    try {
        write_all(*beside, content, file);
        if (flush == Flush::Yes && ::fsync(beside->get()) != 0) {
            refuse_io(file, "cannot bring to the disk");
        }
        if (!beside->close()) {
            refuse_io(file, "cannot write");
        }
        if (::rename(temporary.c_str(), file.c_str()) != 0) {
            refuse_io(file, "cannot replace");
        }
    } catch (const Error&) {
        ::unlink(temporary.c_str());
        throw;
    }
}

int open_own_file(const std::filesystem::path& file) {
    constexpr int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    const int opened = ::open(file.c_str(), flags, 0644);
    if (opened < 0 && errno == ELOOP) {
        refuse_to_write(file, "a link, expected a file of this folder", remove_it);
    }
    if (opened < 0) {
        const int code = errno;
        refuse_to_write(file,
                        fmt::format("cannot write: {}", std::generic_category().message(code)),
                        "name a folder that can be written with --out DIR");
    }
    struct stat about {};
    const bool known = ::fstat(opened, &about) == 0;
    if (known && S_ISREG(about.st_mode) && about.st_nlink <= 1) {
        return opened;
    }
    ::close(opened);
    refuse_to_write(file,
                    known && S_ISREG(about.st_mode)
                        ? "a file that has another name, too, expected one of this folder alone"
                        : "no regular file, expected one",
                    remove_it);
}

bool is_own_file(const std::filesystem::path& file) {
    struct stat about {};
    return ::lstat(file.c_str(), &about) != 0 || (S_ISREG(about.st_mode) && about.st_nlink <= 1);
}

void expect_own_folder(const std::filesystem::path& folder) {
    std::error_code ignored;
    if (std::filesystem::is_symlink(std::filesystem::symlink_status(folder, ignored))) {
        refuse_to_write(folder,
                        "a link, expected a folder of this run",
                        "remove it, or name a folder on the other disk with --out DIR");
    }
}

}  // namespace pipetwin

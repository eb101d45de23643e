// SPDX-License-Identifier: Apache-2.0

// A library that a test puts before a program's own (LD_PRELOAD): it records every call that
// changes a folder, in the order in which the calls return. tests/support/lost_power.h reads the
// record. The variable PIPETWIN_RECORD has the folder and, after a space, the file of the record. A
// call is a line of words with a tab between them, the last of them the number of bytes behind the
// line:
//
//     create PATH 0 | truncate PATH SIZE 0 | write PATH OFFSET BYTES | sync PATH 0
//     mkdir PATH 0 | rename FROM TO 0 | remove PATH 0

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "tests/support/preloaded_open.h"

namespace {

using pipetwin::testing::next;

struct Record {
    std::string folder;
    int file = -1;
};

const Record& record() {
    static const Record opened = [] {
        Record record;
        const char* const text = std::getenv("PIPETWIN_RECORD");
        const char* const space = text == nullptr ? nullptr : std::strchr(text, ' ');
        if (space != nullptr) {
            record.folder = std::string(text, space);
            record.file = next<int(const char*, int, ...)>("open")(
                space + 1, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        }
        return record;
    }();
    return opened;
}

/// Held during a call and its record, so that both have the same order.
std::recursive_mutex& order() {
    static std::recursive_mutex mutex;
    return mutex;
}

std::string path_of(int file) {
    const std::string link = "/proc/self/fd/" + std::to_string(file);
    char path[4096] = "";
    const ssize_t size = readlink(link.c_str(), path, sizeof(path));
    return size < 0 ? std::string() : std::string(path, static_cast<std::size_t>(size));
}

/// A path as the system knows it, whether something has it or not.
std::string absolute(int folder, const char* path) {
    std::string whole = path;
    if (whole.empty() || whole.front() != '/') {
        char here[4096] = "";
        whole = (folder == AT_FDCWD ? std::string(getcwd(here, sizeof(here)) == nullptr ? "" : here)
                                    : path_of(folder)) +
                "/" + whole;
    }
    while (whole.size() > 1 && whole.back() == '/') {
        whole.pop_back();
    }
    return whole;
}

bool is_recorded(const std::string& path) {
    const std::string& folder = record().folder;
    return record().file >= 0 && path.compare(0, folder.size(), folder) == 0 &&
           (path.size() == folder.size() || path[folder.size()] == '/');
}

/// Adds a call that has succeeded. `errno` stays.
void add(const std::string& path,
         const std::string& words,
         const char* bytes = nullptr,
         std::size_t size = 0) {
    if (!is_recorded(path)) {
        return;
    }
    const int code = errno;
    const std::string line = words + '\t' + std::to_string(size) + '\n' + std::string(bytes, size);
    static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
    if (real(record().file, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
        std::abort();
    }
    errno = code;
}

void add_write(int file, off_t offset, const char* bytes, ssize_t written) {
    const std::string path = path_of(file);
    add(path,
        "write\t" + path + '\t' + std::to_string(offset),
        bytes,
        static_cast<std::size_t>(written));
}

/// Adds a write behind which the file stands.
void add_write_before_end(int file, const char* bytes, ssize_t written) {
    if (written > 0) {
        const int code = errno;
        add_write(file, lseek(file, 0, SEEK_CUR) - written, bytes, written);
        errno = code;
    }
}

int recorded_open(int folder, const char* path, int flags, const std::function<int()>& open) {
    if ((flags & (O_CREAT | O_TRUNC)) == 0) {
        return open();
    }
    const std::lock_guard lock(order());
    const std::string whole = absolute(folder, path);
    struct stat about {};
    const bool is_new = lstat(whole.c_str(), &about) != 0;
    const int file = open();
    if (file >= 0 && is_new) {
        add(whole, "create\t" + whole);
    } else if (file >= 0 && (flags & O_TRUNC) != 0) {
        add(whole, "truncate\t" + whole + "\t0");
    }
    return file;
}

/// A call that changes names, and returns 0 where it does.
template <class Call>
int recorded(const std::string& path, const std::string& words, Call call) {
    const std::lock_guard lock(order());
    const int result = call();
    if (result == 0) {
        add(path, words);
    }
    return result;
}

}  // namespace

int pipetwin::testing::preloaded_open(int folder,
                                      const char* path,
                                      int flags,
                                      const std::function<int()>& open) {
    return recorded_open(folder, path, flags, open);
}

extern "C" {

ssize_t write(int file, const void* bytes, size_t count) {
    const std::lock_guard lock(order());
    static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
    const ssize_t written = real(file, bytes, count);
    add_write_before_end(file, static_cast<const char*>(bytes), written);
    return written;
}

ssize_t writev(int file, const iovec* pieces, int count) {
    const std::lock_guard lock(order());
    static auto* const real = next<ssize_t(int, const iovec*, int)>("writev");
    const ssize_t written = real(file, pieces, count);
    std::string bytes;
    for (int i = 0; i < count; ++i) {
        bytes.append(static_cast<const char*>(pieces[i].iov_base), pieces[i].iov_len);
    }
    add_write_before_end(file, bytes.data(), written);
    return written;
}

ssize_t pwrite(int file, const void* bytes, size_t count, off_t place) {
    const std::lock_guard lock(order());
    static auto* const real = next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
    const ssize_t written = real(file, bytes, count, place);
    if (written > 0) {
        add_write(file, place, static_cast<const char*>(bytes), written);
    }
    return written;
}

int ftruncate(int file, off_t length) noexcept {
    const std::string path = path_of(file);
    static auto* const real = next<int(int, off_t)>("ftruncate");
    return recorded(path, "truncate\t" + path + '\t' + std::to_string(length), [&] {
        return real(file, length);
    });
}

int fsync(int file) {
    const std::string path = path_of(file);
    static auto* const real = next<int(int)>("fsync");
    return recorded(path, "sync\t" + path, [&] { return real(file); });
}

int rename(const char* from, const char* to) noexcept {
    const std::string old_path = absolute(AT_FDCWD, from);
    const std::string new_path = absolute(AT_FDCWD, to);
    static auto* const real = next<int(const char*, const char*)>("rename");
    return recorded(
        new_path, "rename\t" + old_path + '\t' + new_path, [&] { return real(from, to); });
}

int mkdir(const char* path, mode_t mode) noexcept {
    const std::string whole = absolute(AT_FDCWD, path);
    static auto* const real = next<int(const char*, mode_t)>("mkdir");
    return recorded(whole, "mkdir\t" + whole, [&] { return real(path, mode); });
}

int rmdir(const char* path) noexcept {
    const std::string whole = absolute(AT_FDCWD, path);
    static auto* const real = next<int(const char*)>("rmdir");
    return recorded(whole, "remove\t" + whole, [&] { return real(path); });
}

int unlink(const char* path) noexcept {
    const std::string whole = absolute(AT_FDCWD, path);
    static auto* const real = next<int(const char*)>("unlink");
    return recorded(whole, "remove\t" + whole, [&] { return real(path); });
}

int unlinkat(int folder, const char* path, int flags) noexcept {
    const std::string whole = absolute(folder, path);
    static auto* const real = next<int(int, const char*, int)>("unlinkat");
    return recorded(whole, "remove\t" + whole, [&] { return real(folder, path, flags); });
}

int remove(const char* path) noexcept {
    const std::string whole = absolute(AT_FDCWD, path);
    static auto* const real = next<int(const char*)>("remove");
    return recorded(whole, "remove\t" + whole, [&] { return real(path); });
}

}  // extern "C"

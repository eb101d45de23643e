// SPDX-License-Identifier: Apache-2.0

// A library that a test puts before a program's own (LD_PRELOAD): what the program writes fails for
// a while, as on a disk that is full. What fails is said by the variable PIPETWIN_FULL_DISK:
//
//     CALL NAME MILLISECONDS ERRNO FILE      "write metrics.jsonl 1000 28 /tmp/x/failed"
//
// Calls of that name ("any": all of them) fail where the path has NAME in it, from the first such
// call on for so long; -1: for ever. FILE is created by the first call that fails.
//
// PIPETWIN_MOST_THREADS=N lets the program start N threads and no more, as a limit of the system
// does that root does not have.

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

#include "tests/support/preloaded_open.h"

namespace {

using pipetwin::testing::next;

struct Fault {
    char call[32] = "";
    char name[256] = "";
    long milliseconds = 0;
    int code = 0;
    char mark[512] = "";
};

const Fault& fault() {
    static const Fault read = [] {
        Fault fault;
        const char* const text = std::getenv("PIPETWIN_FULL_DISK");
        if (text == nullptr || std::sscanf(text,
                                           "%31s %255s %ld %d %511s",
                                           fault.call,
                                           fault.name,
                                           &fault.milliseconds,
                                           &fault.code,
                                           fault.mark) != 5) {
            fault.code = 0;
        }
        return fault;
    }();
    return read;
}

long now_ms() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1'000'000;
}

/// Whether a call on this path fails now; errno says why.
bool fails(const char* call, const char* path) {
    static std::atomic<long> begin{0};
    const Fault& wanted = fault();
    if (wanted.code == 0 || path == nullptr || std::strstr(path, wanted.name) == nullptr ||
        (std::strcmp(wanted.call, "any") != 0 && std::strcmp(wanted.call, call) != 0)) {
        return false;
    }
    long first = 0;
    if (begin.compare_exchange_strong(first, now_ms())) {
        static auto* const real = next<int(const char*, int, ...)>("open");
        if (const int mark = real(wanted.mark, O_WRONLY | O_CREAT, 0600); mark >= 0) {
            static auto* const real_close = next<int(int)>("close");
            real_close(mark);
        }
    }
    if (wanted.milliseconds >= 0 && now_ms() - begin.load() >= wanted.milliseconds) {
        return false;
    }
    errno = wanted.code;
    return true;
}

bool fails(const char* call, int file) {
    if (fault().code == 0) {
        return false;
    }
    const std::string link = "/proc/self/fd/" + std::to_string(file);
    char path[4096] = "";
    const ssize_t size = readlink(link.c_str(), path, sizeof(path) - 1);
    if (size < 0) {
        return false;
    }
    path[size] = '\0';
    return fails(call, path);
}

/// Whether a file is opened to be written.
bool fails_to_open(const char* path, int flags) {
    return (flags & (O_WRONLY | O_RDWR | O_CREAT)) != 0 && fails("open", path);
}

}  // namespace

int pipetwin::testing::preloaded_open(int,
                                      const char* path,
                                      int flags,
                                      const std::function<int()>& open) {
    return fails_to_open(path, flags) ? -1 : open();
}

extern "C" {

int pthread_create(pthread_t* thread,
                   const pthread_attr_t* attributes,
                   void* (*start)(void*),
                   void* argument) noexcept {
    static auto* const real =
        next<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
    static const char* const most = std::getenv("PIPETWIN_MOST_THREADS");
    static std::atomic<long> started{0};
    if (most != nullptr && started.fetch_add(1) >= std::strtol(most, nullptr, 10)) {
        return EAGAIN;
    }
    return real(thread, attributes, start, argument);
}

ssize_t write(int file, const void* bytes, size_t count) {
    static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
    return fails("write", file) ? -1 : real(file, bytes, count);
}

ssize_t writev(int file, const iovec* pieces, int count) {
    static auto* const real = next<ssize_t(int, const iovec*, int)>("writev");
    return fails("write", file) ? -1 : real(file, pieces, count);
}

ssize_t pwrite(int file, const void* bytes, size_t count, off_t place) {
    static auto* const real = next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
    return fails("write", file) ? -1 : real(file, bytes, count, place);
}

int fsync(int file) {
    static auto* const real = next<int(int)>("fsync");
    return fails("fsync", file) ? -1 : real(file);
}

int ftruncate(int file, off_t length) noexcept {
    static auto* const real = next<int(int, off_t)>("ftruncate");
    return fails("ftruncate", file) ? -1 : real(file, length);
}

int close(int file) {
    static auto* const real = next<int(int)>("close");
    const bool failed = fails("close", file);
    const int code = errno;
    const int closed = real(file);  // the system takes the descriptor back whatever it reports
    if (failed) {
        errno = code;
        return -1;
    }
    return closed;
}

int rename(const char* from, const char* to) noexcept {
    static auto* const real = next<int(const char*, const char*)>("rename");
    return fails("rename", to) ? -1 : real(from, to);
}

int mkdir(const char* path, mode_t mode) noexcept {
    static auto* const real = next<int(const char*, mode_t)>("mkdir");
    return fails("mkdir", path) ? -1 : real(path, mode);
}

}  // extern "C"

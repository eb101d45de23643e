// SPDX-License-Identifier: Apache-2.0
#include "tests/support/preloaded_open.h"

#include <fcntl.h>
#include <sys/types.h>

#include <cstdarg>

namespace {

using pipetwin::testing::next;
using pipetwin::testing::preloaded_open;

mode_t mode_of(int flags, va_list arguments) {
    return (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    static auto* const real = next<int(const char*, int, ...)>("open");
    return preloaded_open(AT_FDCWD, path, flags, [&] { return real(path, flags, mode); });
}

int open64(const char* path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    static auto* const real = next<int(const char*, int, ...)>("open64");
    return preloaded_open(AT_FDCWD, path, flags, [&] { return real(path, flags, mode); });
}

int openat(int folder, const char* path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    static auto* const real = next<int(int, const char*, int, ...)>("openat");
    return preloaded_open(folder, path, flags, [&] { return real(folder, path, flags, mode); });
}

}  // extern "C"

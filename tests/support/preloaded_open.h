// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>

#include <functional>

/// The calls that open files, in a library that a test puts before a program's own (LD_PRELOAD).
namespace pipetwin::testing {

/// The function of this name that the program would call without the library.
template <class Function>
Function* next(const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

/// What the library does for open, open64 and openat; `open` is the call itself.
int preloaded_open(int folder, const char* path, int flags, const std::function<int()>& open);

}  // namespace pipetwin::testing

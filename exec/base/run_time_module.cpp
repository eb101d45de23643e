// SPDX-License-Identifier: Apache-2.0
#include "exec/base/run_time_module.h"

#include <dlfcn.h>

#include <cstdlib>
#include <sstream>
#include <system_error>
#include <vector>

#include <fmt/format.h>

namespace pipetwin::exec {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> module_folders() {
    std::vector<fs::path> folders;
    // Read before any worker starts, and nothing in the program sets it.
    if (const char* path = std::getenv("PIPETWIN_MODULE_PATH")) {  // NOLINT(concurrency-mt-unsafe)
        std::istringstream entries(path);
        for (std::string folder; std::getline(entries, folder, ':');) {
            if (!folder.empty()) {
                folders.emplace_back(folder);
            }
        }
    }
    std::error_code error;
    const fs::path executable = fs::read_symlink("/proc/self/exe", error);
    if (!error) {
        const fs::path folder = executable.parent_path();
        folders.push_back(folder);
        folders.push_back(folder.parent_path() / "lib" / "pipetwin");
    }
    return folders;
}

std::string loader_message() {
    const char* text = dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps it per thread
    return text == nullptr ? "unknown loader error" : text;
}

void* loaded(void* library) {
    if (library == nullptr) {
        throw std::runtime_error(loader_message());
    }
    return library;
}

}  // namespace

std::optional<fs::path> find_module(const std::string& file) {
    for (const fs::path& folder : module_folders()) {
        std::error_code error;
        if (fs::is_regular_file(folder / file, error)) {
            return folder / file;
        }
    }
    return std::nullopt;
}

void* load_library(const fs::path& file) {
    return loaded(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL));
}

void* load_library_for_all(const std::string& name) {
    return loaded(dlopen(name.c_str(), RTLD_NOW | RTLD_GLOBAL));
}

void* symbol_of(void* library, const char* name) {
    return loaded(dlsym(library, name));
}

void expect_interface(const fs::path& file, int found, int expected) {
    if (found != expected) {
        throw std::runtime_error(fmt::format(
            "{}: interface version {}, this program needs {}", file.string(), found, expected));
    }
}

}  // namespace pipetwin::exec

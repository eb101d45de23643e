// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>

/// Parts of the program that are libraries of their own, loaded when they are asked for: so it
/// starts on machines that lack what they need. They are looked for in the folders of the
/// environment variable PIPETWIN_MODULE_PATH (separated by ':'), beside the executable, and in
/// ../lib/pipetwin seen from there. Once loaded they stay until the program ends.
namespace pipetwin::exec {

/// None: no such file in any of the folders.
std::optional<std::filesystem::path> find_module(const std::string& file);

/// Loads a shared library; never unloaded. Throws std::runtime_error with the loader's message.
void* load_library(const std::filesystem::path& file);
/// Loads a library whose symbols are needed by libraries that are loaded after it; else as
/// `load_library`.
void* load_library_for_all(const std::string& name);
/// The address of a symbol. Throws std::runtime_error with the loader's message if there is none.
void* symbol_of(void* library, const char* name);

/// Sets `function` to the symbol of that name, as `symbol_of`.
template <class Function>
void look_up(void* library, const char* name, Function& function) {
    // POSIX guarantees that the address of a function fits into void* and back.
    function = reinterpret_cast<Function>(symbol_of(library, name));
}

/// `found` is what the module says of itself; throws std::runtime_error unless it is `expected`.
void expect_interface(const std::filesystem::path& file, int found, int expected);

}  // namespace pipetwin::exec

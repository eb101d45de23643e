// SPDX-License-Identifier: Apache-2.0
#include "cli/base/output_file.h"

#include <fmt/format.h>

#include "core/text/json_text.h"
#include "core/text/own_file.h"
#include "exec/base/retry.h"

namespace pipetwin::cli {

namespace {

template <class Write>
void write_patiently(Write write, Console& console) {
    exec::keep_trying(exec::disk_patience, write, [&](const Error& error) {
        console.note(fmt::format("{}: {}; waits for the disk", error.place(), error.text()));
    });
}

}  // namespace

void write_output(const std::filesystem::path& file, std::string_view content, Console& console) {
    write_patiently([&] { write_file(file, content); }, console);
}

void write_own_output(const std::filesystem::path& file,
                      std::string_view content,
                      Console& console) {
    write_patiently([&] { replace_file(file, content); }, console);
}

void require_free(const std::filesystem::path& out, bool force, std::string_view option) {
    std::error_code ignored;
    if (std::filesystem::is_directory(out, ignored)) {
        throw Error(ErrorKind::Io,
                    out.string(),
                    "there is a folder of this name, expected the name of a file",
                    fmt::format("name a file with {} FILE", option));
    }
    if (!force && std::filesystem::exists(out, ignored)) {
        throw Error(
            ErrorKind::Io,
            out.string(),
            "the file is there already",
            fmt::format("name another file with {} FILE, or overwrite it with --force", option));
    }
}

}  // namespace pipetwin::cli

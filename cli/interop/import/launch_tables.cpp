// SPDX-License-Identifier: Apache-2.0
#include "cli/interop/import/launch_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/base/input.h"
#include "core/base/ascii.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/interop/launch/shell_words.h"
#include "core/interop/program_flags.h"
#include "core/text/file_damage.h"
#include "core/text/json_text.h"

namespace pipetwin::cli {

std::filesystem::path profile_beside(const std::filesystem::path& out) {
    std::filesystem::path file = out;
    return file.replace_extension(".profile.json");
}

std::string toml_comment(std::string_view text) {
    std::string line = "# ";
    const bool readable = is_utf8(text);
    for (const char c : text) {
        const auto code = static_cast<unsigned char>(c);
        line += code < 0x20 || code == 0x7f ? ' ' : code >= 0x80 && !readable ? '?' : c;
    }
    return line + '\n';
}

void expect_known_program(std::string_view text, const std::string& place) {
    if (is_nanotron(text)) {
        throw Error(ErrorKind::BadInput,
                    place,
                    "this is nanotron's configuration",
                    "'pipetwin import nanotron' reads it");
    }
    if (is_nemo(text)) {
        throw Error(ErrorKind::BadInput,
                    place,
                    "this is NeMo's configuration",
                    "'pipetwin import nemo' reads it");
    }
    if (is_neox(text)) {
        throw Error(ErrorKind::BadInput,
                    place,
                    "this is GPT-NeoX's configuration",
                    "'pipetwin import neox' reads it");
    }
}

void expect_text(std::string_view text, const std::string& place, std::string_view expected) {
    if (const FileDamage damage = damage_of_file(text, expected); !damage.what.empty()) {
        throw Error(
            ErrorKind::BadInput, text_place(text, place, damage.index), damage.what, damage.hint);
    }
}

namespace {

/// Whether a text has "$NAME" or "${NAME", with no further character of a name behind it.
bool has_variable(std::string_view text, std::string_view name) {
    const auto is_part_of_name = [](char c) {
        return ascii::is_letter(c) || ascii::is_digit(c) || c == '_';
    };
    for (std::size_t at = text.find('$'); at != std::string_view::npos;
         at = text.find('$', at + 1)) {
        std::string_view rest = text.substr(at + 1);
        rest.remove_prefix(rest.starts_with('{') ? 1 : 0);
        if (rest.starts_with(name) &&
            (rest.size() == name.size() || !is_part_of_name(rest[name.size()]))) {
            return true;
        }
    }
    return false;
}

}  // namespace

LaunchVariables given_variables(const ImportOptions& options, std::string_view text) {
    LaunchVariables given;
    for (const std::string& variable : options.variables) {
        const std::size_t equals = variable.find('=');
        const std::string name = variable.substr(0, equals);
        if (equals == std::string::npos || name.empty()) {
            throw Error(ErrorKind::Usage,
                        "--variable",
                        fmt::format("'{}' is not of the form NAME=VALUE", variable),
                        "write the name as the file has it behind the $: --variable MBS=4");
        }
        if (!has_variable(text, name)) {
            throw Error(ErrorKind::Usage,
                        "--variable",
                        fmt::format("the file has no variable '{}'", name),
                        "write the name as the file has it behind the $, or leave it out");
        }
        const std::string value = variable.substr(equals + 1);
        if (const auto [known, is_new] = given.try_emplace(name, value);
            !is_new && known->second != value) {
            throw Error(ErrorKind::Usage,
                        "--variable",
                        fmt::format("{} is {} and {}", name, known->second, value),
                        "give one value for each variable");
        }
    }
    return given;
}

void expect_devices(std::optional<std::int64_t> said, const ImportOptions& options) {
    if (options.devices && said && *said != *options.devices) {
        throw Error(ErrorKind::BadInput,
                    input_name(options.file),
                    fmt::format("the run has {} here, but --devices is {}",
                                counted(*said, "device"),
                                *options.devices),
                    "leave --devices out");
    }
}

void take_devices(LaunchFile& file, const ImportOptions& options) {
    if (!options.devices) {
        return;
    }
    if (file.all_processes) {
        expect_devices(*file.all_processes, options);
    } else if (file.processes && file.nodes && !file.has_usual_nodes) {
        expect_devices(std::int64_t{*file.processes} * *file.nodes, options);
    }
    file.all_processes = options.devices;
}

LeaveOut leave_out(const ImportOptions& options) {
    return options.insist           ? LeaveOut::All
           : options.ignore_unknown ? LeaveOut::Unknown
                                    : LeaveOut::Nothing;
}

std::string left_out_comment(const std::vector<std::string>& left_out) {
    return left_out.empty() ? std::string()
                            : toml_comment(fmt::format("ANOTHER RUN than the file's: --insist "
                                                       "left out {}",
                                                       fmt::join(left_out, "; ")));
}

}  // namespace pipetwin::cli

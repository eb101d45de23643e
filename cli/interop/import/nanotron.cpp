// SPDX-License-Identifier: Apache-2.0
#include "cli/base/input.h"
#include "cli/interop/import/importers.h"
#include "cli/interop/import/launch_tables.h"
#include "cli/interop/import/megatron_fragment.h"
#include "core/interop/launch/yaml_settings.h"
#include "core/interop/program_flags.h"

namespace pipetwin::cli {

namespace {

constexpr std::size_t largest_nanotron_file = std::size_t{1} << 20;

}  // namespace

Imported import_nanotron(const ImportOptions& options) {
    const std::string place = input_name(options.file);
    const std::string text = read_input(options.file, largest_nanotron_file);
    expect_text(text, place, "nanotron's YAML");
    expect_flag_options(options);
    LaunchFile file = parse_yaml_settings(text, place);
    set_variables(file, given_variables(options, text));
    MegatronFlags flags = nanotron_flags(file, leave_out(options));
    take_vocabulary(flags, options);
    return megatron_fragment(flags, options, place);
}

}  // namespace pipetwin::cli

// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <string>
#include <string_view>

#include "cli/base/command_row.h"
#include "cli/interop/export/exporters.h"
#include "cli/predict/layer_costs.h"
#include "core/base/error.h"

// Parts of the program that need the executor, where there is none: what asks for one of them is
// told so.

namespace pipetwin::cli {

namespace {

Error needs_executor(std::string_view what) {
    return {ErrorKind::Unavailable,
            std::string(what),
            "this pipetwin plans and predicts, but has no executor, which this needs",
            "build the whole program from its sources: cmake --preset release, then cmake --build "
            "--preset release"};
}

/// A command that is not there, whatever its options are.
template <const char* name>
CommandRow absent() {
    return {.name = name,
            .help = "Not in this build, which has no executor",
            .declare = [](CLI::App& app) {
                // Before any option is read: none of them is known here.
                app.preparse_callback([](std::size_t) { throw needs_executor(name); });
                return Command{};
            }};
}

constexpr char run_name[] = "run";
constexpr char profile_name[] = "profile";
constexpr char model_name[] = "model";
constexpr char train_name[] = "train";
constexpr char launch_name[] = "launch";
constexpr char translate_name[] = "translate";
constexpr char demo_name[] = "demo";

}  // namespace

CommandRow run_command() {
    return absent<run_name>();
}
CommandRow profile_command() {
    return absent<profile_name>();
}
CommandRow model_command() {
    return absent<model_name>();
}
CommandRow train_command() {
    return absent<train_name>();
}
CommandRow launch_command() {
    return absent<launch_name>();
}
CommandRow translate_command() {
    return absent<translate_name>();
}
CommandRow demo_command() {
    return absent<demo_name>();
}

Exchanged export_hf(const ExportOptions&, Console&) {
    throw needs_executor("export hf");
}

Profile estimated_costs(const Scenario&, const Model&, const std::string&) {
    throw needs_executor("--trainable");
}

}  // namespace pipetwin::cli

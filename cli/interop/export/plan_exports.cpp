// SPDX-License-Identifier: Apache-2.0
#include "cli/interop/export/plan_exports.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/base/console.h"
#include "cli/interop/export/exporters.h"
#include "cli/interop/export_source.h"
#include "cli/run_folder/run_folder.h"
#include "cli/text/sentences.h"
#include "core/base/error.h"

namespace pipetwin::cli {

namespace {

struct Format {
    std::string_view name;
    std::string_view file;
    Exported (*write)(const ExportSource&, const ExportOptions&, Console&);
};

constexpr std::array formats{
    Format{.name = "megatron-flags",
           .file = run_file::megatron_flags,
           .write = &export_megatron_flags},
    Format{.name = "torchtitan", .file = run_file::torchtitan, .write = &export_torchtitan}};

std::vector<std::string> lines_of(std::istream& text) {
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) {
        lines.push_back(line);
    }
    return lines;
}

}  // namespace

std::vector<PlanExport> plan_exports(const std::filesystem::path& folder,
                                     const std::string& config) {
    ExportSource source(folder, {}, {});
    source.know_config(config);
    std::vector<PlanExport> exports;
    for (const Format& format : formats) {
        PlanExport& one =
            exports.emplace_back(PlanExport{.format = format.name, .file = format.file});
        std::ostringstream ignored;
        std::stringstream notes;
        Console console(ignored, notes, Terminal{});
        try {
            one.content = format.write(source, {}, console).content;
            one.notes = lines_of(notes);
        } catch (const Error& error) {
            if (error.kind() != ErrorKind::Infeasible && error.kind() != ErrorKind::BadInput) {
                throw;
            }
            one.why_not = error.text();
            one.hint = error.hint();
        }
    }
    return exports;
}

std::string written_text(const std::filesystem::path& folder,
                         const std::vector<PlanExport>& exports,
                         int width) {
    const std::string name = folder.string();
    const std::string heading = "Written to " + name;
    Paragraph text{
        .heading = heading,
        .lines = {
            fmt::format("{}, {}: the best plan as a scenario, and its costs",
                        run_file::scenario,
                        run_file::profile),
            fmt::format("{}, {}, {}, {}: the plan, its schedule, its timeline, and the search",
                        run_file::plan,
                        run_file::schedule,
                        run_file::predicted,
                        run_file::search)}};
    std::error_code ignored;
    if (std::filesystem::exists(folder / run_file::config, ignored)) {
        text.lines.push_back(fmt::format(
            "{}: the model's config.json, from which export reads the sizes", run_file::config));
    }
    for (const PlanExport& one : exports) {
        if (one.content.empty()) {
            text.lines.push_back(fmt::format("no {}: {} ({})", one.file, one.why_not, one.hint));
            continue;
        }
        text.lines.push_back(
            fmt::format("{}, for {}{}", one.file, one.format, one.notes.empty() ? "" : ":"));
        for (const std::string& note : one.notes) {
            text.lines.push_back("- " + note);
        }
    }
    text.lines.push_back(fmt::format(
        "next: pipetwin simulate {0}/{1}, or pipetwin view {0}", name, run_file::scenario));
    return paragraph_text(text, width);
}

Json written_json(const std::filesystem::path& folder, const std::vector<PlanExport>& exports) {
    Json list = Json::array();
    for (const PlanExport& one : exports) {
        const bool is_there = !one.content.empty();
        list.push_back({{"format", one.format},
                        {"file", is_there ? Json(one.file) : Json(nullptr)},
                        {"notes", one.notes},
                        {"why_not", is_there ? Json(nullptr) : Json(one.why_not)}});
    }
    return {{"folder", folder.string()}, {"exports", std::move(list)}};
}

}  // namespace pipetwin::cli

// SPDX-License-Identifier: Apache-2.0
#include "cli/predict/scenario_sweep.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "cli/base/key_place.h"
#include "cli/base/memory_left.h"
#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/model/model.h"
#include "core/scenario/scenario.h"
#include "core/scenario/scenario_key.h"
#include "core/scenario/settled_scenario.h"
#include "core/schedule/generators/generate.h"
#include "sim/questions/found_profile.h"

namespace pipetwin::cli {

namespace {

int chunks_of(const std::string& schedule,
              const std::optional<int>& asked,
              const Scenario& written) {
    const bool has_several = written.pipeline.chunks.value_or(1) > 1;
    return sweep_chunks(schedule,
                        asked         ? asked
                        : has_several ? written.pipeline.chunks.known()
                                      : std::nullopt);
}

/// The overrides of a plan, which has one value for each option.
std::vector<Override> overrides_of(const PlainOptions& plan,
                                   std::vector<Override> overrides,
                                   const Scenario& written) {
    for (const std::string_view option : list_options) {
        if (const auto value = plan.value(option)) {
            overrides.push_back({fmt::format("pipeline.{}", pipeline_key(option).name), *value});
        }
    }
    if (const auto schedule = plan.value("--schedule")) {
        overrides.push_back(
            {"pipeline.chunks",
             fmt::to_string(chunks_of(*schedule, plan.number("--chunks"), written))});
    }
    return overrides;
}

void simulate_cell(SweepCell& cell,
                   const std::filesystem::path& file,
                   const std::vector<Override>& overrides,
                   const std::filesystem::path& profile) {
    const SettledScenario scenario = settle(read_scenario(file, overrides));
    set_shape(cell, scenario);
    const sim::FoundProfile found = sim::find_profile(scenario, profile, {});
    const Model model = sim::model_with_costs(scenario, found);
    cell.prediction = sim::predict(scenario, model, found.profile, memory_left());
}

/// Costs are looked for first: without them no cell has a plan.
Scenario read_with_costs(const std::filesystem::path& file, const SweepOptions& options) {
    const std::vector<Override>& overrides = options.common.overrides;
    try {
        Scenario written = read_scenario(file, overrides);
        sim::find_profile(written, options.profile, {});
        return written;
    } catch (const Error& error) {
        throw with_place_of_key(error, file, overrides);
    }
}

/// What rows are called: the name of the file, with its folder where another file has that name, as
/// the scenarios of run folders do.
std::string row_name(const std::filesystem::path& file,
                     const std::vector<std::filesystem::path>& files) {
    const std::string stem = file.stem().string();
    const bool is_shared = std::ranges::any_of(files, [&](const std::filesystem::path& other) {
        return other != file && other.stem() == file.stem();
    });
    if (!is_shared) {
        return stem;
    }
    const std::filesystem::path folder = std::filesystem::absolute(file).parent_path();
    const bool is_alone = std::ranges::none_of(files, [&](const std::filesystem::path& other) {
        return other != file && other.stem() == file.stem() &&
               std::filesystem::absolute(other).parent_path().filename() == folder.filename();
    });
    return !is_alone                            ? file.string()
           : file.filename() == "scenario.toml" ? folder.filename().string()
                                                : folder.filename().string() + '/' + stem;
}

}  // namespace

void set_shape(SweepCell& cell, const SettledScenario& scenario) {
    cell.schedule = has_schedule_file(scenario)
                        ? std::filesystem::path(scenario.pipeline.schedule).filename().string()
                        : scenario.pipeline.schedule;
    cell.stages = scenario.pipeline.stages;
    cell.chunks = scenario.pipeline.chunks;
    cell.micro_batches = scenario.pipeline.micro_batches;
}

std::vector<SweepCell> sweep_scenarios(const SweepOptions& options) {
    expect_few_cells(options.scenarios.size() * combinations(options.plain) *
                     combination_count(options.swept));
    std::vector<PlainOptions> plans{options.plain};
    for (const std::string_view option : list_options) {
        plans = one_for_each(plans, option);
    }
    std::vector<SweepCell> cells;
    for (const std::filesystem::path& file : options.scenarios) {
        const Scenario written = read_with_costs(file, options);
        for (const std::vector<Override>& swept : combinations(options.swept)) {
            for (const PlainOptions& plan : plans) {
                SweepCell& cell = cells.emplace_back(
                    SweepCell{.schedule = plan.value("--schedule").value_or("-"),
                              .stages = plan.number("--stages").value_or(0),
                              .micro_batches = plan.number("--micro-batches").value_or(0),
                              .scenario = row_name(file, options.scenarios),
                              .swept = swept});
                std::vector<Override> overrides =
                    overrides_of(plan, options.common.overrides, written);
                overrides.insert(overrides.end(), swept.begin(), swept.end());
                fill_cell(cell, [&] { simulate_cell(cell, file, overrides, options.profile); });
            }
        }
    }
    expect_any_plan(cells);
    return cells;
}

}  // namespace pipetwin::cli

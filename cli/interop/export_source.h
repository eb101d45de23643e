// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/base/console.h"
#include "core/artifacts/chrome_trace.h"
#include "core/interop/jobs/placed_plan.h"
#include "core/scenario/settled_scenario.h"
#include "core/schedule/schedule.h"
#include "sim/questions/found_profile.h"
#include "sim/questions/prediction.h"

namespace pipetwin::cli {

/// The source of an export: a scenario (.toml), a run folder, a trace of ours, or else a schedule
/// file.
class ExportSource {
  public:
    /// Kind of a source.
    enum class Kind { Scenario, Run, Trace, File };

    /// `overrides` and `profile` are for a scenario: throws Error(Usage) where they are given with
    /// anything else.
    ExportSource(std::filesystem::path path,
                 std::vector<Override> overrides,
                 std::filesystem::path profile);

    /// Says which config.json describes the model, whose sizes a profile does not hold.
    void know_config(std::string text) { config_ = std::move(text); }

    Kind kind() const { return kind_; }
    const std::filesystem::path& path() const { return path_; }

    /// The rows with communication, valid and free of deadlock. Needs no costs.
    Schedule schedule() const;

    /// The rows before this program adds communication to them: without any, or with that of a
    /// schedule file. Valid and free of deadlock.
    Schedule order() const;

    /// The scenario, or that of a run; none where there is none.
    std::optional<SettledScenario> settled() const;

    /// The costs that name the scenario's layers or decide about its messages; none where it needs
    /// none, or they are not known.
    std::optional<sim::FoundProfile> profile_of(const SettledScenario& scenario) const;

    /// A predicted timeline, and where its costs come from.
    struct Predicted {
        Trace trace;
        std::string costs;  ///< a file, or "unit"
        int replicas = 1;
        int devices_per_rank = 1;  ///< that share its layers (tensor parallelism)
    };
    /// The predicted timeline of a scenario, a run's own, and that of a file with unit costs: 1 ms
    /// for F, I, W and R of every stage, 2 ms for B. A scenario whose layers' costs are not known
    /// has unit costs, too. A trace has what is in it, which may be measured.
    Predicted predicted() const;

    /// The measured trace of a run folder; none where nothing was measured.
    std::optional<Trace> measured() const;

    using Placed = PlacedPlan;
    /// The layers that a scenario or run puts on each stage, of a model whose layers are those of a
    /// decoder-only transformer (see core/interop/torchtitan.h): a gpt, or a profile with such
    /// layers. Throws Error(Infeasible) for any other.
    Placed placed() const;

    /// The plan as plan.json. Throws Error(Infeasible) for a schedule file.
    std::string plan_json() const;

  private:
    Scenario scenario() const;
    std::filesystem::path folder() const;
    std::filesystem::path schedule_file() const;
    /// Throws Error(Infeasible) for a schedule file, which does not say `what`.
    void require_model(std::string_view what) const;
    Predicted predicted_scenario() const;
    Predicted predicted_file() const;

    std::filesystem::path path_;
    std::vector<Override> overrides_;
    std::filesystem::path profile_;
    Kind kind_;
    std::string config_{};
};

}  // namespace pipetwin::cli

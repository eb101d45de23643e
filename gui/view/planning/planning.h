// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/costs/profile.h"
#include "core/model/model.h"
#include "core/scenario/scenario.h"
#include "gui/view/run/run_data.h"
#include "sim/questions/whole_plan.h"

/// The question that `pipetwin plan` answers, asked by a window.
namespace pipetwin::gui {

/// What is asked: a model on a cluster, or a scenario.
struct PlanningQuestion {
    /// A model: its name, its config.json or folder, or its *.profile.json. Or a scenario: *.toml.
    std::filesystem::path model;
    std::string cluster{};                 ///< of a model: a name as in profiles/clusters
    int nodes = 1;                         ///< of a model
    std::optional<int> sequence{};         ///< of a model: tokens per sample; none: the usual
    std::optional<double> batch_tokens{};  ///< of a model: tokens per step; none: the usual
    std::optional<double> tokens{};        ///< of the whole training; none: no days
    std::optional<double> price{};         ///< of one device for an hour; none: no cost

    /// Whether `model` is a scenario, which says the rest itself.
    bool is_scenario() const;
};

/// How far the planning is.
struct PlanningProgress {
    std::string_view part;           ///< "search"
    double share = 0;                ///< of this part
    std::optional<Duration> best{};  ///< step time of the best plan so far
};

/// Hears of progress; ends the part where it returns false.
using PlanningListener = std::function<bool(const PlanningProgress& now)>;

/// One row of the answer.
struct PlanRow {
    sim::FoundPlan plan;
    sim::Answer answer;
};

/// The answer, or why there is none.
struct PlanningAnswer {
    PlanningQuestion question;
    std::string name;  ///< "llama-3-70b on 8x-h100-sxm", or that of the scenario's file
    std::string problem{};
    std::string hint{};  ///< beside the problem
    Scenario scenario{};
    Profile profile{};
    std::optional<Model> model{};
    std::optional<sim::WholePlan> whole{};  ///< none where `problem` says why
    sim::ModelSizes sizes{};
    std::vector<std::string> notes{};  ///< what a reader should know, in sentences
    bool ended_early = false;          ///< the listener ended a part
    /// The best plan of every shape of a model, or of every candidate of a scenario; the fastest
    /// first.
    std::vector<PlanRow> rows{};
};

/// Asks as `pipetwin plan` does, with the same functions, and gets the same plans. Never throws.
/// Takes seconds: call it on a worker.
PlanningAnswer answer_of(const PlanningQuestion& question, const PlanningListener& listener = {});

/// One plan of an answer, simulated.
struct PlanInSight {
    std::shared_ptr<const RunData> run;  ///< null where `problem` says why
    std::string problem{};
    sim::Outlook outlook{};
};

/// Simulates a row of an answer, whose numbers become those of the timeline. Never throws.
PlanInSight plan_in_sight(const PlanningAnswer& answer, std::size_t row);

/// A number as users write it: "4M", "1.5T", "8192"; k is 1,000. None for anything else, and for
/// what is not above 0.
std::optional<double> written_number(std::string_view text);

/// The tokens of a sample as users write them: "8192", "8k" for as many. None for anything else.
std::optional<int> written_sequence(std::string_view text);

}  // namespace pipetwin::gui

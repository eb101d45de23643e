// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gui/view/planning/planning.h"
#include "gui/view/run/group_table.h"

/// Answers in sentences and tables.
namespace pipetwin::gui {

/// A column of the table of plans.
struct PlanColumn {
    std::string head;
    std::string tip;  ///< what the head means
    std::function<std::string(const PlanRow&)> text;
    std::function<double(const PlanRow&)> key{};  ///< to sort by; empty: by the text
};

/// The columns of an answer's table: those that say something of one of its plans.
std::vector<PlanColumn> plan_columns(const PlanningAnswer& answer);

/// "4 stages x 2 replicas x 8 devices, 1f1b, 16 micro-batches: 12,300 tokens/s ...".
std::string plan_sentence(const PlanningAnswer& answer, const PlanRow& row);

/// The model, its devices and the tokens of a step.
std::string question_sentence(const PlanningAnswer& answer);

/// Between what times a measured step is to be expected, and what that was learned from; or why
/// there is no such range.
std::string range_sentence(const PlanRow& row, const sim::Outlook& outlook);

/// The nearest published run beside its prediction; "" where none is known.
std::string nearest_sentence(const sim::Outlook& outlook);

/// The nearest published runs, a row each.
TextRows evidence_rows(const sim::Outlook& outlook);

/// The models that are known by name, and their parameters.
TextRows known_models();

/// The kinds of node that are known by name, and their devices.
TextRows known_clusters();

}  // namespace pipetwin::gui

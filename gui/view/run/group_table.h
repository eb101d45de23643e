// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

/// The groups of devices of a plan in words: window and report show the same.
namespace pipetwin {

class Model;
class Plan;
struct Profile;
struct SettledScenario;

}  // namespace pipetwin

namespace pipetwin::gui {

/// A table of texts; each row has as many as the headers.
struct TextRows {
    std::vector<std::string> headers{};
    std::vector<std::vector<std::string>> rows{};
};

/// Who sends what to whom in a step, and what experts take.
struct GroupTable {
    TextRows groups{};   ///< one row for each axis along which devices differ
    TextRows experts{};  ///< [rank]: memory of routed experts; no rows where there are none
    /// How even the experts' rows are, and what a step would take if they were; "" without experts.
    std::string load{};

    bool empty() const { return groups.rows.empty() && experts.rows.empty(); }
};

/// The table of a plan of the scenario. With an uneven load of experts the step is simulated once
/// more with an even one. Throws as make_plan.
GroupTable group_table(const Plan& plan,
                       const SettledScenario& scenario,
                       const Model& model,
                       const Profile& profile);

}  // namespace pipetwin::gui

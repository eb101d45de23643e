// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "core/base/units.h"
#include "core/costs/collectives/collective_table.h"
#include "core/plan/stage_cost.h"

/// What the groups of devices of a plan send in a step.
namespace pipetwin {

class Model;
class Plan;
struct Profile;
struct SettledScenario;

/// What the devices of a group have in common: the axis along which they differ.
enum class GroupAxis {
    Tensor,        ///< they share every layer
    Context,       ///< they have parts of every sample
    Expert,        ///< they divide the experts of a layer
    ExpertTensor,  ///< they share every expert
    Data,          ///< they have the same weights, but for experts
    ExpertData,    ///< they have the same experts
    Pipeline       ///< they have the stages of one pipeline
};

/// What goes on beside the messages of a group.
enum class Beside {
    Nothing,
    Products,   ///< of the layers whose inputs and outputs are sent
    Attention,  ///< of the parts that came before
    Backwards,  ///< the last ones of a stage
    Layers,
    Actions  ///< other ones of the rank
};

/// The groups along one axis, all alike, and what a device of the rank that they take longest on
/// sends in a step.
struct GroupMessages {
    GroupAxis axis{};
    int members = 1;                        ///< of a group
    int nodes = 1;                          ///< or domains of fast links, that a group lies on
    std::vector<Collective> collectives{};  ///< none: messages from one device to another
    int rank = 0;                           ///< that they take longest on
    Bytes sent{};                           ///< by one of its devices
    /// Time of the messages; of Tensor and Context only what the rank waits for, beyond the work
    /// that they go on beside.
    Duration time{};
    Beside beside = Beside::Nothing;
};

/// The groups of a plan of the scenario that have several members and send anything, in the order
/// of the axes. Throws as make_plan.
std::vector<GroupMessages> group_messages(const Plan& plan,
                                          const SettledScenario& scenario,
                                          const Model& model,
                                          const Profile& profile);

/// What a rank holds of routed experts.
struct ExpertState {
    Bytes weights{};
    Bytes gradients{};
    Bytes optimizer{};
};

/// [rank]: what it holds of routed experts; empty where no layer has any. Throws as make_plan.
std::vector<ExpertState> expert_states(const Plan& plan,
                                       const SettledScenario& scenario,
                                       const Model& model,
                                       const Profile& profile);

}  // namespace pipetwin

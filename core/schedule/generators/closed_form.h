// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/base/units.h"
#include "core/schedule/generators/generate.h"

namespace pipetwin {

/// Shape and costs of a step whose stages are alike, in the symbols of docs/schedules.md. Times are
/// those of one stage and one micro-batch; a rank has `chunks` stages.
struct EvenCosts {
    int ranks = 1;               ///< K
    int micro_batches = 1;       ///< M
    int chunks = 1;              ///< v
    Duration forward{};          ///< F
    Duration backward_input{};   ///< I
    Duration backward_weight{};  ///< W; B is I + W
    Duration latency{};          ///< c: one way, of every message
    Duration transfer{};         ///< for which a message occupies its link
};

/// The bubble that theory gives for a schedule: idle / (work + idle) of a mean rank.
struct ClosedForm {
    std::string symbols;  ///< "(K - 1) / (M + K - 1)"; empty where there is no closed form
    std::string numbers;  ///< "3 / 11"
    std::string where;  ///< what `idle` and `work` in `symbols` stand for; "" for a plain fraction
    Duration work{};    ///< of one rank
    Duration idle{};    ///< of a mean rank
    std::string why_not;  ///< one sentence where there is no closed form, else ""

    bool known() const { return why_not.empty(); }
    /// idle / (work + idle); 0 where there is neither.
    double bubble() const;
};

/// The closed form of a schedule of docs/schedules.md, at costs for which it holds.
ClosedForm closed_form(ScheduleKind kind, const EvenCosts& costs);

}  // namespace pipetwin

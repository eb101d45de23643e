// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "cli/base/console.h"
#include "cli/text/json_output.h"
#include "core/scenario/scenario.h"
#include "sim/questions/prediction.h"
#include "sim/questions/whole_plan.h"
#include "sim/search/every_shape.h"

namespace pipetwin {

struct Scenario;

}  // namespace pipetwin

/// The answer to "what should I train this model with", in the units in which clusters are bought.
namespace pipetwin::cli {

/// "70.6 billion parameters, 80 layers, 64 heads, 8 key/value heads".
std::string sizes_text(const sim::ModelSizes& sizes);

/// What an answer is made from.
struct AnswerParts {
    std::string model;    ///< as it was named
    std::string cluster;  ///< as it was named
    int nodes = 1;
    int sequence = 0;                ///< tokens of a sample
    std::optional<double> tokens{};  ///< of the whole training; none: not asked
    std::optional<double> price{};   ///< of one device for an hour, in any currency
    sim::ModelSizes sizes{};
    const Scenario& scenario;  ///< open keys and all
    const Profile& profile;
    const sim::Prediction& best;
    const sim::FoundPlan& plan;
    const sim::EveryShape& shapes;
    const sim::SearchResult& search;
};

/// The numbers of the answer, with its utilisation.
sim::Answer answer_of(const AnswerParts& parts);

/// A number of a bill with as many digits as it means: "57,100", "4.67 million".
std::string bill_number(double number);

/// The shape of a plan as the tables name it: "2x8x4s", with an "s" where devices divide the
/// sequence.
std::string plan_name(const sim::FoundPlan& plan);

/// The answer first, then the best plan of every shape and which of them save memory.
std::string answer_text(const AnswerParts& parts, const Console& console);

/// The answer as JSON: {"tokens_per_second": ..., "shapes": [...], "front": [...]}.
Json answer_json(const AnswerParts& parts);

}  // namespace pipetwin::cli

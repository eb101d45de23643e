// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/base/console.h"
#include "cli/text/json_output.h"
#include "core/scenario/scenario.h"
#include "sim/questions/prediction.h"
#include "sim/search/every_shape.h"

namespace pipetwin {

struct Scenario;

}  // namespace pipetwin

/// The answer to "what should I train this model with", in the units in which clusters are bought.
namespace pipetwin::cli {

/// Sizes of a model, as far as they are known.
struct ModelSizes {
    std::optional<std::int64_t> parameters{};
    Bytes weights{};          ///< of all layers
    int layers = 0;           ///< blocks, or what costs are known of where there are none
    int heads = 0;            ///< of attention; 0: not known
    int key_value_heads = 0;  ///< as many as `heads` where each has keys and values of its own

    bool operator==(const ModelSizes&) const = default;
};

/// Number of a model's parameters, tied ones once; none where a layer has weights whose number is
/// not known.
std::optional<std::int64_t> known_parameters(const Profile& profile);

/// The sizes that a model's config.json and its costs say; `config` may be empty.
ModelSizes model_sizes(const std::string& config, const Profile& profile);

/// "70.6 billion parameters, 80 layers, 64 heads, 8 key/value heads".
std::string sizes_text(const ModelSizes& sizes);

/// What an answer is made from.
struct AnswerParts {
    std::string model;    ///< as it was named
    std::string cluster;  ///< as it was named
    int nodes = 1;
    int sequence = 0;                ///< tokens of a sample
    std::optional<double> tokens{};  ///< of the whole training; none: not asked
    std::optional<double> price{};   ///< of one device for an hour, in any currency
    ModelSizes sizes{};
    const Scenario& scenario;  ///< open keys and all
    const Profile& profile;
    const sim::Prediction& best;
    const sim::FoundPlan& plan;
    const sim::EveryShape& shapes;
    const sim::SearchResult& search;
};

/// The numbers of an answer.
struct Answer {
    int devices = 0;
    std::string device{};
    double tokens_per_step = 0;
    double tokens_per_second = 0;
    double seconds_per_step = 0;
    std::optional<double>
        utilisation{};  ///< model FLOPs utilisation, as the best plan's outlook shows it
    std::optional<Bytes> memory{};  ///< of the device; none: not known
    Bytes peak{};                   ///< of the fullest device
    std::optional<double> days{};   ///< of the whole training
    std::optional<double> device_hours{};
    std::optional<double> cost{};

    /// Share of the memory that is left on the fullest device; none where it is not known.
    std::optional<double> headroom() const;
};

Answer answer_of(const AnswerParts& parts);

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

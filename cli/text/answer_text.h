#pragma once

#include <optional>
#include <string>

#include "cli/base/console.h"
#include "cli/predict/prediction.h"
#include "cli/text/json_output.h"
#include "core/scenario/scenario.h"
#include "sim/search/every_shape.h"

/// The answer to "what should I train this model with", in the units in which clusters are bought.
namespace pipetwin::cli {

/// What an answer is made from.
struct AnswerParts {
    std::string model;    ///< as it was named
    std::string cluster;  ///< as it was named
    int nodes = 1;
    int sequence = 0;                ///< tokens of a sample
    std::optional<double> tokens{};  ///< of the whole training; none: not asked
    std::optional<double> price{};   ///< of one device for an hour, in any currency
    const Scenario& scenario;        ///< open keys and all
    const Profile& profile;
    const Prediction& best;
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
    std::optional<double> utilisation{};  ///< model FLOPs utilisation
    std::optional<Bytes> memory{};        ///< of the device; none: not known
    Bytes peak{};                         ///< of the fullest device
    std::optional<double> days{};         ///< of the whole training
    std::optional<double> device_hours{};
    std::optional<double> cost{};

    /// Share of the memory that is left on the fullest device; none where it is not known.
    std::optional<double> headroom() const;
};

Answer answer_of(const AnswerParts& parts);

/// The answer first, then the best plan of every shape and which of them save memory.
std::string answer_text(const AnswerParts& parts, const Console& console);

/// The answer as JSON: {"tokens_per_second": ..., "shapes": [...], "front": [...]}.
Json answer_json(const AnswerParts& parts);

}  // namespace pipetwin::cli

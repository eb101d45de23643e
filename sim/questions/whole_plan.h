// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/artifacts/model_flops.h"
#include "core/base/units.h"
#include "sim/questions/prediction.h"
#include "sim/search/every_shape.h"
#include "sim/search/plan_search.h"

namespace pipetwin {

class Model;
struct Profile;
struct Scenario;

}  // namespace pipetwin

/// What command line and window answer to "how should this be trained": the same numbers.
namespace pipetwin::sim {

/// So many of the fastest shapes are searched more closely.
inline constexpr std::size_t improved_shapes = 10;

/// A search, and what follows from its best plan.
struct WholePlan {
    SearchResult search;    ///< with what the searches of every shape simulated
    EveryShape shapes;      ///< empty where they were not asked for
    Prediction prediction;  ///< of the best plan
};

/// What a whole plan takes beside the search.
struct WholePlanOptions {
    bool every_shape = false;  ///< the best plan of each, too
    /// Gets the share of the shapes that is done; ends the search of shapes where it returns false.
    std::function<bool(double share)> progress{};
    std::optional<Bytes> memory_left{};  ///< of this machine, as for `predict`
    FlopsCount flops_count = default_flops_count;
};

/// Completes a search of the scenario that found at least one plan. Throws as `predict`.
WholePlan whole_plan(const Scenario& scenario,
                     const Model& model,
                     const Profile& profile,
                     SearchResult search,
                     const WholePlanOptions& options);

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

/// What a training is billed by.
struct Training {
    int sequence = 0;                ///< tokens of a sample
    std::optional<double> tokens{};  ///< of the whole training; none: not asked
    std::optional<double> price{};   ///< of one device for an hour, in any currency
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

/// The numbers of one plan of the scenario, without its utilisation.
Answer answer_of(const Scenario& scenario,
                 const Profile& profile,
                 const FoundPlan& plan,
                 const Training& training);

}  // namespace pipetwin::sim

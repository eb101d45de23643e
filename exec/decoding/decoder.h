// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "exec/decoding/beam_search.h"
#include "exec/replicas/replicas.h"

namespace pipetwin {

class Model;

}  // namespace pipetwin

namespace pipetwin::exec {

/// Tokens that a decoder puts around a translation, and how it searches.
struct DecodingSettings {
    int beam = 1;                 ///< as BeamSettings
    double length_penalty = 0.6;  ///< as BeamSettings
    std::int32_t padding = 0;
    std::int32_t begin = 0;
    std::int32_t end = 0;
    /// Called after each mini-batch with the share that is done, 0 to 1, of the work that
    /// translations of the greatest length take; null: never.
    std::function<void(double share)> progress{};
};

/// Translates sources of token ids with a trained translation model, by forwards through its
/// pipelines: a forward of a mini-batch gives the next token of as many hypotheses as it has
/// samples, and computes their sources and all tokens before it again, as no keys and values are
/// kept. `step`: for the place of an error. The same bits for every partition, schedule and number
/// of replicas; in several processes, all call it and get the same.
///
/// Throws Error(BadInput), naming the source, for one without tokens or with more than the model
/// has positions for; else as Executor::logits and `beam_search`.
std::vector<Decoded> decode(Replicas& pipelines,
                            const Model& model,
                            const std::vector<std::vector<std::int32_t>>& sources,
                            const DecodingSettings& settings,
                            int step);

}  // namespace pipetwin::exec

// SPDX-License-Identifier: Apache-2.0
#include "core/artifacts/model_flops.h"

#include <algorithm>
#include <cstddef>

#include "core/scenario/settled_scenario.h"
#include "core/schedule/recompute.h"

namespace pipetwin {

namespace {

constexpr std::array<std::string_view, 3> words_of_counts{"palm", "megatron", "hardware"};

/// The share of the forward of all layers but the last that is computed again; none where only
/// parts of layers or some stages are, whose operations a profile does not say.
std::optional<double> recomputed_share(const SettledScenario& scenario) {
    const auto& pipeline = scenario.pipeline;
    if (has_schedule_file(scenario)) {
        return std::nullopt;
    }
    if (pipeline.layer_recompute == LayerRecompute::Block && pipeline.recompute_only == 0) {
        return 1;
    }
    const std::optional<Recompute> mode = pipeline.recompute.everywhere();
    if (pipeline.layer_recompute != LayerRecompute::None || !mode) {
        return std::nullopt;
    }
    int again = 0;
    for (int m = 0; m < pipeline.micro_batches; ++m) {
        again += recomputes(*mode, m, pipeline.micro_batches) ? 1 : 0;
    }
    return static_cast<double>(again) / pipeline.micro_batches;
}

}  // namespace

std::string_view to_string(FlopsCount count) {
    return words_of_counts.at(static_cast<std::size_t>(count));
}

std::optional<FlopsCount> flops_count_named(std::string_view word) {
    const auto found = std::ranges::find(words_of_counts, word);
    return found == words_of_counts.end()
               ? std::nullopt
               : std::optional(
                     flops_counts.at(static_cast<std::size_t>(found - words_of_counts.begin())));
}

std::optional<double> model_flops(FlopsCount count,
                                  const SettledScenario& scenario,
                                  const Profile& profile) {
    const std::optional<double> all = model_operations(profile);
    if (!all || count == FlopsCount::Palm) {
        return all;
    }
    if (count == FlopsCount::Megatron) {
        const std::optional<double> masked = masked_model_operations(profile);
        return masked ? std::optional(*all - *masked) : std::nullopt;
    }
    const std::optional<double> share = recomputed_share(scenario);
    if (!share) {
        return std::nullopt;
    }
    // Narayanan et al. (2021), section 5.1: logits are not computed again.
    return *all + *share * (*all / 3 - profile.layers.back().operations.value_or(0));
}

UnknownFlops why_unknown(FlopsCount count, const Profile& profile) {
    if (!model_operations(profile)) {
        return {.reason =
                    "the profile does not say how many operations its layers do "
                    "(layers[].operations_per_sample, as 'import hf' writes it)",
                .known = ""};
    }
    return count == FlopsCount::Megatron
               ? UnknownFlops{.reason =
                                  "the profile does not say which operations a causal mask hides "
                                  "(layers[].masked_operations_per_sample, as 'import hf' writes "
                                  "it)",
                              .known = "palm"}
               : UnknownFlops{.reason =
                                  "only parts are computed again, whose operations are not "
                                  "known",
                              .known = "palm or megatron"};
}

}  // namespace pipetwin

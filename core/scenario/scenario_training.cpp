#include <array>
#include <cstdint>

#include "core/scenario/scenario_key.h"
#include "core/scenario/scenario_tables.h"
#include "core/scenario/scenario_words.h"

/// [training] and [output].
namespace pipetwin {

namespace {

void refuse_end_of_a_constant_rate(const TomlTable& table, const Scenario& scenario) {
    if (scenario.training.final_learning_rate > 0 &&
        scenario.training.learning_rate_schedule == RateSchedule::Constant) {
        table.refuse("final_learning_rate",
                     "0",
                     "a constant rate does not go anywhere; set learning_rate_schedule = "
                     "\"linear\" or \"cosine\"");
    }
}

void refuse_validation_of_nothing(const TomlTable& table, const Scenario& scenario) {
    if (scenario.training.validate_every > 0 && !scenario.data.has_validation()) {
        table.refuse("validate_every",
                     "0, as there is nothing to validate on",
                     "set data.validation = 0.1, a share of the data, or a path");
    }
}

using Training = Scenario::TrainingPart;

constexpr std::int64_t exact_in_json = std::int64_t{1} << 53;
constexpr Range rates{0, 1'000'000};
constexpr Range size_or_none{0, any_size.high};

constexpr std::array<ScenarioKey, 14> keys_of_training{
    keys::integer<&Training::batch>("batch", {1, 1 << 24}),
    keys::integer<&Training::steps>("steps", any_size),
    keys::choice<&Training::optimizer>("optimizer", words::optimizers),
    keys::number<&Training::learning_rate>("learning_rate", rates),
    keys::choice<&Training::learning_rate_schedule>("learning_rate_schedule",
                                                    words::rate_schedules),
    keys::integer<&Training::warmup_steps>("warmup_steps", size_or_none),
    keys::number<&Training::final_learning_rate>("final_learning_rate", rates)
        .checked_by(refuse_end_of_a_constant_rate),
    keys::number<&Training::clip_norm>("clip_norm", rates),
    keys::choice<&Training::precision>("precision", words::precisions),
    keys::choice<&Training::gradients>("gradients", words::gradient_types),
    keys::choice<&Training::accumulation>("accumulation", words::accumulations),
    keys::integer<&Training::seed>("seed", {0, exact_in_json}),
    keys::integer<&Training::validate_every>("validate_every", size_or_none)
        .checked_by(refuse_validation_of_nothing),
    keys::integer<&Training::validation_batches>("validation_batches", any_size)};

constexpr std::array<ScenarioKey, 1> keys_of_output{
    keys::integer<&Scenario::OutputPart::checkpoint_every>("checkpoint_every", size_or_none)};

}  // namespace

std::span<const ScenarioKey> training_keys() {
    return keys_of_training;
}

std::span<const ScenarioKey> output_keys() {
    return keys_of_output;
}

}  // namespace pipetwin

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/scenario/scenario_key.h"
#include "core/scenario/scenario_tables.h"
#include "core/scenario/scenario_words.h"

/// [training] and [output].
namespace pipetwin {

namespace {

void refuse_end_of_a_constant_rate(const TomlTable& table, const Scenario& scenario) {
    const RateSchedule schedule = scenario.training.learning_rate_schedule;
    if (scenario.training.final_learning_rate > 0 && schedule == RateSchedule::InverseSqrt) {
        table.refuse("final_learning_rate",
                     "0",
                     "the schedule inverse-sqrt falls with 1 / sqrt(step) and has no end; set "
                     "learning_rate_schedule = \"linear\" or \"cosine\"");
    }
    if (scenario.training.final_learning_rate > 0 && schedule == RateSchedule::Step) {
        table.refuse("final_learning_rate",
                     "0",
                     "the schedule step ends where learning_rate_factor leads; set "
                     "learning_rate_schedule = \"linear\" or \"cosine\"");
    }
    if (scenario.training.final_learning_rate > 0 && schedule == RateSchedule::Constant) {
        table.refuse("final_learning_rate",
                     "0",
                     "a constant rate does not go anywhere; set learning_rate_schedule = "
                     "\"linear\" or \"cosine\"");
    }
}

/// Throws Error(BadInput) where `key` is written and the scenario's optimizer has no such setting.
void expect_optimizer(const TomlTable& table,
                      const Scenario& scenario,
                      std::string_view key,
                      bool OptimizerTraits::*has_it) {
    const OptimizerKind optimizer = scenario.training.optimizer;
    if (!table.has(key) || traits(optimizer).*has_it) {
        return;
    }
    std::vector<std::string_view> words;
    for (const OptimizerTraits& row : optimizers) {
        if (row.*has_it) {
            words.push_back(row.word);
        }
    }
    table.refuse(
        key,
        fmt::format("no value: the optimizer {} has no such setting", to_string(optimizer)),
        fmt::format("leave the key out, or set optimizer = \"{}\"", fmt::join(words, "\" or \"")));
}

/// Throws Error(BadInput) where `key` is 1, which leaves a running mean as it was.
void refuse_one(const TomlTable& table, std::string_view key) {
    if (table.number(key, {0, 1}) == 1.0) {
        table.refuse(
            key, "a number from 0 up to, but not, 1", "with 1 what came before would never fade");
    }
}

void check_momentum(const TomlTable& table, const Scenario& scenario) {
    expect_optimizer(table, scenario, "momentum", &OptimizerTraits::has_momentum);
    refuse_one(table, "momentum");
}

void check_rmsprop_decay(const TomlTable& table, const Scenario& scenario) {
    expect_optimizer(table, scenario, "rmsprop_decay", &OptimizerTraits::has_rmsprop_decay);
    refuse_one(table, "rmsprop_decay");
}

void check_epsilon(const TomlTable& table, const Scenario& scenario) {
    expect_optimizer(table, scenario, "epsilon", &OptimizerTraits::has_epsilon);
}

void read_betas(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    const auto betas = table.numbers(key.name, key.range);
    if (!betas) {
        return;
    }
    expect_optimizer(table, scenario, key.name, &OptimizerTraits::has_betas);
    if (betas->size() != 2 || std::ranges::any_of(*betas, [](double beta) { return beta >= 1; })) {
        table.refuse(key.name,
                     "two numbers from 0 up to, but not, 1: the shares that the means of gradients "
                     "and of their squares keep",
                     "write betas = [0.9, 0.95]");
    }
    scenario.training.betas = *betas;
}

void print_betas(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    if (!scenario.training.betas.empty()) {
        writer.list(key.name, scenario.training.betas);
    }
}

void print_weight_decay_of(const ScenarioKey& key,
                           ScenarioWriter& writer,
                           const Scenario& scenario) {
    if (scenario.training.weight_decay_of != WeightDecayOf::All) {
        writer.string(key.name, key.words[as_index(scenario.training.weight_decay_of)]);
    }
}

void check_average_decay(const TomlTable& table, const Scenario&) {
    refuse_one(table, "average_decay");
}

void read_milestones(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    const auto steps = table.integers(key.name, key.range);
    if (scenario.training.learning_rate_schedule != RateSchedule::Step) {
        if (steps) {
            table.refuse(key.name,
                         "no value: only the schedule step has milestones",
                         "leave the key out, or set learning_rate_schedule = \"step\"");
        }
        return;
    }
    if (!steps || steps->empty()) {
        table.missing(key.name,
                      "the steps from which the rate is lower, as in learning_rate_milestones = "
                      "[60, 80]");
    }
    if (std::ranges::adjacent_find(*steps, std::greater_equal{}) != steps->end()) {
        table.refuse(key.name, "ascending steps", "write each step once, the first one first");
    }
    scenario.training.learning_rate_milestones = *steps;
}

void print_milestones(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    if (const auto& steps = scenario.training.learning_rate_milestones; !steps.empty()) {
        writer.list(key.name, steps);
    }
}

void refuse_factor_without_milestones(const TomlTable& table, const Scenario& scenario) {
    if (table.has("learning_rate_factor") &&
        scenario.training.learning_rate_schedule != RateSchedule::Step) {
        table.refuse("learning_rate_factor",
                     "no value: only the schedule step has a factor",
                     "leave the key out, or set learning_rate_schedule = \"step\"");
    }
}

void print_factor(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    if (scenario.training.learning_rate_schedule == RateSchedule::Step) {
        writer.number(key.name, scenario.training.learning_rate_factor);
    }
}

/// A number with a printer of its own.
constexpr ScenarioKey printed_by(ScenarioKey key, ScenarioKey::Print print) {
    key.print = print;
    return key;
}

void refuse_validation_of_nothing(const TomlTable& table, const Scenario& scenario) {
    if (scenario.training.validate_every > 0 && !scenario.data.has_validation()) {
        table.refuse("validate_every",
                     "0, as there is nothing to validate on",
                     "set data.validation = 0.1, a share of the data, or a path");
    }
}

void refuse_translations_of_others(const TomlTable& table, const Scenario& scenario) {
    if (scenario.training.translate > 0 && scenario.model.kind != ModelKind::Translation) {
        table.refuse("translate",
                     "0, as only a model of kind translation translates",
                     "leave the key out, or set model.kind = \"translation\"");
    }
}

using Training = Scenario::TrainingPart;

/// A number that is printed where texts are translated at all.
template <int Training::*Member>
void print_of_translating(const ScenarioKey& key,
                          ScenarioWriter& writer,
                          const Scenario& scenario) {
    if (scenario.training.translate > 0) {
        writer.number(key.name, scenario.training.*Member);
    }
}

constexpr std::int64_t exact_in_json = std::int64_t{1} << 53;
constexpr Range rates{0, 1'000'000};
constexpr Range size_or_none{0, any_size.high};

constexpr Range shares{0, 1};

constexpr ScenarioKey milestones_key{.name = "learning_rate_milestones",
                                     .read = read_milestones,
                                     .print = print_milestones,
                                     .range = any_size};

constexpr ScenarioKey betas_key{
    .name = "betas", .read = read_betas, .print = print_betas, .range = shares};

constexpr std::array<ScenarioKey, 26> keys_of_training{
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
    keys::integer<&Training::validation_batches>("validation_batches", any_size),
    milestones_key,
    printed_by(keys::number<&Training::learning_rate_factor>("learning_rate_factor", shares)
                   .checked_by(refuse_factor_without_milestones),
               print_factor),
    keys::written_number<&Training::momentum>("momentum", shares).checked_by(check_momentum),
    keys::written_number<&Training::weight_decay>("weight_decay", rates),
    printed_by(keys::choice<&Training::weight_decay_of>("weight_decay_of", words::weight_decays),
               print_weight_decay_of),
    betas_key,
    keys::written_number<&Training::rmsprop_decay>("rmsprop_decay", shares)
        .checked_by(check_rmsprop_decay),
    keys::written_number<&Training::epsilon>("epsilon", rates).checked_by(check_epsilon),
    keys::number<&Training::average_decay>("average_decay", shares).checked_by(check_average_decay),
    keys::written_boolean<&Training::accuracy>("accuracy"),
    printed_by(keys::integer<&Training::translate>("translate", {0, 1 << 20})
                   .checked_by(refuse_translations_of_others),
               print_of_translating<&Training::translate>),
    printed_by(keys::integer<&Training::beam>("beam", {1, 64}),
               print_of_translating<&Training::beam>)};

/// A unit of time as a scenario writes it, the longest first.
struct TimeUnit {
    std::string_view name;
    Duration length;
};
constexpr std::array time_units{TimeUnit{"h", std::chrono::hours(1)},
                                TimeUnit{"min", std::chrono::minutes(1)},
                                TimeUnit{"s", std::chrono::seconds(1)}};
constexpr std::int64_t longest_period = 1'000'000;  ///< of any unit

/// The time that a text such as "10 min" says; none if it says none.
std::optional<Duration> time_of(std::string_view text) {
    std::int64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [behind, status] = std::from_chars(text.data(), end, number);
    if (status != std::errc() || number < 1 || number > longest_period) {
        return std::nullopt;
    }
    std::string_view unit(behind, static_cast<std::size_t>(end - behind));
    unit.remove_prefix(std::min(unit.find_first_not_of(' '), unit.size()));
    const auto* const found = std::ranges::find(time_units, unit, &TimeUnit::name);
    return found == time_units.end() ? std::nullopt : std::optional(number * found->length);
}

/// "10 min", in the longest unit that leaves no rest.
std::string time_text(Duration time) {
    const auto* const unit = std::ranges::find_if(
        time_units, [time](const TimeUnit& each) { return time % each.length == Duration{}; });
    return fmt::format("{} {}", time / unit->length, unit->name);
}

void read_checkpoint_every(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    if (!table.has(key.name)) {
        return;
    }
    Scenario::OutputPart& output = scenario.output;
    if (!table.is_text(key.name)) {
        output = {.checkpoint_every = table.required_int(key.name, size_or_none),
                  .checkpoint_period = {}};
        return;
    }
    const std::optional<Duration> period = time_of(*table.text(key.name));
    if (!period) {
        table.refuse(
            key.name,
            fmt::format("a number of steps, or a time of 1 to {} s, min or h", longest_period),
            "write checkpoint_every = 100, or checkpoint_every = \"10 min\"");
    }
    output = {.checkpoint_every = 0, .checkpoint_period = *period};
}

void print_checkpoint_every(const ScenarioKey& key,
                            ScenarioWriter& writer,
                            const Scenario& scenario) {
    const Scenario::OutputPart& output = scenario.output;
    if (output.checkpoint_every > 0 || output.checkpoint_period == Duration{}) {
        writer.number(key.name, output.checkpoint_every);
    } else {
        writer.string(key.name, time_text(output.checkpoint_period));
    }
}

constexpr std::array<ScenarioKey, 1> keys_of_output{
    keys::own("checkpoint_every", read_checkpoint_every, print_checkpoint_every)};

}  // namespace

std::span<const ScenarioKey> training_keys() {
    return keys_of_training;
}

std::span<const ScenarioKey> output_keys() {
    return keys_of_output;
}

}  // namespace pipetwin

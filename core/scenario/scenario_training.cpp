// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <numeric>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/scenario/scenario_key.h"
#include "core/scenario/scenario_tables.h"
#include "core/scenario/scenario_words.h"
#include "core/text/json_text.h"

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

bool is_one(double sum) {
    constexpr double rounding = 1e-6;
    return std::abs(sum - 1) <= rounding;
}

/// Throws Error(BadInput) about training.expert_load at a place in the file.
[[noreturn]] void refuse_loads(const std::filesystem::path& file,
                               const std::string& where,
                               std::string found) {
    throw Error(ErrorKind::BadInput,
                fmt::format("{}{}", file.string(), where),
                std::move(found),
                "write a list for each block with experts: [[0.25, 0.25, 0.5], ...]")
        .about("training.expert_load");
}

/// Shares of experts, a list for each block that has any.
Scenario::TrainingPart::LoadOfExperts read_load_file(const std::filesystem::path& file) {
    constexpr std::size_t largest = std::size_t{64} << 20;
    const nlohmann::json root = parse_json(read_file(file, largest), file.string());
    if (!root.is_array() || root.empty()) {
        refuse_loads(file, "", "expected a list of lists of shares");
    }
    Scenario::TrainingPart::LoadOfExperts load{.file = file};
    for (std::size_t block = 0; block < root.size(); ++block) {
        const nlohmann::json& list = root[block];
        const std::string where = fmt::format(", /{}", block);
        const auto is_share = [](const nlohmann::json& share) {
            return share.is_number() && share.get<double>() >= 0;
        };
        if (!list.is_array() || list.empty() || !std::ranges::all_of(list, is_share)) {
            refuse_loads(file, where, "expected a list of numbers that are not negative");
        }
        load.of_blocks.push_back(list.get<std::vector<double>>());
        const std::vector<double>& own = load.of_blocks.back();
        const double sum = std::accumulate(own.begin(), own.end(), 0.0);
        if (!is_one(sum)) {
            refuse_loads(file, where, fmt::format("shares sum to {:.6g}, expected 1", sum));
        }
    }
    return load;
}

void read_expert_load(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    Scenario::TrainingPart::LoadOfExperts& load = scenario.training.expert_load;
    if (table.is_text(key.name)) {
        const std::string word = *table.text(key.name);
        load = {};
        if (word != "balanced") {
            if (!word.ends_with(".json")) {
                table.refuse(key.name,
                             "\"balanced\", a number, a list of shares or a file of them",
                             "a file of shares ends in .json");
            }
            load = read_load_file(resolve(scenario.file, word));
        }
    } else if (table.is_list(key.name)) {
        load = {.shares = *table.numbers(key.name, shares)};
        const double sum = std::accumulate(load.shares.begin(), load.shares.end(), 0.0);
        if (!is_one(sum)) {
            table.refuse(key.name,
                         fmt::format("shares that sum to 1, but these sum to {:.6g}", sum),
                         "divide each by their sum");
        }
    } else if (const auto fullest = table.number(key.name, {1, key.range.high})) {
        load = {.fullest = *fullest};
    }
}

void print_expert_load(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    const Scenario::TrainingPart::LoadOfExperts& load = scenario.training.expert_load;
    if (!load.file.empty()) {
        writer.string(key.name, load.file.string());
    } else if (!load.shares.empty()) {
        writer.list(key.name, load.shares);
    } else if (load.fullest != 1) {
        writer.number(key.name, load.fullest);
    }
}

/// Prints what is not `usual`.
template <auto Member, int Usual>
void print_unless_usual(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    if (scenario.training.*Member != Usual) {
        writer.number(key.name, scenario.training.*Member);
    }
}

constexpr std::array<ScenarioKey, 30> keys_of_training{
    keys::number<&Training::batch>("batch", {1, 1 << 24}).says("samples per mini-batch"),
    keys::number<&Training::steps>("steps", any_size).says("optimizer steps"),
    keys::choice<&Training::optimizer>("optimizer", words::optimizers)
        .says("`sgd`, `momentum`, `rmsprop`, `adam`, `adamw`: as in PyTorch, with its defaults. "
              "`rmsprop-momentum`: TensorFlow's RMSProp, with the defaults of GPipe's training of "
              "AmoebaNet. [Formulas](internals/executor.md#optimizers)"),
    keys::number<&Training::learning_rate>("learning_rate", rates).says("learning rate"),
    keys::choice<&Training::learning_rate_schedule>("learning_rate_schedule", words::rate_schedules)
        .says("`constant`; `linear`, `cosine`: falls to `final_learning_rate` until the last step, "
              "along a line or half a cosine; `step`: multiplied by `learning_rate_factor` at each "
              "of `learning_rate_milestones`, as in PyTorch's `MultiStepLR`; `inverse-sqrt`: falls "
              "with 1 / sqrt(step), as in the first Transformer: at step s, from 1 on, the rate is "
              "`learning_rate` * sqrt(`warmup_steps` / s)"),
    keys::number<&Training::warmup_steps>("warmup_steps", size_or_none)
        .says("steps in which the learning rate first rises linearly to `learning_rate`"),
    keys::number<&Training::final_learning_rate>("final_learning_rate", rates)
        .checked_by(refuse_end_of_a_constant_rate)
        .says("learning rate at the last step of `linear` and `cosine`"),
    keys::number<&Training::clip_norm>("clip_norm", rates)
        .says("gradients are scaled down if the norm of all of them together is larger than this, "
              "as by PyTorch's `clip_grad_norm_`; 0: no clipping. The metric `grad_norm` is the "
              "norm before clipping"),
    keys::choice<&Training::precision>("precision", words::precisions)
        .says("`fp32`; `fp64` on the CPU; `bf16`, with fp32 master weights"),
    keys::choice<&Training::gradients>("gradients", words::gradient_types)
        .says("number type of the gradients of two-byte weights: `fp32`, or `same` as the weights "
              "(simulation and planning only). Where none is written, that of the "
              "[stack](devices.md#stacks), and without one `fp32`",
              "as the stack"),
    keys::number<&Training::optimizer_state_bytes>("optimizer_state_bytes", {0, 64})
        .says("bytes that the optimizer keeps for each two-byte weight, the weight's copy included "
              "(simulation and planning only). 12 is Adam's state in fp32; 8 has its two means in "
              "two bytes; 6 the copy, too, or the 16 bits of it that the weight does not have "
              "(Megatron-LM's `--exp-avg-dtype bf16`, NeMo's `distributed_fused_adam` with `dtype: "
              "bf16`); 10 those 16 bits and means in fp32; 4 two such means and no copy. An update "
              "moves as much less. `average_decay` adds four",
              "four for each number and the copy"),
    keys::choice<&Training::accumulation>("accumulation", words::accumulations)
        .says("how the gradients of the micro-batches are added up. `fused`: by the matrix "
              "products that compute them, as in the executor and in Megatron-LM since 2022. "
              "`separate`: by kernels of their own, as in PyTorch's autograd. For simulation and "
              "planning with estimated costs; measured costs include either way. Without effect "
              "where replicas divide the gradients (`shard = \"gradients\"` or `\"weights\"`): "
              "these go into the sums of the replicas with every micro-batch"),
    keys::number<&Training::seed>("seed", {0, exact_in_json})
        .typed("0 to 2^53")
        .says("seed of the initial weights and of the order of the data"),
    keys::number<&Training::validate_every>("validate_every", size_or_none)
        .checked_by(refuse_validation_of_nothing)
        .says("steps between validations; 0: none. A validation is the mean loss over the same "
              "held-out mini-batches each time, without dropout: `validation_loss` in "
              "`metrics.jsonl`"),
    keys::number<&Training::validation_batches>("validation_batches", any_size)
        .says("held-out mini-batches of `batch` samples"),
    milestones_key.typed("list of steps")
        .takes(Form::Integers)
        .says("steps, ascending and counted from 0, at which the learning rate becomes lower",
              "required for `step`"),
    printed_by(keys::number<&Training::learning_rate_factor>("learning_rate_factor", shares)
                   .checked_by(refuse_factor_without_milestones),
               print_factor)
        .says("for `step`: factor of the learning rate at each milestone", "0.1"),
    keys::number<&Training::momentum>("momentum", shares)
        .checked_by(check_momentum)
        .typed("0 up to, but not, 1")
        .says("for `momentum` and `rmsprop-momentum`: the share of the last update that the next "
              "one keeps",
              "0.9"),
    keys::number<&Training::weight_decay>("weight_decay", rates)
        .says("weight decay of the parameters that `weight_decay_of` selects. `adamw` subtracts it "
              "from the weight; the other optimizers add it, times the weight, to the clipped "
              "gradient, as in PyTorch",
              "0.01 for `adamw`, else 0"),
    printed_by(keys::choice<&Training::weight_decay_of>("weight_decay_of", words::weight_decays),
               print_weight_decay_of)
        .says("the parameters that decay: `all`, as in PyTorch's optimizers; or the `weights` of "
              "products and convolutions without norms, biases and embeddings, as in recipes for "
              "Transformers",
              "`all`"),
    betas_key.typed("list of 2 numbers, each from 0 up to, but not, 1")
        .takes(Form::Numbers)
        .says("for `adam` and `adamw`: decay rates of the means of gradients and of their squares; "
              "recipes for language models have [0.9, 0.95]",
              "[0.9, 0.999]"),
    keys::number<&Training::rmsprop_decay>("rmsprop_decay", shares)
        .checked_by(check_rmsprop_decay)
        .typed("0 up to, but not, 1")
        .says("for `rmsprop` and `rmsprop-momentum`: decay rate of the mean of squares", "0.9"),
    keys::number<&Training::epsilon>("epsilon", rates)
        .checked_by(check_epsilon)
        .says("for both `rmsprop` optimizers, `adam` and `adamw`: added to the denominator",
              "1 for `rmsprop-momentum`, else 1e-8"),
    keys::number<&Training::average_decay>("average_decay", shares)
        .checked_by(check_average_decay)
        .typed("0 up to, but not, 1")
        .says(
            "above 0: every weight has a moving average over the steps, which validation uses. "
            "Update n (from 1) keeps min(`average_decay`, (1 + n) / (10 + n)) of the average, as "
            "TensorFlow's `ExponentialMovingAverage` does. It needs one more number per weight, at "
            "least fp32. Simulation and planning with any `pipeline.shard`; training with `none`"),
    keys::boolean<&Training::accuracy>("accuracy")
        .says(
            "whether to count the share of right classes: `accuracy` and `validation_accuracy` in "
            "`metrics.jsonl`. The predicted class is the first one with the largest number; for a "
            "`binary_cross_entropy` a number above 0 means 1. It changes no loss and no gradient",
            "true where the model does not read tokens"),
    printed_by(keys::number<&Training::translate>("translate", {0, 1 << 20})
                   .checked_by(refuse_translations_of_others),
               print_of_translating<&Training::translate>)
        .says("for a `translation` model, the number of held-out texts of each language pair that "
              "are translated after the last step. BLEU and chrF of the translations, and of the "
              "sources themselves for comparison, are in `report.json` and `report.html`. 0: none",
              "0"),
    printed_by(keys::number<&Training::beam>("beam", {1, 64}),
               print_of_translating<&Training::beam>)
        .says("for `translate`, the number of hypotheses per text that the search follows at the "
              "same time; 1: always the likeliest token",
              "1"),
    ScenarioKey{.name = "expert_load",
                .read = read_expert_load,
                .print = print_expert_load,
                .range = {0, 1 << 20}}
        .typed("text, number or list of numbers")
        .takes(Form::Text | Form::Number | Form::Numbers)
        .says("rows that the [experts](experts.md#uneven-load) of a layer get. `balanced`; a "
              "number: rows of the fullest device over the mean; a list: the share of each expert; "
              "`\"FILE.json\"`: a list of such lists, one for each block with experts. All devices "
              "wait for the fullest",
              "`balanced`"),
    printed_by(keys::number<&Training::expert_capacity>("expert_capacity", {0, 1 << 20}),
               print_unless_usual<&Training::expert_capacity, 0>)
        .says("most rows that an expert takes from a device, over the mean: further rows are "
              "dropped, and fewer are filled up. 0: none is dropped",
              "0"),
    printed_by(keys::number<&Training::expert_padding>("expert_padding", {1, 1 << 16}),
               print_unless_usual<&Training::expert_padding, 1>)
        .says("rows of an expert are filled up to a multiple of this, as products in narrow types "
              "need it (16 for fp8, 32 for mxfp8)",
              "1")};

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
    keys::own("checkpoint_every", read_checkpoint_every, print_checkpoint_every)
        .typed("0 or more, or text")
        .takes(Form::Integer | Form::Text)
        .says("steps, or time (`\"90 s\"`, `\"10 min\"`, `\"2 h\"`), between "
              "[checkpoints](checkpoints.md). A number of steps writes one at the end of training, "
              "too; so does a time, once it has passed. 0: none, except after a signal",
              "`\"10 min\"`")};

}  // namespace

std::span<const ScenarioKey> training_keys() {
    return keys_of_training;
}

std::span<const ScenarioKey> output_keys() {
    return keys_of_output;
}

}  // namespace pipetwin

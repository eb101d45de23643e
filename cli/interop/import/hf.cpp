// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "cli/base/input.h"
#include "cli/interop/import/hf_scenario.h"
#include "cli/interop/import/importers.h"
#include "core/base/error.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/kernel_rates.h"
#include "core/costs/profile_json.h"
#include "core/text/json_text.h"
#include "sim/questions/estimated_model.h"

namespace pipetwin::cli {

std::string_view HfOptions::given() const {
    return device                 ? "--device"
           : sequence             ? "--sequence"
           : precision            ? "--precision"
           : stack                ? "--stack"
           : efficiency           ? "--efficiency"
           : memory_efficiency    ? "--memory-efficiency"
           : has_attention        ? "--attention"
           : loss                 ? "--loss"
           : kernels              ? "--kernels"
           : !calibration.empty() ? "--calibrate"
           : !weights.empty()     ? "--weights"
           : whole_blocks         ? "--whole-blocks"
           : trainable            ? "--trainable"
                                  : "";
}

namespace {

/// The kind of a word that the command line has checked.
template <class Kind, std::size_t count>
Kind kind_of(std::string_view word, const std::array<std::string_view, count>& words) {
    return static_cast<Kind>(std::ranges::find(words, word) - words.begin());
}

}  // namespace

void set_rates(const HfOptions& options, sim::EstimateQuestion& question) {
    constexpr int devices_of_a_node = 8;
    question.estimate.most_devices = devices_of_a_node;
    question.stack = options.stack;
    if (options.has_attention) {
        question.kernels.attention = kind_of<AttentionKernels>(options.attention, attention_words);
    }
    if (options.loss) {
        question.kernels.loss = kind_of<LossKernels>(*options.loss, loss_words);
    }
    if (options.kernels) {
        question.kernels.blocks = kind_of<BlockKernels>(*options.kernels, block_words);
    }
    question.estimate.efficiency = options.efficiency;
    question.estimate.memory_efficiency = options.memory_efficiency;
}

namespace {

template <class Value>
Value required(const std::optional<Value>& value, std::string_view option, std::string hint) {
    if (!value) {
        throw Error(
            ErrorKind::Usage, "", fmt::format("'import hf' needs {}", option), std::move(hint));
    }
    return *value;
}

/// What the options say of an estimate.
sim::EstimateQuestion estimate_of(const ImportOptions& options) {
    const HfOptions& hf = options.hf;
    sim::EstimateQuestion question{.device = hf.device.value_or(""),
                                   .precision = hf.precision,
                                   .weights = hf.weights,
                                   .calibration = hf.calibration,
                                   .whole_blocks = hf.whole_blocks};
    question.estimate.sequence =
        required(hf.sequence, "--sequence N", "the tokens of a sample, as in 4096");
    question.estimate.micro_batch_size = required(options.micro_batch_size,
                                                  "--micro-batch-size N",
                                                  "the samples of a micro-batch, such as 1");
    set_rates(hf, question);
    return question;
}

}  // namespace

Imported import_hf(const ImportOptions& options) {
    if (!options.hf.trainable) {
        required(options.hf.device, "--device NAME", "'pipetwin devices' lists the names");
    }
    const sim::EstimateQuestion question = estimate_of(options);
    const std::filesystem::path file = sim::config_file(options.file, "import hf");
    const sim::ModelConfig config =
        sim::model_config(read_input(file, JsonLimits{}.max_bytes), input_name(file));
    Imported imported;
    if (options.hf.trainable) {
        sim::expect_sequence(config, question.estimate.sequence, imported.notes);
        return hf_scenario(options, config.text, config.place);
    }
    sim::EstimatedModel found = sim::estimated_model(config, question);
    imported.notes = std::move(found.notes);
    imported.content = print_profile(found.profile);
    imported.result.layers = static_cast<int>(found.profile.layers.size());
    imported.result.parameters = parameter_count(config.model);
    return imported;
}

}  // namespace pipetwin::cli

// SPDX-License-Identifier: Apache-2.0
#include "sim/questions/estimated_model.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/suggest.h"
#include "core/base/version.h"
#include "core/costs/calibrate.h"
#include "core/costs/calibration_json.h"
#include "core/costs/devices/device_profile.h"
#include "core/costs/devices/near_name.h"
#include "core/costs/devices/number_type.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack_choice.h"
#include "core/costs/estimate.h"
#include "core/costs/kernel_rates.h"
#include "core/costs/profile_json.h"
#include "core/costs/whole_blocks.h"
#include "core/interop/hf_config.h"
#include "core/interop/hf_trainable.h"
#include "core/interop/hf_weights.h"
#include "core/plan/stage_costs.h"
#include "core/text/json_text.h"

namespace pipetwin::sim {

namespace {

/// Whether a word that names no file is a path: it has a slash, or the ending of a file, which has
/// no digits ("llama-3.2-1b" has none).
bool is_path(const std::filesystem::path& file) {
    const std::string ending = file.extension().string();
    return file.has_parent_path() || file == "-" ||
           (ending.size() > 2 && std::none_of(ending.begin(), ending.end(), [](char c) {
                return c >= '0' && c <= '9';
            }));
}

/// Throws Error(Io) for a file that is missing, with the model that its name is near to.
[[noreturn]] void refuse_missing(const std::filesystem::path& file) {
    const std::vector<std::string> models = model_names();
    const std::string_view near = near_model(file.filename().string(), models);
    throw Error(ErrorKind::Io,
                file.string(),
                "there is no such file or folder, expected a config.json, its folder, or the name "
                "of a model",
                near.empty() ? "check the path; 'pipetwin devices' lists the models known by name"
                             : fmt::format("did you mean the model '{}'?", near));
}

/// A file's word for the precision that names none that weights are trained in: what training is
/// estimated in then. Throws Error(BadInput) for a word that nothing is known of.
std::string precision_for_word(const DecoderModel& model,
                               const std::string& place,
                               std::vector<std::string>& notes) {
    const std::string_view word = model.precision_word;
    constexpr std::array<std::string_view, 6> packed{
        "float8", "fp8", "int8", "uint8", "int4", "fp4"};
    const bool is_packed = std::ranges::any_of(
        packed, [word](std::string_view begin) { return word.starts_with(begin); });
    if (word != "auto" && !is_packed) {
        throw Error(
            ErrorKind::BadInput,
            fmt::format("{}: /{}", place, model.precision_key),
            fmt::format("{}, expected bfloat16, float16, float32 or auto", model.precision_value),
            "name the precision of the training, as in --precision bf16");
    }
    notes.push_back(
        fmt::format("the file's {} is {}, in which no model is trained: costs are for bf16; "
                    "--precision changes this",
                    model.precision_key,
                    word));
    return "bf16";
}

/// The precision of the training: what the user says, else the file, else the default of
/// frameworks.
std::string precision_of(const DecoderModel& model,
                         const EstimateQuestion& question,
                         const std::string& place,
                         std::vector<std::string>& notes) {
    constexpr std::array<std::string_view, 7> known{
        "bf16", "fp16", "fp32", "fp8", "fp8-block", "mxfp8", "nvfp4"};
    if (const std::optional<std::string>& chosen = question.precision) {
        if (std::ranges::find(known, *chosen) == known.end()) {
            throw Error(ErrorKind::Usage,
                        "--precision",
                        fmt::format("'{}', expected {}", *chosen, fmt::join(known, ", ")),
                        suggestion_of_listed(*chosen, known));
        }
        return *chosen;
    }
    if (!model.quantization.empty()) {
        notes.push_back(
            fmt::format("the weights are published with a quantization ({}): costs are for {}; "
                        "--precision changes this",
                        model.quantization,
                        model.precision.value_or("bf16")));
        return model.precision.value_or("bf16");
    }
    if (!model.precision && !model.precision_key.empty()) {
        return precision_for_word(model, place, notes);
    }
    if (!model.precision) {
        notes.emplace_back(
            "the file gives no torch_dtype: costs are for fp32; --precision bf16 estimates "
            "training "
            "in half precision");
    }
    const std::string precision = model.precision.value_or("fp32");
    if (precision == "fp32" && !model.precision_key.empty()) {
        notes.push_back(
            fmt::format("costs are for fp32, as the file's {} says: --precision bf16 estimates "
                        "training in half precision",
                        model.precision_key));
    }
    return precision;
}

void apply_calibration(const EstimateQuestion& question,
                       Profile& profile,
                       std::vector<std::string>& notes) {
    const std::filesystem::path& file = question.calibration;
    if (file.empty()) {
        return;
    }
    const std::string place = file.string();
    const auto points = parse_calibration(
        read_file(file, JsonLimits{}.max_bytes), place, question.estimate.micro_batch_size);
    for (const CalibrationFactor& factor : calibrate(profile, points, place)) {
        notes.push_back(
            fmt::format("{}: measured forward {:.3g}, backward {:.3g} times the estimate",
                        factor.kind,
                        factor.forward,
                        factor.backward));
    }
}

/// The files have to hold what the config.json says; a little more is fine, as they may keep
/// buffers that it does not mention.
void expect_same_count(const LayerCost& layer, std::int64_t in_files, const std::string& place) {
    constexpr double most = 1.01;
    const auto expected = static_cast<double>(layer.parameter_count);
    if (in_files < layer.parameter_count || static_cast<double>(in_files) > most * expected) {
        throw Error(
            ErrorKind::BadInput,
            place,
            fmt::format("layer '{}' has {} numbers in the files, expected the {} of the "
                        "config.json",
                        layer.name,
                        in_files,
                        layer.parameter_count),
            "do the weights belong to this config.json? quantized weights cannot be trained");
    }
}

/// Exact bytes in place of parameters times bytes per number.
void apply_weights(const EstimateQuestion& question,
                   const DecoderModel& model,
                   Profile& profile,
                   std::vector<std::string>& notes) {
    if (question.weights.empty()) {
        return;
    }
    const std::string place = question.weights.front().string();
    const std::vector<LayerWeights> weights = read_weights(model, question.weights);
    Bytes before = -profile.tied_bytes;  // once in the files, twice in the profile
    Bytes after;
    for (std::size_t i = 0; i < weights.size(); ++i) {
        LayerCost& layer = profile.layers[i];
        expect_same_count(layer, weights[i].count, place);
        before += layer.parameter_bytes;
        after += weights[i].bytes;
        layer.parameter_bytes = weights[i].bytes;
    }
    // The head holds as many bytes of a table that it shares as the embedding has of it.
    const std::int64_t table = shared_embedding_parameters(model);
    const LayerCost& embedding = profile.layers.front();
    profile.tied_bytes = Bytes{embedding.parameter_bytes.count / embedding.parameter_count * table};
    profile.layers.back().parameter_bytes += profile.tied_bytes;
    notes.push_back(fmt::format("weights take {} in the files; in {} they would take {}",
                                format_bytes(after),
                                profile.precision,
                                format_bytes(before)));
}

/// Checks the profile; sizes that no profile can hold come from the options, which the error names.
void check_size(const Profile& profile, const std::string& place, const EstimateOptions& options) {
    try {
        check_profile(profile,
                      fmt::format("{} with --sequence {} --micro-batch-size {}",
                                  place,
                                  options.sequence,
                                  options.micro_batch_size));
    } catch (const Error& error) {
        throw error.with_hint("estimate smaller micro-batches, or shorter samples");
    }
}

/// Throws Error(BadInput) for costs of more blocks than the reader of profiles takes.
void check_file_size(std::size_t bytes,
                     const DecoderModel& model,
                     const std::string& place,
                     bool has_whole_blocks) {
    constexpr std::size_t most = JsonLimits{}.max_bytes;
    if (bytes <= most) {
        return;
    }
    const auto as_bytes = [](std::size_t count) {
        return format_bytes(Bytes{static_cast<std::int64_t>(count)});
    };
    const int fitting = static_cast<int>(static_cast<std::size_t>(model.blocks) * most / bytes);
    throw Error(ErrorKind::BadInput,
                fmt::format("{}: /{}", place, model.blocks_key),
                fmt::format("{}, but the costs of so many layers are a file of {}, expected at "
                            "most {}",
                            model.blocks,
                            as_bytes(bytes),
                            as_bytes(most)),
                fmt::format("up to about {} layers can be planned{}",
                            fitting,
                            has_whole_blocks ? "" : ", about twice as many with --whole-blocks"));
}

/// Bytes of the file of these costs, where it has far too many layers to be written; else 0.
std::size_t bytes_of_many_layers(const Profile& profile) {
    constexpr std::size_t some = 1'000;
    if (profile.layers.size() < 4 * some) {
        return 0;
    }
    Profile begin;
    begin.layers.assign(profile.layers.begin(), profile.layers.begin() + some);
    return print_profile(begin).size() * profile.layers.size() / some;
}

/// `rate`: of the device's matrix products.
std::string estimate_note(const DeviceProfile& device,
                          double rate,
                          const EstimateOptions& options,
                          bool is_default) {
    const KernelRates rates = kernel_rates(device, options);
    const std::string reached = options.efficiency
                                    ? fmt::format("{:.4g} %", 100 * *options.efficiency)
                                    : fmt::format("up to {:.4g} % (depending on their sizes)",
                                                  100 * rates.products.of_sizes.large);
    const MemoryEfficiency of_kinds = options.stack ? rates.memory : MemoryEfficiency{};
    const std::string of_memory =
        options.memory_efficiency
            ? fmt::format("{:.4g} %", 100 * *options.memory_efficiency)
            : fmt::format("{:.4g} to {:.4g} % (by the kind of kernel)",
                          100 * std::min(of_kinds.norms_backward, of_kinds.activations),
                          100 * of_kinds.copies);
    return fmt::format(
        "estimated for {}{}: matrix products at {} of {:.4g} TFLOP/s, memory at {} of {:.4g} GB/s",
        device.name,
        options.stack ? fmt::format(" with the stack {}{}",
                                    options.stack->name,
                                    is_default ? fmt::format(", the newest for it (--stack NAME "
                                                             "changes this)")
                                               : "")
                      : "",
        reached,
        rate / 1e12,
        of_memory,
        device.memory_rate.value / 1e9);
}

/// Says so where the stack knows attention of heads of another size only.
void note_other_heads(const DecoderModel& model,
                      const DeviceProfile& device,
                      const EstimateOptions& options,
                      std::vector<std::string>& notes) {
    const int size = model.attention.key_width;
    const Stack::Attention* const row =
        options.stack && options.attention == AttentionKernels::Flash
            ? options.stack->attention_of(device.name, size)
            : nullptr;
    if (row != nullptr && row->head_size != size) {
        notes.push_back(
            fmt::format("attention has the rates of heads of {}, the nearest to the model's {} "
                        "that the stack knows",
                        row->head_size,
                        size));
    }
}

/// What is in the profile that a reader would not expect, and what is not in it.
void add_model_notes(const DecoderModel& model, std::vector<std::string>& notes) {
    notes.insert(notes.end(), model.remarks.begin(), model.remarks.end());
    if (model.prediction_blocks > 0) {
        notes.push_back(fmt::format(
            "the config.json asks for multi-token prediction: {} after the model's own "
            "(mtp0, ...) with {} parameters; remove its key num_nextn_predict_layers (or "
            "mtp_num_hidden_layers) to leave it out",
            counted(model.prediction_blocks, "more block"),
            with_separators(model.prediction_blocks * prediction_parameters(model))));
    }
    if (model.encoder_blocks > 0) {
        notes.emplace_back(
            "decoder_embedding has the bytes of the shared table again, also on a rank that has "
            "the "
            "encoder's, and the sum of their gradients is not in the costs. Encoder and decoder "
            "have --sequence tokens each, and the encoder's output goes from rank to rank with the "
            "decoder's");
    }
    if (shared_embedding_parameters(model) > 0) {
        notes.emplace_back(
            model.tied
                ? "the head's matrix is that of the embedding and counts there; with several "
                  "stages "
                  "the last stage holds a second copy, and the gradients of both are summed once "
                  "per step"
                : "the blocks that predict further tokens read the embedding; with several "
                  "stages the last stage holds a second copy of it, and the gradients of both are "
                  "summed once per step");
    }
}

/// Says of a family that is trained here why this model of it is not.
void note_what_is_not_trained(const ModelConfig& config, std::vector<std::string>& notes) {
    const DecoderModel& sizes = config.model;
    if (sizes.is_part || (sizes.family != "gpt2" && sizes.family != "llama")) {
        return;
    }
    constexpr std::string_view lead =
        "this model can be planned and simulated, but not trained here: ";
    try {
        for (const HfFault& lack : parse_hf_trainable(config.text, config.place).lacks) {
            notes.push_back(fmt::format("{}{} is {}", lead, lack.where, lack.what));
        }
    } catch (const Error& error) {  // a key that says nothing about costs
        notes.push_back(fmt::format("{}{}: {}", lead, error.place(), error.text()));
    }
}

}  // namespace

std::filesystem::path config_file(const std::filesystem::path& file, std::string_view asked_by) {
    std::error_code ignored;
    if (std::filesystem::is_directory(file, ignored)) {
        return file / "config.json";
    }
    if (file == "-" || std::filesystem::exists(file, ignored)) {
        return file;
    }
    if (is_path(file)) {
        refuse_missing(file);
    }
    return find_model(file.string(), asked_by);
}

ModelConfig model_config(std::string text, std::string place) {
    DecoderModel model = parse_hf_config(text, place);
    return {.text = std::move(text), .place = std::move(place), .model = std::move(model)};
}

void expect_sequence(const ModelConfig& config, int sequence, std::vector<std::string>& notes) {
    const DecoderModel& model = config.model;
    if (model.learned_positions > 0 && sequence > model.learned_positions) {
        throw Error(
            ErrorKind::BadInput,
            fmt::format("{}: /{}", config.place, model.positions_key),
            fmt::format("{}, but --sequence is {}", model.learned_positions, sequence),
            fmt::format("the model has no more positions: --sequence {}", model.learned_positions));
    }
    if (model.context > 0 && sequence > model.context) {
        notes.push_back(fmt::format(
            "the model was made for {}, not for {}", counted(model.context, "token"), sequence));
    }
}

double product_rate(const DeviceProfile& device,
                    const EstimateOptions& estimate,
                    const std::string& hint) {
    const std::string& precision = estimate.precision;
    const double rate = matrix_rate(device, precision, hint);
    if (has_narrow_products(precision)) {
        matrix_rate(device, "bf16", "what is not in 8 bits is in bf16: choose another device");
    }
    if (estimate.stack) {
        expect_products(*estimate.stack, device.name, precision, "--stack");
    } else if (has_narrow_products(precision) && precision != "fp8") {
        const std::string stack = newest_stack("megatron", device.name, precision);
        if (stack.empty()) {
            throw Error(ErrorKind::BadInput,
                        "--device",
                        fmt::format("no stack has products in {} on '{}', and what they reach is "
                                    "known of stacks alone",
                                    precision,
                                    device.name),
                        "choose another precision, or another device");
        }
        throw Error(ErrorKind::Usage,
                    "--precision",
                    fmt::format("{} without --stack: what such products reach is known of stacks "
                                "alone",
                                precision),
                    fmt::format("add --stack {}", stack));
    }
    return rate;
}

void set_stack(const EstimateQuestion& question,
               std::string_view device,
               EstimateOptions& estimate) {
    const std::string stack =
        chosen_stack(question.stack, question.framework, device, estimate.precision);
    if (!stack.empty()) {
        take_stack(find_stack(stack, "--stack"), estimate);
    }
    question.kernels.replace(estimate);
}

EstimatedModel estimated_model(const ModelConfig& config, const EstimateQuestion& question) {
    const auto& [text, place, model] = config;
    EstimatedModel found;
    EstimateOptions estimate = question.estimate;
    const DeviceProfile device = find_device(question.device, "--device");
    estimate.precision = precision_of(model, question, place, found.notes);
    set_stack(question, device.name, estimate);
    const double rate =
        product_rate(device, estimate, "choose one of them with --precision, or another device");
    expect_sequence(config, estimate.sequence, found.notes);

    Profile& profile = found.profile;
    profile = estimated_profile(model, device, estimate);
    profile.tool_version = program_version();
    found.notes.push_back(estimate_note(device, rate, estimate, !question.stack));
    note_other_heads(model, device, estimate, found.notes);
    apply_weights(question, model, profile, found.notes);
    apply_calibration(question, profile, found.notes);
    if (question.whole_blocks) {
        profile = with_whole_blocks(profile);
    }
    check_size(profile, place, estimate);
    add_model_notes(model, found.notes);
    note_what_is_not_trained(config, found.notes);
    check_file_size(bytes_of_many_layers(profile), model, place, question.whole_blocks);
    check_file_size(print_profile(profile).size(), model, place, question.whole_blocks);
    return found;
}

}  // namespace pipetwin::sim

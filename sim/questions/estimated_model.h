// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/costs/estimate.h"
#include "core/costs/kernel_rates.h"
#include "core/costs/profile.h"
#include "core/model/decoder_model.h"

/// A published model by its name or config.json, and what its layers cost on a device.
namespace pipetwin::sim {

/// The file itself, the config.json of a folder, or the file of a model that is known by name. "-"
/// stays as it is. Throws Error(Io) for a path that leads nowhere, Error(BadInput) at the place
/// `asked_by` ("plan") for an unknown name.
std::filesystem::path config_file(const std::filesystem::path& model, std::string_view asked_by);

/// A config.json that was read.
struct ModelConfig {
    std::string text;
    std::string place;  ///< for errors
    DecoderModel model;
};

/// Reads the text of a config.json. Throws as `parse_hf_config`.
ModelConfig model_config(std::string text, std::string place);

/// What a profile of a model is estimated for.
struct EstimateQuestion {
    std::string device;          ///< as in profiles/devices
    EstimateOptions estimate{};  ///< its precision and stack are not read
    /// Name of the stack, or `no_stack`; none: the newest of `framework` that has the device.
    std::optional<std::string> stack{};
    std::string framework = "megatron";
    NamedKernels kernels{};
    std::optional<std::string> precision{};        ///< none: that of the config.json
    std::vector<std::filesystem::path> weights{};  ///< files to read exact sizes from
    std::filesystem::path calibration{};           ///< measured layers; empty: none
    bool whole_blocks = false;                     ///< a layer per block, not per half
};

/// Costs of a model, and what a reader should know of them.
struct EstimatedModel {
    Profile profile;
    std::vector<std::string> notes{};
};

/// Estimates the costs of a model. Throws Error(Usage) for an unknown precision, Error(BadInput)
/// for a device that does not compute in it, samples that the model cannot read, files of other
/// weights, and costs that are too large for a profile.
EstimatedModel estimated_model(const ModelConfig& config, const EstimateQuestion& question);

/// Estimates with the stack and the kinds of kernels of the question, in the precision of
/// `estimate`. Throws Error(BadInput) for an unknown stack.
void set_stack(const EstimateQuestion& question,
               std::string_view device,
               EstimateOptions& estimate);

/// The dense rate of the products of an estimate, which device and stack have. Throws
/// Error(BadInput) with `hint` for a precision that the device does not have, and naming the
/// nearest stack for one that is not known of the stack; Error(Usage) for one that needs a stack.
double product_rate(const DeviceProfile& device,
                    const EstimateOptions& estimate,
                    const std::string& hint);

/// Throws Error(BadInput) for samples of more tokens than the model learned positions for; adds a
/// note where they are more than it was trained with.
void expect_sequence(const ModelConfig& config, int sequence, std::vector<std::string>& notes);

}  // namespace pipetwin::sim

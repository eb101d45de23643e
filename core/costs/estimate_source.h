// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "core/costs/estimate.h"
#include "core/costs/layer_division.h"
#include "core/costs/profile.h"
#include "core/model/decoder_model.h"

/// What estimated costs of a model were made from, so that they can be made again for devices that
/// divide its samples and experts.
namespace pipetwin {

class JsonObject;

/// The device is one that is known by its name.
struct EstimateSource {
    DecoderModel model{};
    EstimateOptions options{};  ///< without the stack
    std::string device{};
    bool whole_blocks = false;  ///< `with_whole_blocks`
    /// The stack of the estimate, which may differ from the one of its name by corrections; null:
    /// that of the profile. No file has it, and sources are equal whatever it is.
    std::shared_ptr<const Stack> stack{};

    bool operator==(const EstimateSource& other) const {
        return model == other.model && options == other.options && device == other.device &&
               whole_blocks == other.whole_blocks;
    }
};

/// The source of an estimate, without what only readers of the model's file ask for.
EstimateSource source_of(DecoderModel model, EstimateOptions options, std::string_view device);

/// A source's other form, for a profile with a layer for each block.
EstimatedFrom of_whole_blocks(const EstimatedFrom& source);

/// Throws Error(BadInput) for a profile that does not say what it was estimated from.
void require_source(const Profile& profile);

/// The costs of one device of a division: those of the profile but for `samples` of a device, or,
/// where several share a layer, those of so many, with the factors of the profile's measured runs.
/// A profile that is divided by TP alone stays as it is. Throws Error(BadInput) for one that does
/// not say what it was estimated from, or as `find_device` and `find_stack`.
Profile divided_profile(const Profile& profile, const LayerDivision& division);

/// The source as a profile's file has it, and back. Throws Error(BadInput) as JsonObject.
nlohmann::ordered_json source_json(const EstimateSource& source);
EstimateSource read_source_json(const JsonObject& object);

}  // namespace pipetwin

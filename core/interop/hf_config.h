// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "core/model/decoder_model.h"
#include "core/text/json_object.h"

namespace pipetwin {

/// Hugging Face's config.json of a language model, or of a model for text and images that has one
/// inside ("text_config"). Keys that say nothing about sizes are not looked at; what a reader of
/// the counts has to know is in `remarks`. A precision that is not known (torch_dtype "auto") is
/// left out. Infinity and NaN are read, as Python writes them. Throws Error(BadInput) with
/// `place`, the JSON pointer, what was found and what was expected: for an unknown model_type
/// (naming those known), a missing key, a size that is no whole number, is out of range or does
/// not fit another.
DecoderModel parse_hf_config(std::string_view text, std::string_view place);

/// The object of the text model inside a config.json of a model for text and images or sound; none
/// where there is none.
std::optional<JsonObject> hf_text_part(const JsonObject& object);

/// Every model_type that `parse_hf_config` knows.
std::vector<std::string_view> hf_model_types();

}  // namespace pipetwin

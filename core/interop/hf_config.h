#pragma once

#include <string_view>

#include "core/model/decoder_model.h"

namespace pipetwin {

/// Hugging Face's config.json of a language model. Keys that say nothing about sizes are not looked
/// at. Throws Error(BadInput) with `place`, the JSON pointer, what was found and what was expected:
/// for an unknown model_type (naming those known), a missing key, a size that is no whole number,
/// is out of range or does not fit another.
DecoderModel parse_hf_config(std::string_view text, std::string_view place);

}  // namespace pipetwin

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

/// The known name that was probably meant by one that is not known. A wrong suggestion costs more
/// than none: digits of these names tell one product from another.
namespace pipetwin {

/// A device, a cluster or a link: the known name that is the same but for signs and capitals, or
/// begins so ("h100"), or has the same word with digits ("dgx-h100", "8xH100"), the shortest of
/// several; or one that differs by a letter or two. Empty: none is.
std::string_view near_hardware(std::string_view name, std::span<const std::string> known);

/// A model: the known name that is the same but for signs and capitals and words around it
/// ("Meta-Llama-3-70B-Instruct": llama-3-70b), or is of the same family and nearly the same size
/// ("llama-3-80b" or "llama-3-70": llama-3-70b), or of the same size and a later number of the same
/// version ("llama-3-405b": llama-3.1-405b). Empty: none is.
std::string_view near_model(std::string_view name, std::span<const std::string> known);

}  // namespace pipetwin

#pragma once

#include <cstdint>
#include <filesystem>

#include "core/model/decoder_model.h"

/// Parts that importers of other systems' launch files share.
namespace pipetwin::cli {

/// The profile that an importer writes beside its result: "x.toml" has "x.profile.json".
std::filesystem::path profile_beside(const std::filesystem::path& out);

/// Number of parameters of a model, each once.
std::int64_t decoder_parameters(const DecoderModel& model);

}  // namespace pipetwin::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/text/json_output.h"
#include "exec/training/held_out_translations.h"

/// Translations of held-out texts, and how good they are.
namespace pipetwin::cli {

/// A row of scores for each direction, and the first texts of each with their translations; empty
/// where there are none.
std::string translations_text(std::span<const exec::HeldOutTranslation> translations);

/// Scores of each direction and all texts, as JSON.
Json translations_json(std::span<const exec::HeldOutTranslation> translations);

/// A row of scores for each direction, beneath a row of heads.
std::vector<std::vector<std::string>> score_rows(
    std::span<const exec::HeldOutTranslation> translations);

}  // namespace pipetwin::cli

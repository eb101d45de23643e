#pragma once

#include <string>
#include <vector>

#include "cli/exchange.h"
#include "cli/options.h"

/// The formats that `import` reads, one file each.
namespace pipetwin::cli {

/// What an importer hands back: the file, and the rest of the result.
struct Imported {
    std::string content;
    Exchanged result;
    std::vector<std::string> notes{};  ///< what the reader should know, for stderr
};

/// A profile written by hand as CSV.
Imported import_csv(const ImportOptions& options);

/// Hugging Face's config.json, or the name of a model in profiles/models: a profile with estimated
/// costs.
Imported import_hf(const ImportOptions& options);

}  // namespace pipetwin::cli

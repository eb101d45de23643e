// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "cli/base/options.h"

namespace CLI {
class App;
}

namespace pipetwin::cli {

/// Options of `run` and `train`.
struct RunOptions {
    CommonOptions common;
    std::filesystem::path scenario;
    std::filesystem::path profile;  ///< empty: measure
    bool resume = false;
    std::filesystem::path weights{};  ///< a folder of Hugging Face's to begin with; empty: drawn
    bool live = false;                ///< live.jsonl shows every step as soon as it is done
};

/// The options of a training.
void add_training(CLI::App& app, RunOptions& options);

}  // namespace pipetwin::cli

#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/units.h"
#include "core/costs/estimate.h"
#include "core/text/override.h"
#include "core/timeline/footprint.h"

/// Training runs that other people measured, and what we say of them: scenarios/published.
namespace pipetwin::published {

/// One run: how it was set up, and what was measured.
struct Run {
    std::string name;
    std::string model{};  ///< text of a config.json
    std::string device{};
    EstimateOptions estimate{};
    std::vector<Override> scenario{};  ///< keys of a scenario
    int devices = 1;
    int batch = 1;
    std::optional<double> step_seconds{};
    std::optional<Bytes> peak{};         ///< of the fullest device
    std::optional<Bytes> state{};        ///< weights, gradients, optimizer state of the fullest
    std::optional<Bytes> activations{};  ///< of the fullest
    std::optional<bool> fits{};          ///< none: the source does not say
};

/// Runs of one set, the fastest first, as its source says.
struct Order {
    std::string text;
    std::vector<std::string> runs{};
};

/// The runs of one source.
struct Set {
    std::string name;  ///< of its file
    std::string source;
    std::string setup;
    bool hold_out = false;
    std::vector<Run> runs{};
    std::vector<Order> orders{};
};

/// Reads a set. Throws Error(BadInput) with file and JSON pointer.
Set read_set(const std::filesystem::path& file);

/// Every set of a folder, by name.
std::vector<Set> read_sets(const std::filesystem::path& folder);

/// What is predicted of a run.
struct Prediction {
    std::optional<double> step_seconds{};  ///< none where the run is refused
    MemoryUse peak{};                      ///< of the fullest rank
    std::string refused{};                 ///< why; empty: it is not
    bool fits = true;
};

/// Predicts a run from its configuration alone.
Prediction predict(const Run& run);

}  // namespace pipetwin::published

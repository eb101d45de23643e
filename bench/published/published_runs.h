// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/units.h"
#include "core/costs/estimate.h"
#include "core/costs/estimate_error.h"
#include "core/text/override.h"
#include "core/timeline/footprint.h"
#include "sim/questions/run_setup.h"

/// Training runs that other people measured, and what we say of them: scenarios/published.
namespace pipetwin {

struct Stack;

}  // namespace pipetwin

namespace pipetwin::published {

/// One run: how it was set up, and what was measured.
struct Run {
    std::string name;
    std::string model{};       ///< text of a config.json
    std::string model_name{};  ///< "Llama 3 70B"
    std::string device{};
    std::string stack{};  ///< of the software, in profiles/stacks; empty: none is known
    int year = 0;
    std::string table{};               ///< of the source; empty: it has one
    EstimateOptions estimate{};        ///< without its stack
    std::vector<Override> scenario{};  ///< keys of a scenario
    int devices = 1;
    int batch = 1;
    std::optional<double> step_seconds{};
    std::optional<Bytes> peak{};         ///< of the fullest device
    std::string peak_kind{};             ///< allocated, reserved, device or unknown
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
    /// Estimates without a stack are not meant for its runs.
    bool needs_stack = false;
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
    std::optional<Bytes> limit{};          ///< of that rank
    /// What the source's measure would show of that rank.
    Bytes shown_peak{};
    /// Weights, gradients and optimizer state of the first rank's blocks, without embedding and
    /// head. Set where the run states what it measured, as is the next.
    Bytes block_state{};
    /// What these blocks keep for their backwards at the peak, without what is there only while one
    /// of them is computed again.
    Bytes block_stash{};
    std::string refused{};  ///< why; empty: it is not
    bool fits = true;
};

/// Predicts a run from its configuration alone, with its stack where it has one.
Prediction predict(const Run& run);

/// Predicts a run with that stack, which may differ from the one of its name in its numbers; null:
/// with none.
Prediction predict_with(const Run& run, std::shared_ptr<const Stack> stack);

/// The run as predictions see it, with that stack; null: with none.
sim::RunSetup setup_of(const Run& run, std::shared_ptr<const Stack> stack);

/// The value of a scenario's key in a run; empty where the run does not name it.
std::string key_of(const Run& run, std::string_view key);

/// A run that was measured and can be predicted.
struct Compared {
    std::string set;
    std::string source;  ///< the set's `setup`: rows of one source have software and devices alike
    std::string device;
    std::string model;  ///< text of its config.json, tokens of a sample, precision
    int devices = 1;
    RunKind kind;
    double measured = 0;  ///< seconds of a step
    double predicted = 0;
};

/// Every run that was measured and is not refused, estimated without a stack; sets that need one
/// are left out.
std::vector<Compared> compared_runs(const std::vector<Set>& sets);

/// A value, and the group whose values weigh 1 together.
struct Grouped {
    double value = 0;
    std::string group;
};

/// Between what factors on the predicted step 9 of 10 measured ones lie, of the runs of one kind;
/// every source weighs the same.
struct LearnedRange {
    double low = 1;
    double high = 1;
    int runs = 0;
    int sources = 0;
};
LearnedRange learned_range(const std::vector<Compared>& runs, const RunKind& kind);

/// The value below which a share of all values lies; every group weighs the same.
double quantile(std::vector<Grouped> values, double share);

/// The range of any factors.
LearnedRange range_of(const std::vector<Grouped>& factors);

/// The range of factors that is left where one run corrects the prediction of another run of the
/// same model, on devices of the same kind, in the same set.
LearnedRange calibrated_range(const std::vector<Compared>& runs);

/// The share of pairs that are predicted in the right order, among pairs of runs of one set with
/// the same number of devices whose predicted steps differ by a share of `from` to `to`. Every set
/// weighs the same.
double right_orders(const std::vector<Compared>& runs, double from, double to);

}  // namespace pipetwin::published

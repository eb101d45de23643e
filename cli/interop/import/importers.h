// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/base/options.h"
#include "cli/interop/exchange.h"
#include "cli/interop/range_options.h"
#include "core/costs/estimate.h"
#include "core/interop/launch/logged_losses.h"
#include "core/interop/launch/training_log.h"

namespace pipetwin::sim {

struct EstimateQuestion;

}  // namespace pipetwin::sim

/// The formats that `import` reads, one file each.
namespace pipetwin::cli {

/// Options for what a config.json leaves open; see cli/interop/import/hf.cpp.
struct HfOptions {
    std::optional<std::string> device;
    std::optional<int> sequence;
    std::optional<std::string> precision;
    std::optional<std::string> stack;
    std::optional<double> efficiency;
    std::optional<double> memory_efficiency;
    std::string attention = "flash";       ///< or "standard"
    bool has_attention = false;            ///< whether that was given
    std::optional<std::string> loss{};     ///< "fused" or "standard"
    std::optional<std::string> kernels{};  ///< "fused", "compiled" or "eager"
    std::filesystem::path calibration;     ///< empty: none
    std::vector<std::filesystem::path> weights;
    bool whole_blocks = false;  ///< a layer per block, not per half
    bool trainable = false;     ///< a scenario of the model, in place of a profile

    /// The first option that was given; empty: none was.
    std::string_view given() const;
};

/// The names of ranges that the options say; PyTorch's own where they say none. Throws Error(Usage)
/// where a forward or a backward is missing, and as RangeNames.
RangeNames range_names(const RangeNameOptions& options);

/// Declares them; `formats` is what their help begins with: "torch-trace, nsys: ".
void add_range_names(CLI::App& app, RangeNameOptions& ranges, std::string_view formats);

/// Options of `import`; `common.out` is a file, and given.
struct ImportOptions {
    CommonOptions common;
    std::string format;
    std::filesystem::path file;                     ///< "-": standard input
    std::vector<std::filesystem::path> more_files;  ///< torch-trace, nsys: those of other ranks
    std::optional<int> chunks;                      ///< megatron: stages per rank
    std::optional<int> micro_batch_size;            ///< samples that the costs are for
    bool ignore_unknown = false;                    ///< launch files: leave out what is not known
    bool insist = false;              ///< launch files: leave out what changes the run, too
    std::optional<int> vocabulary{};  ///< megatron, nemo, nanotron: words, where the file has none
    /// megatron, nemo, nanotron: values of variables that the file leaves open, "NAME=VALUE".
    std::vector<std::string> variables{};
    /// megatron: a name or a config.json, for sizes that the file lacks; torchtitan, deepspeed: the
    /// model whose costs are estimated.
    std::string model{};
    std::optional<int> devices{};      ///< of the run, where the file leaves them open
    std::filesystem::path log{};       ///< of the run, beside its configuration; empty: none
    std::string cluster{};             ///< of the run, by its name; empty: not given
    std::filesystem::path rows_out{};  ///< file for measured steps; empty: none
    HfOptions hf;
    RangeNameOptions ranges;  ///< torch-trace, nsys
};

/// What the log of an imported run measured.
struct LoggedRun {
    double step_seconds = 0;
    std::optional<std::int64_t> peak_bytes{};  ///< of the device that holds most
    std::string row{};  ///< of --calibrate; empty: only the first report of a run is there
    std::vector<LoggedTimer> timers{};
    std::optional<LossCourse> loss{};  ///< none: the log has no loss
};

/// Result of an importer: the content of the file, its description and notes.
struct Imported {
    std::string content;
    Exchanged result;
    std::vector<std::string> notes{};  ///< what the reader should know, for stderr
    /// Costs of the model that the content names, for a file beside it (`profile_beside`); none:
    /// there is no such file.
    std::optional<std::string> profile{};
    /// Rows of --calibrate; none: no steps were measured.
    std::optional<std::string> rows{};
    std::optional<LoggedRun> logged{};  ///< none: no step was measured
    bool has_open_devices = false;      ///< of a run: nothing says how many devices it had
};

constexpr std::size_t largest_log = std::size_t{1} << 29;  ///< bytes

/// The value of --micro-batch-size. Throws Error(Usage) where it was left out, with `why` it is
/// needed.
int required_micro_batch_size(const ImportOptions& options, std::string why);

/// Sets what the options say of the rates that kernels reach, and of how attention is computed.
/// Costs are estimated for one device and for the 2, 4 and 8 of a node that share a layer.
void set_rates(const HfOptions& options, sim::EstimateQuestion& question);

/// A profile written by hand as CSV.
Imported import_csv(const ImportOptions& options);

/// Hugging Face's config.json, or the name of a model in profiles/models: a profile with estimated
/// costs.
Imported import_hf(const ImportOptions& options);

/// Megatron's layout, the flags of its command line, or a YAML file with them: tables of a
/// scenario, and with --device the costs of the model.
Imported import_megatron(const ImportOptions& options);

/// nanotron's YAML file: as Megatron's flags.
Imported import_nanotron(const ImportOptions& options);

/// GPT-NeoX's YAML file: as Megatron's flags.
Imported import_neox(const ImportOptions& options);

/// The YAML file of NeMo 1.x: as Megatron's flags.
Imported import_nemo(const ImportOptions& options);

/// torchtitan's TOML file: tables of a scenario.
Imported import_torchtitan(const ImportOptions& options);

/// Arguments of Hugging Face's Trainer, as YAML or JSON: tables of a scenario.
Imported import_trainer(const ImportOptions& options);

/// MaxText's YAML file, or its log: tables of a scenario.
Imported import_maxtext(const ImportOptions& options);

/// DeepSpeed's JSON file: tables of a scenario.
Imported import_deepspeed(const ImportOptions& options);

/// A graph.txt of PipeDream's profiler: a profile with branches.
Imported import_pipedream(const ImportOptions& options);

/// Traces of PyTorch's profiler or of nsys, one per rank: a profile of one layer per stage.
Imported import_torch_trace(const ImportOptions& options);

/// A trace of ours: a profile of one layer per stage.
Imported import_chrome_trace(const ImportOptions& options);

}  // namespace pipetwin::cli

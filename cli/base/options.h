// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/artifacts/model_flops.h"
#include "core/schedule/lower.h"
#include "core/text/override.h"

/// Options of every command, as the user writes them after `pipetwin`. Parsing fills these structs
/// in and checks nothing that needs a file.
namespace pipetwin::cli {

class Console;
struct OwnCommand;

enum class ColorMode { Auto, Always, Never };

/// Shared by every command.
struct CommonOptions {
    bool json = false;                ///< the result on stdout as one JSON object
    std::filesystem::path out;        ///< empty: not given
    std::vector<Override> overrides;  ///< --set key=value in the order given, then --seed
    bool quiet = false;
    bool verbose = false;
    ColorMode color = ColorMode::Auto;
    bool force = false;
};

/// Costs on the command line in place of a scenario, as written; see cli/predict/plain_numbers.h.
struct PlainOptions {
    std::optional<std::string> schedule;
    std::filesystem::path schedule_file;
    std::optional<std::string> receives;
    std::optional<int> stages;
    std::optional<int> chunks;
    std::optional<int> micro_batches;
    std::optional<int> group_size;
    std::optional<int> deferred_weights;
    std::optional<std::string> message_order;
    std::optional<std::string> forward_ms;
    std::optional<std::string> backward_ms;
    std::optional<std::string> backward_input_ms;
    std::optional<std::string> backward_weight_ms;
    std::optional<std::string> recompute;
    std::optional<std::string> recompute_ms;
    /// Times of all stages of a rank together; see cli/predict/rank_times.h.
    std::optional<std::string> rank_forward_ms{};
    std::optional<std::string> rank_backward_ms{};
    std::optional<std::string> rank_backward_input_ms{};
    std::optional<std::string> rank_backward_weight_ms{};
    std::optional<std::string> rank_recompute_ms{};
    std::optional<std::string> recompute_timing;
    std::optional<std::string> latency_ms;
    std::optional<std::string> bandwidth_gbps;
    std::optional<std::string> boundary_bytes;
    std::optional<std::string> skips;

    /// The first option that was given; empty: none was.
    std::string_view given() const;
    bool any() const { return !given().empty(); }
};

/// Options for what varies from step to step, and for what interrupts a run; see
/// cli/text/uncertainty.h.
struct UncertaintyOptions {
    std::optional<int> samples;
    std::optional<double> jitter;
    std::optional<double> transfer_jitter;
    std::optional<double> device_jitter;
    std::optional<std::string> spikes;
    std::optional<std::string> straggler;
    std::optional<double> mtbf_hours;
    std::optional<int> devices;
    std::optional<int> checkpoint_every;
    std::optional<double> checkpoint_s;
    std::optional<double> restart_s;

    /// True if any of them was given.
    bool any() const;
};

/// Options of `run`.
struct RunOptions {
    CommonOptions common;
    std::filesystem::path scenario;
    std::filesystem::path profile;  ///< empty: measure
    bool resume = false;
    std::filesystem::path weights{};  ///< a folder of Hugging Face's to begin with; empty: drawn
    bool live = false;                ///< live.jsonl shows every step as soon as it is done
};

/// Options of `train`.
struct TrainOptions {
    RunOptions run;
};

/// Options of `launch`.
struct LaunchOptions {
    CommonOptions common;
    std::filesystem::path scenario;
    int ranks = 0;
    std::vector<std::string> train;  ///< the words of `train` for each process
};

/// Lists of plain numbers, and where the plans that they make are written to; each may be empty.
struct SweepOptions {
    std::vector<std::string> schedules;
    std::vector<int> stages;
    std::vector<int> micro_batches;
    std::filesystem::path svg;
    std::filesystem::path csv;

    /// True if there is more than one plan.
    bool any() const {
        return schedules.size() > 1 || stages.size() > 1 || micro_batches.size() > 1;
    }
};

/// Options of `simulate`.
struct SimulateOptions {
    CommonOptions common;
    std::filesystem::path scenario;  ///< empty: plain numbers
    std::filesystem::path profile;
    std::filesystem::path calibration;      ///< measured runs; empty: none
    std::optional<FlopsCount> flops_count;  ///< of --mfu
    PlainOptions plain;
    SweepOptions sweep{};
    UncertaintyOptions uncertainty;
};

/// Options of `sweep`.
struct SweepCommand {
    CommonOptions common;
    std::vector<std::filesystem::path> scenarios;  ///< empty: plain numbers
    std::filesystem::path profile;                 ///< of all scenarios
    PlainOptions plain;
    SweepOptions lists{};
};

/// Options of `plan`.
struct PlanOptions {
    CommonOptions common;
    /// A scenario; or a model: its name, its config.json or folder, or its *.profile.json.
    std::filesystem::path scenario;
    std::string cluster;  ///< of a model: the nodes, as in profiles/clusters; empty: none
    int nodes = 1;
    std::optional<int> sequence;           ///< tokens per sample
    std::optional<double> batch_tokens;    ///< tokens per step
    std::optional<std::string> precision;  ///< of the estimate
    bool whole_blocks = false;             ///< no block is cut in two
    std::optional<double> tokens;          ///< of the whole training
    std::optional<double> price;           ///< of one device for an hour
    std::filesystem::path profile;
    std::filesystem::path calibration;      ///< measured runs; empty: none
    std::optional<FlopsCount> flops_count;  ///< of --mfu
    std::filesystem::path heat_map;         ///< *.svg; empty: not asked for
    std::filesystem::path order_out;        ///< *.profile.json; empty: layers keep their order
    bool hybrid = false;                    ///< what stages of unequal width could do, too
    bool largest_layers = false;            ///< how many layers fit, in place of the fastest plan
};

/// Options of `profile`.
struct ProfileOptions {
    CommonOptions common;
    std::filesystem::path scenario;
};

/// Options of `model`.
struct ModelOptions {
    CommonOptions common;
    std::filesystem::path scenario;
    std::filesystem::path profile;  ///< costs that decide the cuts; empty: where simulate looks
    std::filesystem::path svg;      ///< *.svg; empty: not asked for
    /// Costs estimated for a device, to be written; both are given, or none.
    std::string device{};
    std::filesystem::path costs_out{};  ///< *.profile.json
};

/// Options of `compare`.
struct CompareOptions {
    CommonOptions common;
    std::filesystem::path predicted;  ///< a trace, or a run folder
    std::filesystem::path measured;   ///< empty: the run folder's own
};

/// Options of `check`.
struct CheckOptions {
    CommonOptions common;
    std::filesystem::path file;
    std::optional<int> capacity;
    bool preposted_receives = false;
    bool one_queue_per_ranks = false;
};

/// Options for what a config.json leaves open; see cli/interop/import/hf.cpp.
struct HfOptions {
    std::optional<std::string> device;
    std::optional<int> sequence;
    std::optional<std::string> precision;
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

/// Patterns for the names of a trace's ranges; see core/interop/traces/range_names.h.
struct RangeNameOptions {
    std::string forward;  ///< empty, as the next: not given
    std::string backward;
    std::string backward_input;
    std::string backward_weight;

    /// The first option that was given; empty: none was.
    std::string_view given() const;
};

/// Options of `import`; `common.out` is a file, and given.
struct ImportOptions {
    CommonOptions common;
    std::string format;
    std::filesystem::path file;                     ///< "-": standard input
    std::vector<std::filesystem::path> more_files;  ///< torch-trace, nsys: those of other ranks
    std::optional<int> chunks;                      ///< megatron: stages per rank
    std::optional<int> micro_batch_size;            ///< samples that the costs are for
    bool ignore_unknown = false;                    ///< launch files: leave out what is not known
    bool insist = false;  ///< launch files: leave out what changes the run, too
    HfOptions hf;
    RangeNameOptions ranges;  ///< torch-trace, nsys
};

/// Options of `export`; `common.out` is a file, and given.
struct ExportOptions {
    CommonOptions common;
    std::string format;
    std::filesystem::path source;  ///< a scenario, a run folder or a schedule file
    std::filesystem::path profile;
    bool compute_only = false;                ///< torch-csv
    std::optional<std::string> shard_size{};  ///< hf: largest file of weights, as written
};

/// The options of a command whose row is in a file of its own (cli/base/own_command.h).
struct OwnOptions {
    CommonOptions common;
    std::function<void(const CommonOptions& common, Console& console)> run;
    /// The file that it reads, of which standard input is none; null: it reads none, or takes "-".
    std::function<std::filesystem::path()> input{};
};

/// The options of the command that was given.
using Command = std::variant<RunOptions,
                             SimulateOptions,
                             PlanOptions,
                             ProfileOptions,
                             TrainOptions,
                             LaunchOptions,
                             CompareOptions,
                             CheckOptions,
                             ImportOptions,
                             ExportOptions,
                             ModelOptions,
                             SweepCommand,
                             OwnOptions>;

/// The options that every command has.
const CommonOptions& common_options(const Command& command);

/// A command, or a text to print in its place (--help, --version).
using Parsed = std::variant<Command, std::string>;

/// Reads a command line; `args` are without the program's name. Throws Error(Usage) with the
/// nearest known command or option.
Parsed parse_options(const std::vector<std::string>& args, std::span<const OwnCommand> own);

}  // namespace pipetwin::cli

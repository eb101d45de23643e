// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/base/options.h"
#include "cli/base/picture_options.h"
#include "cli/base/swept_keys.h"
#include "cli/predict/combination.h"
#include "core/artifacts/model_flops.h"

namespace CLI {

class App;

}  // namespace CLI

/// The command line of `plan`: what it takes, and what it refuses before it searches.
namespace pipetwin::cli {

/// Options of `plan`.
struct PlanOptions {
    CommonOptions common;
    /// A scenario; or a model: its name, its config.json or folder, or its *.profile.json.
    std::filesystem::path scenario;
    std::string cluster;          ///< of a model: the nodes, as in profiles/clusters; empty: none
    std::string node_list;        ///< of --nodes, as written; empty: not given
    int nodes = 1;                ///< of the first entry of `node_list`
    std::optional<int> sequence;  ///< tokens per sample
    std::optional<double> batch_tokens;    ///< tokens per step
    std::optional<std::string> precision;  ///< of the estimate
    std::optional<std::string> stack;      ///< of the estimate
    bool whole_blocks = false;             ///< no block is cut in two
    std::optional<double> tokens;          ///< of the whole training
    std::vector<double> prices;            ///< of one device for an hour, for each cluster or all
    std::filesystem::path profile;
    std::filesystem::path calibration;      ///< measured runs; empty: none
    std::optional<FlopsCount> flops_count;  ///< of --mfu
    /// A heat map: *.svg, *.pdf or *.png; empty: not asked for.
    std::filesystem::path heat_map;
    PictureOptions pictures{};           ///< of combinations; their look is that of the heat map
    std::filesystem::path order_out;     ///< *.profile.json; empty: layers keep their order
    bool hybrid = false;                 ///< what stages of unequal width could do, too
    std::vector<std::string> schedules;  ///< to be searched, as written; empty: not given
    std::optional<std::string> largest;  ///< "layers": how many fit, in place of the fastest plan
    std::vector<SweptKey> swept{};       ///< a plan for each combination of their values
    std::filesystem::path csv;  ///< the table of these or of combinations; empty: not asked for

    /// What is asked at once: several, or one in a table; empty: one answer.
    std::vector<Combination> combinations{};
    std::optional<double> days{};        ///< within which the training is to end
    std::optional<std::string> until{};  ///< in place of `days`, as written
    std::optional<std::string> from{};   ///< as `until`; none: today
    std::optional<double> mtbf_hours{};
    std::optional<double> checkpoint_s{};
    std::optional<double> restart_s{};
    bool markdown = false;
    bool evidence = false;  ///< the source of each number, too

    /// The price of the only cluster; none: not given.
    std::optional<double> price() const {
        return prices.empty() ? std::nullopt : std::optional(prices.front());
    }
};

/// Declares the options of `plan`.
void add_plan_options(CLI::App& app, PlanOptions& options);

/// Declares --sweep, and --csv for its table; behind all other options.
void add_sweep_of_plans(CLI::App& app, PlanOptions& options, std::vector<std::string>& swept);

/// Refuses what the options do not allow together, takes the lists of clusters, nodes and stacks
/// apart, and adds the schedules that were listed. Throws Error(Usage), and Error(BadInput) for an
/// unknown cluster or stack of a list.
void complete_plan(PlanOptions& options, CommonOptions& common);

/// Refuses files of other kinds than the options take. Throws Error(BadInput).
void expect_plan_files(const PlanOptions& options);

/// Whether the positional names a model, and not a scenario. Throws Error(Usage) for a scenario
/// beside --cluster.
bool names_model(const PlanOptions& options);

/// Throws Error(Io) for a file that stands where one is to be written.
void require_free_files(const PlanOptions& options);

}  // namespace pipetwin::cli

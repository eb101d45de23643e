// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/interop/jobs/placed_plan.h"

/// Plans as configurations of torchtitan.
namespace pipetwin {

/// A model that torchtitan ships.
struct TitanFlavor {
    std::string_view model;   ///< "llama3"
    std::string_view flavor;  ///< "8B"
    std::string_view assets;  ///< its folder of Hugging Face files below assets/hf
};

/// The model of these sizes among the dense and sparse ones that torchtitan ships
/// (torchtitan/models/*/__init__.py, February 2026); none: no model has them.
std::optional<TitanFlavor> titan_flavor(const MegatronFlags& sizes);

/// Versions of torchtitan by their configuration.
enum class TitanVersion {
    Toml,   ///< a TOML file: summer 2025 to February 2026
    Python  ///< a function: as of August 2026
};

/// The settings of torchtitan for a plan, in its own words.
struct TitanJob {
    std::optional<TitanFlavor> model;  ///< none: the user has to name one
    bool has_experts = false;
    int replicate = 1;  ///< data_parallel_replicate_degree
    int shard = 1;      ///< data_parallel_shard_degree
    std::string reshard = "default";
    std::string rotate{};                             ///< of context parallelism; empty: none
    std::string schedule{};                           ///< PyTorch's name; empty: no pipeline
    std::string csv{};                                ///< a schedule file; empty: none
    std::vector<std::vector<std::string>> modules{};  ///< of each stage; empty: no pipeline
    int samples = 1;                                  ///< of a micro-batch
    bool is_all_bf16 = false;                         ///< training.dtype = "bfloat16"
    bool is_mixed = false;                            ///< bf16 beside weights in fp32
    std::string recompute = "none";                   ///< "full", "selective" or "none"
    bool hides_tensor = false;
    std::string narrow{};                ///< "fp8", "mxfp8" or "nvfp4"; empty: products are in bf16
    std::string optimizer = "AdamW";     ///< PyTorch's name
    std::vector<std::string> remarks{};  ///< sentences for a reader of the file
};

/// Throws Error(BadInput) about the first key that torchtitan cannot say, and Error(Infeasible) for
/// a stage that begins within a block.
TitanJob torchtitan_job(const PlacedPlan& plan, TitanVersion version);

/// How the learning rate goes, in torchtitan's words.
struct TitanRates {
    int warmup_steps = 0;
    std::optional<double> decay_ratio{};  ///< none: from the warm-up to the end
    std::string decay_type = "linear";
    double min_lr_factor = 0;
};
TitanRates titan_rates(const PlacedPlan& plan);

/// The configuration as TOML. Throws as `torchtitan_job`.
std::string print_torchtitan_toml(const PlacedPlan& plan);

/// A Python module with the function `planned`, which returns a Trainer.Config. Throws as
/// `torchtitan_job`.
std::string print_torchtitan_python(const PlacedPlan& plan);

}  // namespace pipetwin

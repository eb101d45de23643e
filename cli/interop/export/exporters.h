// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "cli/base/console.h"
#include "cli/base/options.h"
#include "cli/interop/exchange.h"
#include "cli/interop/export_source.h"
#include "core/svg/figure_look.h"

/// The formats that `export` writes for other systems, one file each.
namespace pipetwin::cli {

/// Options of `export`; `common.out` is a file, and given.
struct ExportOptions {
    CommonOptions common;
    FigureLook look{};  ///< of a picture
    std::string format;
    std::filesystem::path source;  ///< a scenario, a run folder or a schedule file
    std::filesystem::path profile;
    bool compute_only = false;                ///< torch-csv
    std::optional<std::string> shard_size{};  ///< hf: largest file of weights, as written
};

/// Result of an exporter: the content of the file, and its description.
struct Exported {
    std::string content;
    Exchanged result;
};

/// An export of these rows.
inline Exported of_schedule(const Schedule& schedule, std::string content) {
    Exported exported{.content = std::move(content), .result = {}};
    exported.result.ranks = schedule.rank_count();
    exported.result.stages = schedule.stage_count();
    exported.result.micro_batches = schedule.micro_batches;
    return exported;
}

/// An export of a plan whose stages are known.
inline Exported of_plan(const ExportSource::Placed& placed, std::string content) {
    Exported exported{.content = std::move(content), .result = {}};
    exported.result.ranks = placed.schedule.rank_count();
    exported.result.stages = placed.schedule.stage_count();
    exported.result.devices = placed.devices();
    return exported;
}

/// PyTorch's schedule file.
Exported export_torch_csv(const ExportSource& source,
                          const ExportOptions& options,
                          Console& console);

/// Megatron's pipeline layout.
Exported export_megatron_layout(const ExportSource& source,
                                const ExportOptions& options,
                                Console& console);

/// The part of Megatron's command line that describes the same layout, with batch, recompute and
/// tensor parallelism.
Exported export_megatron_flags(const ExportSource& source,
                               const ExportOptions& options,
                               Console& console);

/// torchtitan's lists of modules per stage.
Exported export_torchtitan(const ExportSource& source,
                           const ExportOptions& options,
                           Console& console);

/// torchtitan's configuration as TOML.
Exported export_torchtitan_toml(const ExportSource& source,
                                const ExportOptions& options,
                                Console& console);

/// torchtitan's configuration as a Python module.
Exported export_torchtitan_python(const ExportSource& source,
                                  const ExportOptions& options,
                                  Console& console);

/// A script that each node runs: torchrun with Megatron-LM.
Exported export_launch_script(const ExportSource& source,
                              const ExportOptions& options,
                              Console& console);

/// An override of a recipe of Megatron-Bridge.
Exported export_bridge(const ExportSource& source, const ExportOptions& options, Console& console);

/// A recipe of NeMo AutoModel.
Exported export_automodel(const ExportSource& source,
                          const ExportOptions& options,
                          Console& console);

/// DeepSpeed's configuration.
Exported export_deepspeed(const ExportSource& source,
                          const ExportOptions& options,
                          Console& console);

/// A Slurm script that starts Megatron-LM.
Exported export_slurm_script(const ExportSource& source,
                             const ExportOptions& options,
                             Console& console);

/// A TrainJob of Kubernetes that starts Megatron-LM.
Exported export_kubernetes_job(const ExportSource& source,
                               const ExportOptions& options,
                               Console& console);

/// A folder with config.json and safetensors files, as Hugging Face's libraries read them: the
/// weights of a run's newest checkpoint. Writes the folder itself.
Exchanged export_hf(const ExportOptions& options, Console& console);

/// plan.json.
Exported export_json(const ExportSource& source, const ExportOptions& options, Console& console);

}  // namespace pipetwin::cli

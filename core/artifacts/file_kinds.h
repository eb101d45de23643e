// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string_view>

namespace pipetwin {

/// What a file is, as its first bytes tell it.
enum class FileKind {
    Unknown,
    Scenario,
    Schedule,     ///< PyTorch's CSV
    Profile,      ///< costs as JSON
    CostTable,    ///< costs as CSV
    OurTrace,     ///< Chrome trace JSON with our metadata
    TorchTrace,   ///< Chrome trace JSON of another program
    Nsys,         ///< an SQLite database
    Otlp,         ///< spans of OpenTelemetry as JSON
    Plan,         ///< plan.json of a run folder
    HfConfig,     ///< Hugging Face's config.json
    WeightIndex,  ///< the index.json of safetensors files
    Device,       ///< a device profile
    Graph,        ///< PipeDream's graph.txt
    Cluster,      ///< a cluster, which a scenario names
    Torchtitan,   ///< torchtitan's TOML
    DeepSpeed,    ///< DeepSpeed's JSON
    Megatron,     ///< a script, an argument file or YAML with Megatron's flags
    Picture,      ///< SVG or PNG
    PlanTable,    ///< CSV that `simulate` and `sweep` write of several plans
    Result,       ///< JSON that commands print, and report, metrics and live steps of a run folder
    RunFolder,
};

/// The kind of a file's content, of which `head` is the beginning. Unknown where nothing says it
/// for certain.
FileKind kind_of_content(std::string_view head);

/// The kind of a file or folder; Unknown where it cannot be read. Traces may be packed by gzip.
FileKind kind_of_file(const std::filesystem::path& file);

/// The kind in words, as a sentence has it: "a scenario"; Unknown is "nothing that is known".
std::string_view words(FileKind kind);

}  // namespace pipetwin

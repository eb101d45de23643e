// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/base/input.h"
#include "cli/interop/import/importers.h"
#include "cli/text/text_output.h"
#include "core/costs/profile_json.h"
#include "core/interop/traces/pipedream_graph.h"

namespace pipetwin::cli {

Imported import_pipedream(const ImportOptions& options) {
    const int size = required_micro_batch_size(
        options, "its times and sizes are those of a whole mini-batch: add its number of samples");
    const PipeDreamGraph graph = parse_pipedream_graph(
        read_input(options.file, largest_pipedream_graph), input_name(options.file), size);
    Imported imported{.content = print_profile(graph.profile), .result = {}};
    imported.result.layers = static_cast<int>(graph.profile.layers.size());
    if (!graph.model_inputs.empty()) {
        imported.notes.push_back(
            fmt::format("{} the model's input and no layer: {}",
                        graph.model_inputs.size() == 1 ? "one node is" : "some nodes are",
                        fmt::join(graph.model_inputs, ", ")));
    }
    if (!graph.partition.empty()) {
        imported.notes.push_back(fmt::format("the file's stages are pipeline.partition = [{}]",
                                             fmt::join(graph.partition, ", ")));
    }
    imported.notes.emplace_back(
        "the file does not say what layers keep for their backward: their inputs alone are "
        "counted, so predicted memory is a lower bound");
    return imported;
}

}  // namespace pipetwin::cli

// SPDX-License-Identifier: Apache-2.0
#include "core/interop/torchtitan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/number_text.h"

namespace pipetwin {

namespace {

/// Name of the layer at `index` in a transformer of `count` layers.
std::string layer_name(std::size_t index, std::size_t count, bool whole_blocks) {
    if (index == 0) {
        return "embedding";
    }
    if (index + 1 == count) {
        return "head";
    }
    if (whole_blocks) {
        return fmt::format("block{}", index - 1);
    }
    return fmt::format(
        "block{}.{}", (index - 1) / 2, index % 2 == 1 ? "attention" : "feed_forward");
}

[[noreturn]] void refuse(std::string text) {
    throw Error(ErrorKind::Infeasible,
                "model",
                std::move(text),
                "only models of the layers embedding, block0.attention, block0.feed_forward, ..., "
                "head, or embedding, block0, ..., head, have stages of whole blocks: a gpt, or a "
                "profile by 'pipetwin import hf'");
}

bool has_whole_blocks(std::span<const std::string> layer_names) {
    return layer_names.size() > 1 && layer_names[1] == "block0";
}

}  // namespace

int transformer_blocks(std::span<const std::string> layer_names) {
    const bool whole = has_whole_blocks(layer_names);
    for (std::size_t i = 0; i < layer_names.size(); ++i) {
        const std::string expected = layer_name(i, layer_names.size(), whole);
        if (layer_names[i] != expected) {
            refuse(fmt::format("layer {} is '{}', expected '{}'", i, layer_names[i], expected));
        }
    }
    if (layer_names.size() < (whole ? 3 : 4) || (!whole && layer_names.size() % 2 == 1)) {
        refuse(fmt::format("{}, expected an embedding, two per block, and a head",
                           counted(layer_names.size(), "layer")));
    }
    const auto between = static_cast<int>(layer_names.size()) - 2;
    return whole ? between : between / 2;
}

Partition partition_in_halves(const Partition& partition,
                              std::span<const std::string> layer_names) {
    if (!has_whole_blocks(layer_names)) {
        return partition;
    }
    std::vector<int> sizes = partition.layers_per_stage();
    for (int& size : sizes) {
        size *= 2;
    }
    --sizes.front();  // the embedding
    --sizes.back();   // the head
    return {std::move(sizes), 2 * partition.layer_count() - 2};
}

std::vector<std::vector<std::string>> torchtitan_modules(const Partition& partition) {
    const int last = partition.layer_count() - 1;
    std::vector<std::vector<std::string>> modules;
    for (int stage = 0; stage < partition.stage_count(); ++stage) {
        std::vector<std::string>& names = modules.emplace_back();
        const int begin = partition.first_layer(stage);
        const int end = begin + partition.layers_in(stage);
        for (int layer = begin; layer < end; ++layer) {
            if (layer == 0) {
                names.emplace_back("tok_embeddings");
            } else if (layer == last) {
                names.emplace_back("norm");
                names.emplace_back("output");
            } else if (layer % 2 == 1) {
                names.push_back(fmt::format("layers.{}", layer / 2));
            } else if (layer == begin) {
                throw Error(ErrorKind::Infeasible,
                            KeyValue{"pipeline.partition"},
                            fmt::format("stage {} begins with block{}.feed_forward, but torchtitan "
                                        "does not cut a block in two",
                                        stage,
                                        layer / 2 - 1),
                            "plan with whole blocks: --whole-blocks of 'pipetwin plan MODEL' and "
                            "of 'pipetwin import hf'; or set pipeline.partition so that stages "
                            "begin with an attention");
            }
        }
    }
    return modules;
}

std::string print_torchtitan_modules(const std::vector<std::vector<std::string>>& modules) {
    std::vector<std::string> stages;
    stages.reserve(modules.size());
    for (const std::vector<std::string>& names : modules) {
        stages.push_back("  [\"" + fmt::format("{}", fmt::join(names, "\", \"")) + "\"]");
    }
    return fmt::format("[\n{}\n]\n", fmt::join(stages, ",\n"));
}

}  // namespace pipetwin

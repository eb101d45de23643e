// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/partition/partition.h"

/// The stages of a decoder-only transformer in the words of other systems. Its layers are named
/// "embedding", "block0.attention", "block0.feed_forward", ..., "head" (as `gpt_model` and `import
/// hf` do), or with whole blocks "embedding", "block0", ..., "head".
namespace pipetwin {

/// The number of blocks. Throws Error(Infeasible), naming the first layer that is called otherwise.
int transformer_blocks(std::span<const std::string> layer_names);

/// The stages of `partition` as a partition that counts halves of blocks; `layer_names` are the
/// layers that the given partition counts.
Partition partition_in_halves(const Partition& partition, std::span<const std::string> layer_names);

/// torchtitan's `module_fqns_per_model_part`: for every stage the names of its modules in the order
/// of the model, "tok_embeddings", "layers.0", ..., "norm", "output". The partition counts
/// halves of blocks. Throws Error(Infeasible), naming the layer, where a cut goes through a block:
/// torchtitan does not cut one.
std::vector<std::vector<std::string>> torchtitan_modules(const Partition& partition);

/// A list of lists, a stage per line: JSON, and alike a value in TOML and in Python.
std::string print_torchtitan_modules(const std::vector<std::vector<std::string>>& modules);

}  // namespace pipetwin

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/artifacts/checkpoint_json.h"
#include "exec/executor/trained_parameters.h"

namespace pipetwin::exec {

/// The checkpoints of a run, each a folder `step-00000050` beneath one folder:
///
///     checkpoint.json               what it is of, and a hash of every tensor
///     000.weights.safetensors       of a piece of the model, under names that do not depend on
///     000.optimizer.safetensors     where the model was cut: "NAME", "NAME.first", "NAME.second",
///                                   "NAME.master" where weights are rounded, and "NAME.average"
///                                   where weights are averaged
///
/// A checkpoint that `save` has returned from survives a loss of power, where the folder around
/// theirs does: its files are brought to the disk before its manifest, that before its name, and
/// only then the oldest one goes; two stay.
class Checkpoints {
  public:
    explicit Checkpoints(std::filesystem::path folder) : folder_(std::move(folder)) {}

    /// Throws Error(Io) if it could not be written; those that are there stay as they are.
    void save(CheckpointManifest about, const TrainedParameters& parameters) const;

    /// What a training goes on from.
    struct Loaded {
        CheckpointManifest about;
        std::filesystem::path folder;
        std::vector<std::string> damaged;  ///< newer ones that could not be used, and why
    };
    /// The newest one that is whole. Everything is checked before the first parameter changes.
    /// None where there is no checkpoint. Throws Error(BadInput) if all are damaged, saying how, or
    /// if it is one of another model, naming the first tensor that differs.
    std::optional<Loaded> load(const TrainedParameters& parameters) const;

    /// The one that `load` would begin with, as far as manifests and the headers of files tell: no
    /// tensor is read, and only the names, shapes and types of `parameters` count. Throws
    /// Error(BadInput) as `load`.
    std::optional<Loaded> find(const TrainedParameters& parameters) const;

  private:
    /// Throws Error(BadInput) if all checkpoints are damaged.
    void expect_a_whole_one(const std::vector<std::string>& damaged) const;

    std::filesystem::path folder_;
};

}  // namespace pipetwin::exec

#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/formats/checkpoint_json.h"
#include "exec/optimizer.h"

namespace pipetwin::exec {

/// The parameters of a model, piece by piece in model order, and how their bytes get to the host
/// and back.
struct TrainedParameters {
    std::vector<std::vector<Parameter*>> pieces;
    std::function<void(const Tensor& from, std::span<std::byte> to)> read;
    std::function<void(std::span<const std::byte> from, Tensor& to)> write;
};

/// What training changes of a parameter, and a checkpoint keeps.
inline constexpr std::array trained_parts{
    &Parameter::value, &Parameter::master, &Parameter::first, &Parameter::second};

/// The checkpoints of a run, each a folder `step-00000050` beneath one folder:
///
///     checkpoint.json               what it is of, and a hash of every tensor
///     000.weights.safetensors       of a piece of the model, under names that do not depend on
///     000.optimizer.safetensors     where the model was cut: "NAME", "NAME.first", "NAME.second",
///                                   and "NAME.master" where weights are rounded
///
/// A checkpoint that `save` has returned from survives a loss of power: its files are brought to
/// the disk before its manifest, that before its name, and only then the oldest one goes; two stay.
class Checkpoints {
  public:
    explicit Checkpoints(std::filesystem::path folder) : folder_(std::move(folder)) {}

    /// Throws Error(Io) if it could not be written; those that are there stay as they are.
    void save(CheckpointManifest about, const TrainedParameters& parameters) const;

    struct Loaded {
        CheckpointManifest about;
        std::filesystem::path folder;
        std::vector<std::string> damaged;  ///< newer ones that could not be used, and why
    };
    /// The newest one that is whole. Everything is checked before the first parameter changes.
    /// None where there is no checkpoint. Throws Error(BadInput) if all are damaged, saying how, or
    /// if it is one of another model, naming the first tensor that differs.
    std::optional<Loaded> load(const TrainedParameters& parameters) const;

  private:
    std::vector<std::filesystem::path> newest_first() const;

    std::filesystem::path folder_;
};

}  // namespace pipetwin::exec

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "core/schedule/schedule.h"
#include "exec/layers/optimizer.h"

namespace pipetwin::exec {

/// The parameters and running statistics of a model, piece by piece in model order, and how their
/// bytes get to the host and back.
struct TrainedParameters {
    std::vector<std::vector<Parameter*>> pieces;
    /// All bytes of a tensor, padding included.
    std::function<void(const Tensor& from, std::span<std::byte> to)> read;
    std::function<void(std::span<const std::byte> from, Tensor& to)> write;

    /// The numbers of a parameter's tensor that the model has, as they are in files: `read` without
    /// the padding.
    void read_numbers(const Parameter& parameter,
                      const Tensor& part,
                      std::vector<std::byte>& bytes) const;
    /// `write` of such numbers; the padding gets zeros.
    void write_numbers(std::span<const std::byte> bytes,
                       const Parameter& parameter,
                       Tensor& part) const;
};

/// What training changes of a parameter, and a checkpoint keeps.
inline constexpr std::array trained_parts{&Parameter::value,
                                          &Parameter::master,
                                          &Parameter::first,
                                          &Parameter::second,
                                          &Parameter::average};

/// Copies `from` into the stages that have the same weights as another stage, and into the copy of
/// the token table that the last piece may have. `parameters_of(stage)`: the parameters and running
/// statistics of a stage of this process.
void spread_weights(const Schedule& schedule,
                    const TrainedParameters& from,
                    const std::function<std::vector<Parameter*>(int stage)>& parameters_of);

}  // namespace pipetwin::exec

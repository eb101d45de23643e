// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/model/layer_spec.h"

/// Sequences whose layers read each other by name.
namespace pipetwin {

class Model;

/// One layer inside a sequence with branches.
///
/// Values are numbered: first what the sequence reads, then the outputs of its layers in their
/// order. The last value is the output of the sequence.
///
///     cell reads p, q      0: p   1: q   2: left(p)   3: right(q)   4: sum(left, right)
struct InnerLayer {
    LayerSpec spec;
    std::vector<std::size_t> operands;  ///< the values that it reads, in the order as written
    std::vector<SampleShape> inputs;    ///< [operand]
    SampleShape output;
};

/// True for a sequence whose layers name what they read, or of which one reads several outputs.
bool has_branches(const LayerSpec& layer);

/// True for a layer that is called with a list of outputs: an add, a concat, a loss of two outputs,
/// and a sequence that reads several outputs or has branches. `inputs`: how many it reads.
bool takes_several(const LayerSpec& layer, std::size_t inputs);

/// The layers inside a sequence that reads outputs of these shapes, each behind all that it reads.
/// Throws LayerFaults (core/model/layer_faults.h) where they do not fit together.
std::vector<InnerLayer> inner_layers(const LayerSpec& sequence,
                                     std::span<const SampleShape> inputs);

/// What an add, a concat or a loss makes of two or more outputs of these shapes. Throws
/// Error(BadInput) where they do not fit together.
SampleShape joined_output(const LayerSpec& join, std::span<const SampleShape> inputs);

/// [input] True if the backward of a layer, or one of its halves, reads that output again. For a
/// sequence: if the backward of a layer inside that reads it does.
std::vector<bool> inputs_read_again(const LayerSpec& layer, std::span<const SampleShape> inputs);

/// What the backward of a layer inside reads.
struct InnerReads {
    std::vector<bool> inputs{};  ///< [operand]
    bool output = false;         ///< what it has made, in place of its input
};
/// [layer] What the backwards inside of a sequence with branches read.
std::vector<InnerReads> inner_reads(const std::vector<InnerLayer>& inner, std::size_t inputs);

/// True for a layer whose backward may read what it has made in place of what it has read, with the
/// same bits: a rectifier, whose output is positive where its input is.
bool can_read_output(const LayerSpec& layer);

/// True for a layer that multiplies what it reads by weights, so that the gradients of these read
/// it again.
bool weight_reads_input(const LayerSpec& layer);

/// True for a sequence without branches whose last layer can read its output, which is then that of
/// the sequence.
bool ends_with_rectifier(const LayerSpec& layer);

/// True for a layer of a model whose backward reads its output: a later layer keeps that.
bool reads_output(const Model& model, int layer);

/// True for a layer that may leave what it reads where it is.
bool can_hand_on(const LayerSpec& layer);

/// True for a layer of a model that makes nothing of its own: what it hands on, and no other layer
/// reads, stays where it is.
bool hands_on(const Model& model, int layer);

}  // namespace pipetwin

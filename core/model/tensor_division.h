// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

/// Layers that several devices compute together, each with a part of the weights (tensor
/// parallelism).
namespace pipetwin {

class Model;

/// The model as each of `devices` has it, with sizes of one device's part (Shoeybi et al., arXiv
/// 1909.08053, section 3). Every layer reads and makes what it does in the whole model, whole on
/// every device, and inside of a unit
///
///     attention          heads, in neighbours: columns of queries, keys and values, rows of the
///                        output projection; with fewer heads of keys and values than devices,
///                        neighbours have the same one of these
///     linear, activation, linear    columns of the first, rows of the second; both halves of a
///                        SwiGLU are divided
///     token table, head  rows of the vocabulary; the loss has that part of the classes
///
/// Norms and biases behind a sum are whole. With `DividedSequence::Yes` what goes from unit to unit
/// has a part of the rows of a micro-batch on each device, neighbours, and norms and dropouts work
/// on these (Korthikanti et al., arXiv 2205.05198, section 4.2.2). One device: the model as it is.
/// Throws Error(Infeasible), naming layer and both numbers, for heads, widths, a vocabulary or
/// positions that the devices cannot divide, and for a model in which a unit holds anything else
/// with weights.
enum class DividedSequence { No, Yes };
Model divided_among(const Model& model,
                    int devices,
                    DividedSequence sequence = DividedSequence::No);

}  // namespace pipetwin

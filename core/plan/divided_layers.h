// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/costs/collectives/collective_time.h"
#include "core/costs/layer_division.h"
#include "core/costs/profile.h"

/// What devices that divide samples, or the experts of layers, send each other with every
/// micro-batch: predicted and planned, not trained.
namespace pipetwin {

/// Devices that have parts of a sample.
struct ContextParallel {
    int devices = 1;
    ContextMethod method = ContextMethod::Ring;
    DeviceGroup ring{};     ///< among which keys and values pass
    DeviceGroup heads{};    ///< that have whole samples of some heads
    bool in_steps = false;  ///< as `Stack::Context`
};

/// Devices that divide the experts of a layer.
struct ExpertParallel {
    ExpertDispatch dispatch = ExpertDispatch::Nccl;
    DeviceGroup parts{};    ///< EP: each has some experts
    DeviceGroup sharing{};  ///< ETP: each has a part of every one of these
    RoutedTokens tokens{};
    bool waits_for_counts = true;  ///< rows differ from micro-batch to micro-batch
};

/// The samples with the time of the messages of context parallelism (`LayerSample::traffic`), c
/// devices:
///
///     all-gather   forward: keys and values are gathered before; backward: gathered again, and
///                  their gradients reduce-scattered
///     ring         c - 1 hops of a part of them beside c equal steps of attention, which wait for
///                  the longer; backward with the gradients, twice as many bytes, and one hop more
///                  until these are home
///     in steps     keys and values once forward and once backward, and c hops of their gradients;
///                  nothing goes on beside them, whether keys pass by a ring or are gathered
///     all-to-all   of queries, keys and values before, and of the outputs behind attention;
///                  backward the same of their gradients
///
/// (TransformerEngine, pytorch/attention/dot_product_attention/context_parallel.py; in steps:
/// PyTorch, torch/distributed/tensor/experimental/_attention.py.)
LayerSamples with_context_messages(LayerSamples samples, const ContextParallel& context);

/// The samples with the time of the messages of experts: forward a dispatch and a combine, with
/// devices that share an expert a gather of its rows and a reduce-scatter of what it made of them;
/// backward the same the other way. Nothing is computed beside them. Where rows are not known
/// beforehand a forward waits once for their counts on the host.
LayerSamples with_expert_messages(LayerSamples samples, const ExpertParallel& experts);

}  // namespace pipetwin

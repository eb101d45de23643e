// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/costs/profile.h"
#include "core/partition/partition.h"
#include "core/schedule/schedule.h"

/// The ways that outputs take from the stage that makes them to the stages that read them. An
/// output goes from its producer to its first reader, from there to the next reader, and so on:
/// each stage that needs it gets it once, and no stage gets it that does not read it. Its gradient
/// comes back the same way, and each reader adds its own to what came from later ones, so that the
/// sum has one order whatever the cuts.
///
///     stage 0 -- output --> stage 2 -- output --> stage 3        gradient: 3 --> 2 --> 0
namespace pipetwin {

class Model;

/// One output on its way from a stage to the next one that reads it.
struct Route {
    StagePair stages;  ///< pieces of the model: of chimera's two pipelines, the first
    int layer = 0;     ///< whose output it is

    auto operator<=>(const Route&) const = default;
};

/// All routes of a model that is cut into pieces, ascending by stages and layer. All that goes
/// between two stages for one micro-batch is one message, in this order.
std::vector<Route> routes_of(const Model& model, const Partition& partition);

/// The messages of one piece of the model for each micro-batch: with each stage that it exchanges
/// any with, and with its neighbours, the layers whose outputs go between the two, in the order of
/// the message.
struct PieceMessages {
    std::vector<int> from;                   ///< pieces that send to this one, ascending
    std::vector<std::vector<int>> received;  ///< [from]: layers
    std::vector<int> to;                     ///< pieces that this one sends to, ascending
    std::vector<std::vector<int>> sent;      ///< [to]: layers
};

/// The messages of a piece of a model that is cut into `pieces`.
PieceMessages messages_of(const std::vector<Route>& routes, int piece, int pieces);

/// The pairs of stages that are no neighbours, live on two ranks and exchange messages: what
/// `Schedule::skips` is for a model that is cut so. `order` says where stages live, and of which
/// pieces of the model they are.
std::vector<StagePair> skips_of(const std::vector<Route>& routes, const Schedule& order);

/// [pair]: bytes of the message of one micro-batch between each pair of stages that messages can go
/// between (core/schedule/edge.h). The schedule's skips are those of `skips_of`.
std::vector<Bytes> message_bytes(const std::vector<Route>& routes,
                                 const Schedule& order,
                                 const LayerSamples& samples);

}  // namespace pipetwin

// SPDX-License-Identifier: Apache-2.0
#include "core/plan/routes.h"

#include <algorithm>
#include <utility>

#include "core/base/as_index.h"
#include "core/model/model.h"
#include "core/schedule/edge.h"

namespace pipetwin {

namespace {

/// A pair of pieces of the model as stages of the second pipeline, `pieces` behind the first.
StagePair shifted(const StagePair& stages, int by) {
    return {.from = stages.from + by, .to = stages.to + by};
}

bool on_two_ranks(const Schedule& order, const StagePair& stages) {
    return order.rank_of_stage.at(as_index(stages.from)) !=
           order.rank_of_stage.at(as_index(stages.to));
}

}  // namespace

std::vector<Route> routes_of(const Model& model, const Partition& partition) {
    std::vector<Route> routes;
    for (int layer = 0; layer < model.layer_count(); ++layer) {
        int from = partition.stage_of_layer(layer);
        for (const int reader : model.readers_of(layer)) {
            const int to = partition.stage_of_layer(reader);
            if (to != from) {
                routes.push_back({.stages = {.from = from, .to = to}, .layer = layer});
                from = to;
            }
        }
    }
    std::ranges::sort(routes);
    return routes;
}

PieceMessages messages_of(const std::vector<Route>& routes, int piece, int pieces) {
    PieceMessages messages;
    for (int other = 0; other < pieces; ++other) {
        const StagePair stages{.from = std::min(other, piece), .to = std::max(other, piece)};
        std::vector<int> layers;
        for (const Route& route : routes) {
            if (route.stages == stages) {
                layers.push_back(route.layer);
            }
        }
        if (other == piece || (layers.empty() && distance(stages) > 1)) {
            continue;
        }
        (other < piece ? messages.from : messages.to).push_back(other);
        (other < piece ? messages.received : messages.sent).push_back(std::move(layers));
    }
    return messages;
}

std::vector<StagePair> skips_of(const std::vector<Route>& routes, const Schedule& order) {
    const int pieces = model_stage_count(order);
    std::vector<StagePair> skips;
    for (int first = 0; first < order.stage_count(); first += pieces) {
        for (const Route& route : routes) {
            const StagePair stages = shifted(route.stages, first);
            if (distance(stages) > 1 && on_two_ranks(order, stages) &&
                (skips.empty() || skips.back() != stages)) {
                skips.push_back(stages);
            }
        }
    }
    return skips;
}

std::vector<Bytes> message_bytes(const std::vector<Route>& routes,
                                 const Schedule& order,
                                 const LayerSamples& samples) {
    std::vector<Bytes> bytes(pair_count(order));
    for (std::size_t pair = 0; pair < bytes.size(); ++pair) {
        const StagePair stages = stages_of_pair(order, pair);
        const StagePair pieces = shifted(stages, -first_stage_of_pipeline(order, stages.from));
        for (const Route& route : routes) {
            bytes[pair] +=
                route.stages == pieces ? samples.at(as_index(route.layer)).output : Bytes{};
        }
    }
    return bytes;
}

}  // namespace pipetwin

// SPDX-License-Identifier: Apache-2.0
#include "exec/gpu/attention_workspace.h"

#include <algorithm>

#include "core/base/as_index.h"
#include "core/model/inner_layers.h"
#include "core/model/model.h"
#include "core/plan/plan.h"

namespace pipetwin::exec {
namespace {

bool attends(const LayerSpec& spec) {
    return spec.type == LayerType::Attention || spec.type == LayerType::CrossAttention ||
           std::ranges::any_of(spec.inner, attends);
}

/// A sequence without attention is passed over: a head in it may be tied to a table elsewhere.
void add_attentions(const LayerSpec& spec,
                    const std::vector<SampleShape>& inputs,
                    int samples,
                    std::vector<CudaAttention>& all) {
    const bool crosses = spec.type == LayerType::CrossAttention;
    if (crosses || spec.type == LayerType::Attention) {
        const SampleShape& queries = inputs.front();
        const AttentionSizes sizes = attention_sizes(spec, queries.width);
        const int width = sizes.query_width();
        const bool padded = crosses || !spec.causal;
        all.push_back({.samples = samples,
                       .positions = queries.positions,
                       .padded_keys = padded ? inputs.back().positions : 0,
                       .heads = sizes.heads,
                       .key_value_heads = sizes.key_value_heads,
                       .head_size = sizes.head_size,
                       .q_stride = crosses ? width : sizes.qkv_width(),
                       .k_stride = crosses ? 2 * width : sizes.qkv_width()});
    }
    if (std::ranges::any_of(spec.inner, attends)) {
        for (const InnerLayer& layer : inner_layers(spec, inputs)) {
            add_attentions(layer.spec, layer.inputs, samples, all);
        }
    }
}

}  // namespace

std::vector<CudaAttention> attentions_of(const Layer& unit, int samples) {
    std::vector<CudaAttention> all;
    add_attentions(unit.spec, unit.inputs, samples, all);
    return all;
}

std::vector<Bytes> attention_workspaces(const Plan& plan, const Model& model, int gpu) {
    std::vector<Bytes> largest(as_index(plan.rank_count()));
    const int samples = *std::ranges::max_element(plan->micro_batch_sizes);
    for (int index = 0; index < model.layer_count(); ++index) {
        const int stage = plan->partition->stage_of_layer(index);
        Bytes& of_rank = largest[as_index(plan->schedule.rank_of_stage[as_index(stage)])];
        for (const CudaAttention& attention : attentions_of(model.layer(index), samples)) {
            of_rank = std::max(of_rank, cuda_attention_workspace(gpu, attention));
        }
    }
    return largest;
}

}  // namespace pipetwin::exec

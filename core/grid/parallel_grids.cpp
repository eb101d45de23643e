// SPDX-License-Identifier: Apache-2.0
#include "core/grid/parallel_grids.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/number_text.h"

namespace pipetwin {

namespace {

/// Devices with the same layers: TP x CP x DP.
std::int64_t stage_devices(const ParallelSizes& sizes) {
    return std::int64_t{sizes.tensor} * sizes.context * sizes.data;
}

/// EDP.
int expert_replicas(const ParallelSizes& sizes) {
    return static_cast<int>(stage_devices(sizes) / sizes.expert_tensor / sizes.expert);
}

int copies_of_state(const ParallelSizes& sizes) {
    return sizes.shard_group == 0 ? 1 : sizes.data / sizes.shard_group;
}

/// Devices that have the same number of copies of each key and value head as of others.
int key_value_heads_per_device(const GridRequest& request) {
    return std::max(1, request.model.key_value_heads / request.sizes.tensor);
}

/// Parts of equal work in which a sequence is cut.
std::int64_t sequence_parts(const GridRequest& request) {
    return std::int64_t{2} * request.sizes.context *
           (request.sequence_parallel ? request.sizes.tensor : 1);
}

/// Product of the sizes of the axes before pp.
std::int64_t pipeline_stride(const AxisSizes& sizes, const AxisOrder& order) {
    const auto end = std::ranges::find(order, Axis::Pipeline);
    return std::accumulate(
        order.begin(), end, std::int64_t{1}, [&](std::int64_t product, Axis axis) {
            return product * sizes[axis];
        });
}

AxisSizes dense_sizes(const ParallelSizes& sizes) {
    return {.tensor = sizes.tensor,
            .context = sizes.context,
            .data = sizes.data,
            .pipeline = sizes.pipeline};
}

AxisSizes expert_sizes(const ParallelSizes& sizes) {
    return {.tensor = sizes.expert_tensor,
            .expert = sizes.expert,
            .data = expert_replicas(sizes),
            .pipeline = sizes.pipeline};
}

/// One thing that has to hold, and the size by which it can be made to hold.
struct SizeRule {
    std::string_view key;
    int ParallelSizes::*size;
    bool (*holds)(const GridRequest& request);
    std::string (*found)(const GridRequest& request);  ///< what is wrong, where it does not hold
};

bool tensor_divides_heads(const GridRequest& request) {
    return request.model.heads % request.sizes.tensor == 0;
}

std::string found_heads(const GridRequest& request) {
    return fmt::format("the model has {}, expected a divisor of that",
                       counted(request.model.heads, "head"));
}

bool tensor_divides_key_value_heads(const GridRequest& request) {
    const int heads = request.model.key_value_heads;
    return heads == 0 || heads % request.sizes.tensor == 0 || request.sizes.tensor % heads == 0;
}

std::string found_key_value_heads(const GridRequest& request) {
    return fmt::format("the model has {}, expected a divisor or a multiple of that",
                       counted(request.model.key_value_heads, "key/value head"));
}

bool context_divides_sequence(const GridRequest& request) {
    return request.sizes.context == 1 || request.model.sequence % sequence_parts(request) == 0;
}

std::string found_sequence(const GridRequest& request) {
    const std::int64_t parts = sequence_parts(request);
    const std::int64_t next = (request.model.sequence + parts - 1) / parts * parts;
    return fmt::format(
        "a sequence of {} is cut into {} equal parts (2 context_parallel{}), "
        "expected a multiple: {}",
        counted(request.model.sequence, "token"),
        parts,
        request.sequence_parallel ? " tensor_parallel" : "",
        next);
}

bool context_divides_heads(const GridRequest& request) {
    const int heads = request.model.heads / request.sizes.tensor;
    return !request.context_divides_heads || request.model.heads == 0 ||
           (heads % request.sizes.context == 0 &&
            (request.model.key_value_heads == 0 ||
             key_value_heads_per_device(request) % request.sizes.context == 0));
}

std::string found_heads_of_device(const GridRequest& request) {
    return fmt::format("an all-to-all divides {} and {} of each device, expected a divisor of both",
                       counted(request.model.heads / request.sizes.tensor, "head"),
                       counted(key_value_heads_per_device(request), "key/value head"));
}

bool group_divides_replicas(const GridRequest& request) {
    return request.sizes.shard_group == 0 || request.sizes.data % request.sizes.shard_group == 0;
}

std::string found_replicas(const GridRequest& request) {
    return fmt::format("there are {} (pipeline.data_parallel), expected a divisor of that",
                       counted(request.sizes.data, "replica"));
}

std::string found_stage_devices(const GridRequest& request) {
    const ParallelSizes& sizes = request.sizes;
    return fmt::format(
        "the same layers are on {} (tensor_parallel x context_parallel x "
        "data_parallel = {} x {} x {}), expected a divisor of that",
        counted(stage_devices(sizes), "device"),
        sizes.tensor,
        sizes.context,
        sizes.data);
}

bool expert_tensor_divides_devices(const GridRequest& request) {
    return stage_devices(request.sizes) % request.sizes.expert_tensor == 0;
}

bool expert_tensor_divides_width(const GridRequest& request) {
    return request.model.expert_width % request.sizes.expert_tensor == 0;
}

std::string found_expert_width(const GridRequest& request) {
    return fmt::format("an expert is {} wide, expected a divisor of that",
                       request.model.expert_width);
}

bool experts_divide_devices(const GridRequest& request) {
    const ParallelSizes& sizes = request.sizes;
    return stage_devices(sizes) % (std::int64_t{sizes.expert_tensor} * sizes.expert) == 0;
}

std::string found_expert_devices(const GridRequest& request) {
    const ParallelSizes& sizes = request.sizes;
    return fmt::format("with expert_tensor_parallel = {} that takes {}, and {}",
                       sizes.expert_tensor,
                       counted(std::int64_t{sizes.expert_tensor} * sizes.expert, "device"),
                       found_stage_devices(request));
}

bool expert_groups_divide_experts(const GridRequest& request) {
    return request.model.experts % request.sizes.expert == 0;
}

std::string found_experts(const GridRequest& request) {
    return fmt::format("a layer has {}, expected a divisor of that",
                       counted(request.model.experts, "expert"));
}

bool copies_divide_expert_replicas(const GridRequest& request) {
    return expert_replicas(request.sizes) % copies_of_state(request.sizes) == 0;
}

std::string found_expert_replicas(const GridRequest& request) {
    return fmt::format(
        "that makes {} of the state, and there are {} of an expert, expected a "
        "multiple",
        counted(copies_of_state(request.sizes), "copy"),
        counted(expert_replicas(request.sizes), "replica"));
}

/// In an order in which a size that makes a rule hold is found that breaks none before it.
constexpr std::array size_rules{
    SizeRule{"tensor_parallel", &ParallelSizes::tensor, tensor_divides_heads, found_heads},
    SizeRule{"tensor_parallel",
             &ParallelSizes::tensor,
             tensor_divides_key_value_heads,
             found_key_value_heads},
    SizeRule{"context_parallel", &ParallelSizes::context, context_divides_sequence, found_sequence},
    SizeRule{
        "context_parallel", &ParallelSizes::context, context_divides_heads, found_heads_of_device},
    SizeRule{"shard_group", &ParallelSizes::shard_group, group_divides_replicas, found_replicas},
    SizeRule{"expert_tensor_parallel",
             &ParallelSizes::expert_tensor,
             expert_tensor_divides_devices,
             found_stage_devices},
    SizeRule{"expert_tensor_parallel",
             &ParallelSizes::expert_tensor,
             expert_tensor_divides_width,
             found_expert_width},
    SizeRule{
        "expert_parallel", &ParallelSizes::expert, experts_divide_devices, found_expert_devices},
    SizeRule{
        "expert_parallel", &ParallelSizes::expert, expert_groups_divide_experts, found_experts},
    SizeRule{"shard_group",
             &ParallelSizes::shard_group,
             copies_divide_expert_replicas,
             found_expert_replicas},
};

/// Both grids have the same groups of the pipeline. Megatron-LM asks for as many replicas, too.
bool pipelines_agree(const GridRequest& request) {
    const ParallelSizes& sizes = request.sizes;
    return request.order.back() == Axis::Pipeline || sizes.pipeline == 1 ||
           (sizes.data == expert_replicas(sizes) &&
            pipeline_stride(dense_sizes(sizes), request.order) ==
                pipeline_stride(expert_sizes(sizes), request.order));
}

AxisOrder with_pipeline_last(AxisOrder order) {
    std::rotate(std::ranges::find(order, Axis::Pipeline),
                std::ranges::find(order, Axis::Pipeline) + 1,
                order.end());
    return order;
}

bool all_hold(std::span<const SizeRule> rules, const GridRequest& request) {
    return std::ranges::all_of(rules, [&](const SizeRule& rule) { return rule.holds(request); });
}

/// The value of the last rule's size that is nearest to what was asked and with which all of the
/// rules hold; of two the smaller.
int nearest_size(std::span<const SizeRule> rules, GridRequest request, int asked) {
    int& size = request.sizes.*rules.back().size;
    for (int distance = 0;; ++distance) {
        for (const int value : {asked - distance, asked + distance}) {
            size = value;
            if (value >= 1 && all_hold(rules, request)) {
                return value;
            }
        }
        PIPETWIN_EXPECT(distance <= std::max(asked, request.sizes.data), "one size always fits");
    }
}

std::string key_of(std::string_view name) {
    return fmt::format("pipeline.{}", name);
}

/// Settings with which the request fits, each the nearest; in the order of the rules.
std::vector<KeyValue> repairs(GridRequest request) {
    const ParallelSizes asked = request.sizes;
    std::vector<KeyValue> settings;
    const auto set = [&settings](std::string key, std::string value) {
        std::erase_if(settings, [&key](const KeyValue& before) { return before.key == key; });
        settings.push_back({std::move(key), std::move(value)});
    };
    for (std::size_t i = 0; i < size_rules.size(); ++i) {
        const SizeRule& rule = size_rules[i];
        if (!rule.holds(request)) {
            const int size =
                nearest_size(std::span(size_rules).first(i + 1), request, asked.*rule.size);
            request.sizes.*rule.size = size;
            set(key_of(rule.key), fmt::to_string(size));
        }
    }
    if (!pipelines_agree(request)) {
        set(key_of("order"), fmt::format("\"{}\"", to_string(with_pipeline_last(request.order))));
    }
    return settings;
}

Hint hint_of(std::vector<KeyValue> settings) {
    std::string text = "set {}";
    for (std::size_t i = 1; i < settings.size(); ++i) {
        text += i + 1 == settings.size() ? " and {}" : ", {}";
    }
    return {std::move(text), std::move(settings)};
}

std::string found_orders(const GridRequest& request) {
    const AxisSizes dense = dense_sizes(request.sizes);
    const AxisSizes expert = expert_sizes(request.sizes);
    return fmt::format(
        "there are {} and {} of experts, and {} and {} devices along the axes before "
        "pp, so pipelines of dense layers and of experts would run through different "
        "devices, expected equal numbers or pp last",
        counted(dense.data, "replica"),
        expert.data,
        pipeline_stride(dense, request.order),
        pipeline_stride(expert, request.order));
}

}  // namespace

ParallelGrids parallel_grids(const ParallelSizes& sizes, const AxisOrder& order) {
    PIPETWIN_EXPECT(grid_fits({.sizes = sizes, .order = order}), "degrees that divide");
    return {.dense = DeviceGrid(dense_sizes(sizes), order),
            .expert = DeviceGrid(expert_sizes(sizes), order)};
}

bool grid_fits(const GridRequest& request) {
    return all_hold(size_rules, request) && pipelines_agree(request);
}

void require_grid(const GridRequest& request, const std::string& place) {
    const auto broken = std::ranges::find_if_not(
        size_rules, [&](const SizeRule& rule) { return rule.holds(request); });
    if (broken != size_rules.end()) {
        throw Error(ErrorKind::BadInput,
                    place,
                    fmt::format("{} = {}, but {}",
                                key_of(broken->key),
                                request.sizes.*broken->size,
                                broken->found(request)),
                    hint_of(repairs(request)))
            .about(key_of(broken->key));
    }
    if (!pipelines_agree(request)) {
        throw Error(ErrorKind::BadInput,
                    place,
                    fmt::format("{} = \"{}\", but {}",
                                key_of("order"),
                                to_string(request.order),
                                found_orders(request)),
                    hint_of(repairs(request)))
            .about(key_of("order"));
    }
}

int data_parallel_of(int devices, const ParallelSizes& sizes, const std::string& place) {
    const std::int64_t dense = std::int64_t{sizes.tensor} * sizes.context;
    const std::int64_t expert = std::int64_t{sizes.expert_tensor} * sizes.expert;
    const std::int64_t both = std::lcm(dense, expert) * sizes.pipeline;
    if (devices % both == 0) {
        return static_cast<int>(devices / (dense * sizes.pipeline));
    }
    const bool is_dense = devices % (dense * sizes.pipeline) != 0;
    const std::int64_t below = std::max(devices / both * both, both);
    const std::int64_t above = (devices / both + 1) * both;
    const std::int64_t nearest = above - devices < devices - below ? above : below;
    throw Error(ErrorKind::BadInput,
                place,
                fmt::format("{} cannot be divided by {} = {} x {} x {} = {}, expected a multiple",
                            counted(devices, "device"),
                            is_dense ? "tensor_parallel x context_parallel x stages"
                                     : "expert_tensor_parallel x expert_parallel x stages",
                            is_dense ? sizes.tensor : sizes.expert_tensor,
                            is_dense ? sizes.context : sizes.expert,
                            sizes.pipeline,
                            (is_dense ? dense : expert) * sizes.pipeline),
                {"set {}", {{"cluster.count", fmt::to_string(nearest)}}})
        .about("cluster.count");
}

}  // namespace pipetwin

// SPDX-License-Identifier: Apache-2.0
#include "core/model/layer_kinds.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/model/image_layers.h"
#include "core/model/layer_placement.h"

namespace pipetwin {

namespace {

Placed place_embedding(LayerPlacement& placement,
                       LayerSpec& spec,
                       const std::string& name,
                       const SampleShape& input) {
    expect_positive(name, "outputs", spec.outputs);
    expect_positive(name, "vocabulary", spec.vocabulary);
    if (!input.token_ids) {
        refuse_layer(name,
                     fmt::format("embedding reads {}, expected token ids", to_string(input)),
                     "only the first layer can be an embedding");
    }
    if (spec.context < 0 || (spec.context > 0 && spec.context < input.positions)) {
        refuse_layer(name,
                     fmt::format("context = {}, expected at least the {} positions of a sample",
                                 spec.context,
                                 input.positions));
    }
    if (spec.source_positions < 0 || spec.source_positions >= input.positions) {
        refuse_layer(name,
                     fmt::format("source_positions = {}, expected fewer than the {} positions of a "
                                 "sample",
                                 spec.source_positions,
                                 input.positions),
                     "the others are the target's");
    }
    if (spec.source_table && spec.source_positions == 0) {
        refuse_layer(name,
                     "source_table = true, but source_positions is not there",
                     "set source_positions to the number of token ids of the source");
    }
    if (spec.sinusoids && spec.learned_positions && spec.context > 0) {
        refuse_layer(name,
                     "sinusoids = true and learned_positions = true, expected one of them",
                     "set learned_positions = false");
    }
    const std::int64_t rows = std::int64_t{spec.vocabulary} * (spec.source_table ? 2 : 1) +
                              (spec.learned_positions ? spec.context : 0);
    placement.table = {.positions = spec.vocabulary, .width = spec.outputs};
    const int parts = spec.cut.sequence ? spec.cut.devices : 1;
    return {{.positions = input.positions / parts, .width = spec.outputs},
            checked_product(name, rows, spec.outputs)};
}

/// Gain and bias of each column.
Placed place_layer_norm(LayerPlacement&, LayerSpec&, const std::string&, const SampleShape& input) {
    return {input, 2 * std::int64_t{input.width}};
}

/// Gain of each column.
Placed place_rms_norm(LayerPlacement&,
                      LayerSpec& spec,
                      const std::string& name,
                      const SampleShape& input) {
    expect_epsilon(name, spec.epsilon);
    return {input, input.width};
}

/// Gates in the first half of the columns, values in the second.
Placed place_swiglu(LayerPlacement&,
                    LayerSpec&,
                    const std::string& name,
                    const SampleShape& input) {
    if (input.width % 2 != 0) {
        refuse_layer(name,
                     fmt::format("swiglu reads {}, expected an even width: gates, then as many "
                                 "values",
                                 to_string(input)),
                     "let the linear before it have twice the outputs");
    }
    SampleShape output = input;
    output.width /= 2;
    return {output, 0};
}

/// A router, and two matrices of each expert: gates beside values, and back.
Placed place_experts(LayerPlacement&,
                     LayerSpec& spec,
                     const std::string& name,
                     const SampleShape& input) {
    const Routing& routing = spec.routing;
    expect_positive(name, "experts", routing.experts);
    expect_positive(name, "experts_per_token", routing.per_row);
    expect_positive(name, "feed_forward", spec.inner_width);
    if (constexpr int widest = std::numeric_limits<int>::max() / 2; spec.inner_width > widest) {
        refuse_layer(
            name,
            fmt::format("feed_forward = {}, expected at most {}", spec.inner_width, widest),
            "gates and what they gate stand side by side: is there a digit too many?");
    }
    if (!(routing.scale > 0)) {
        refuse_layer(name,
                     fmt::format("router_scale = {}, expected a number above 0", routing.scale),
                     "leave it out: then it is 1");
    }
    expect_positive(name, "router_groups", routing.groups);
    expect_positive(name, "router_groups_per_token", routing.chosen_groups);
    if (routing.experts % routing.groups != 0) {
        refuse_layer(name,
                     fmt::format("{} experts in {} groups, expected as many in each",
                                 routing.experts,
                                 routing.groups),
                     "set router_groups to a divisor of experts");
    }
    if (routing.chosen_groups > routing.groups) {
        refuse_layer(name,
                     fmt::format("router_groups_per_token = {}, expected at most the {} groups",
                                 routing.chosen_groups,
                                 routing.groups),
                     "lower it, or raise router_groups");
    }
    const int eligible = routing.experts / routing.groups * routing.chosen_groups;
    if (routing.per_row > eligible) {
        refuse_layer(name,
                     fmt::format("experts_per_token = {}, expected at most the {} experts that a "
                                 "token may choose",
                                 routing.per_row,
                                 eligible),
                     routing.groups > 1 ? "raise router_groups_per_token" : "raise experts");
    }
    const std::int64_t matrices = checked_product(
        name, checked_product(name, 3, spec.inner_width), std::int64_t{routing.experts});
    return {input,
            checked_sum(name,
                        checked_product(name, matrices, input.width),
                        checked_product(name, input.width, routing.experts))};
}

Placed place_linear(LayerPlacement& placement,
                    LayerSpec& spec,
                    const std::string& name,
                    const SampleShape& input) {
    expect_positive(name, "outputs", spec.outputs);
    const SampleShape& table = placement.table;
    if (spec.tied && (spec.bias || input.width != table.width || spec.outputs != table.positions)) {
        refuse_layer(name,
                     fmt::format("{} x {} is tied to a token table of {} x {}, expected the same "
                                 "turned round, and no bias",
                                 input.width,
                                 spec.outputs,
                                 table.positions,
                                 table.width));
    }
    const std::int64_t rows = std::int64_t{input.width} + (spec.bias ? 1 : 0);
    SampleShape output = input;  // of every pixel alone, where it is an image
    output.width = spec.outputs;
    if (spec.cut.sequence) {  // all rows go in, or parts of them come out
        output.positions = spec.cut.rows ? output.positions / spec.cut.devices
                                         : output.positions * spec.cut.devices;
    }
    return {output, checked_product(name, rows, spec.outputs)};
}

/// Number by number, without parameters.
Placed place_elementwise(LayerPlacement&,
                         LayerSpec&,
                         const std::string&,
                         const SampleShape& input) {
    return {input, 0};
}

void expect_rotary(const LayerSpec& spec, const std::string& name, int head_size) {
    const Rotary& rotary = spec.rotary;
    if (!rotary.is_there()) {
        if (rotary != Rotary{}) {
            refuse_layer(name,
                         "rotary positions are scaled, but rotary_base is not there",
                         "set rotary_base, such as 10000");
        }
        return;
    }
    if (head_size % 2 != 0) {
        refuse_layer(name,
                     fmt::format("rotary positions turn pairs of numbers, but a head has {}, "
                                 "expected an even number",
                                 head_size),
                     "choose another number of heads, or set head_size");
    }
    if (!(rotary.base > 1)) {
        refuse_layer(name,
                     fmt::format("rotary_base = {}, expected more than 1", rotary.base),
                     "10000 is what Llama 2 has, 500000 Llama 3");
    }
    if (rotary.context > 0 && !(rotary.low_frequency < rotary.high_frequency)) {
        refuse_layer(name,
                     fmt::format("rotary_low_frequency = {} and rotary_high_frequency = {}, "
                                 "expected the second above the first",
                                 rotary.low_frequency,
                                 rotary.high_frequency),
                     "1 and 4 are what Llama 3.1 has");
    }
}

/// Throws Error(BadInput) unless the heads divide the width where their size follows from it.
void expect_heads(const LayerSpec& spec, const std::string& name, int width) {
    expect_positive(name, "heads", spec.heads);
    if (spec.head_size == 0 && width % spec.heads != 0) {
        refuse_layer(name,
                     fmt::format("{} heads do not divide the width {}", spec.heads, width),
                     "choose a number of heads that divides d_model");
    }
}

/// Throws Error(BadInput) where all queries, keys and values are wider than any model's.
void expect_inner_width(const std::string& name, std::int64_t width) {
    constexpr std::int64_t widest = std::int64_t{1} << 30;
    if (width > widest) {
        refuse_layer(name,
                     fmt::format("queries, keys and values are {} numbers wide, expected at most "
                                 "{}",
                                 width,
                                 widest),
                     "check heads and head_size");
    }
}

/// Query, key and value (d, (h + 2 g) a) and the output projection (h a, d), of h heads of a
/// numbers in g groups.
Placed place_attention(LayerPlacement&,
                       LayerSpec& spec,
                       const std::string& name,
                       const SampleShape& input) {
    expect_heads(spec, name, input.width);
    const AttentionSizes sizes = attention_sizes(spec, input.width);
    if (sizes.key_value_heads < 1 || spec.heads % sizes.key_value_heads != 0) {
        refuse_layer(name,
                     fmt::format("{} key_value_heads do not divide {} heads, expected groups of "
                                 "one size",
                                 sizes.key_value_heads,
                                 spec.heads),
                     "choose a number that divides heads, or leave it out");
    }
    expect_rotary(spec, name, sizes.head_size);
    if (!spec.causal && (spec.rotary.is_there() || sizes.key_value_heads != sizes.heads)) {
        refuse_layer(name,
                     spec.rotary.is_there()
                         ? "causal = false with rotary positions, expected neither or one of them"
                         : "causal = false with key_value_heads, expected neither or one of them",
                     "an attention that sees all positions has neither");
    }
    const std::int64_t width = input.width;
    const std::int64_t of_queries = checked_product(name, sizes.heads, sizes.head_size);
    const std::int64_t inner =
        of_queries + 2 * checked_product(name, sizes.key_value_heads, sizes.head_size);
    expect_inner_width(name, inner);
    checked_product(name, input.positions, inner);
    const std::int64_t weights = checked_product(name, width, inner + of_queries);
    return {input, checked_sum(name, weights, spec.bias ? inner + width : 0)};
}

/// Queries (d, h a) of the first output, keys and values (memory's width, 2 h a) of the second, and
/// the output projection (h a, d).
Placed join_attention(const LayerSpec& spec,
                      const std::string& name,
                      std::span<const JoinedInput> inputs) {
    if (inputs.size() != 2) {
        refuse_layer(name,
                     fmt::format("cross_attention reads {} outputs, expected two", inputs.size()),
                     "the first asks, the second is what it attends to");
    }
    const SampleShape& asking = inputs[0].shape;
    expect_heads(spec, name, asking.width);
    const AttentionSizes sizes = attention_sizes(spec, asking.width);
    const std::int64_t inner = checked_product(name, sizes.heads, sizes.head_size);
    expect_inner_width(name, 3 * inner);
    checked_product(name, std::max(asking.positions, inputs[1].shape.positions), 3 * inner);
    const std::int64_t of_queries = checked_product(name, asking.width, 2 * inner);
    const std::int64_t of_keys = checked_product(name, inputs[1].shape.width, 2 * inner);
    const std::int64_t biases = spec.bias ? 3 * inner + asking.width : 0;
    return {asking, checked_sum(name, checked_sum(name, of_queries, of_keys), biases)};
}

/// Neighbouring positions of a sample.
Placed place_positions(LayerPlacement&,
                       LayerSpec& spec,
                       const std::string& name,
                       const SampleShape& input) {
    expect_positive(name, "positions", spec.positions);
    if (input.is_image()) {
        refuse_layer(name,
                     fmt::format("positions reads {}, expected a sequence", to_string(input)),
                     "pad with negative margins cuts pixels off");
    }
    if (spec.begin < 0 || spec.positions > input.positions - spec.begin) {
        refuse_layer(name,
                     fmt::format("begin = {} and positions = {} of {}, expected a part of them",
                                 spec.begin,
                                 spec.positions,
                                 counted(input.positions, "position")),
                     "begin counts from 0");
    }
    SampleShape output = input;
    output.positions = spec.positions;
    return {output, 0};
}

Placed place_residual(LayerPlacement& placement,
                      LayerSpec& spec,
                      const std::string& name,
                      const SampleShape& input) {
    const Placed inner = placement.place_inner(spec, name, input);
    if (inner.output != input) {
        refuse_layer(name,
                     fmt::format("inner layers turn {} into {}, expected the same shape",
                                 to_string(input),
                                 to_string(inner.output)),
                     "a residual adds its input to what its layers make of it");
    }
    return inner;
}

Placed place_sequence(LayerPlacement& placement,
                      LayerSpec& spec,
                      const std::string& name,
                      const SampleShape& input) {
    return placement.place_inner(spec, name, input);
}

constexpr SampleShape loss_shape{.positions = 1, .width = 0};

void expect_smoothing(const LayerSpec& spec, const std::string& name) {
    if (!(spec.label_smoothing >= 0 && spec.label_smoothing < 1)) {
        refuse_layer(
            name,
            fmt::format("label_smoothing = {}, expected 0 up to, but not, 1", spec.label_smoothing),
            "0.1 is what image models take");
    }
}

Placed place_cross_entropy(LayerPlacement& placement,
                           LayerSpec& spec,
                           const std::string& name,
                           const SampleShape&) {
    expect_smoothing(spec, name);
    if (spec.auxiliary_weight != LayerSpec{}.auxiliary_weight) {
        refuse_layer(
            name,
            fmt::format("auxiliary_weight = {} with one output to read, expected two",
                        spec.auxiliary_weight),
            "name the classes and the auxiliary ones, as in inputs = [\"main\", \"side\"]");
    }
    placement.after_loss = true;
    return {loss_shape, 0};
}

/// A layer that joins outputs has no single input.
Placed place_join(LayerPlacement&, LayerSpec& spec, const std::string& name, const SampleShape&) {
    refuse_layer(name,
                 fmt::format("{} reads one output, expected two or more", to_string(spec.type)),
                 "name them, as in inputs = [\"left\", \"right\"]");
}

/// "'left' makes 1 x 4 and 'right' 1 x 8"
std::string two_shapes(const JoinedInput& first, const JoinedInput& other) {
    return fmt::format("'{}' makes {} and '{}' {}",
                       first.layer,
                       to_string(first.shape),
                       other.layer,
                       to_string(other.shape));
}

/// The loss of the classes that the first output stands for, and of the auxiliary ones.
Placed join_losses(const LayerSpec& spec,
                   const std::string& name,
                   std::span<const JoinedInput> inputs) {
    expect_smoothing(spec, name);
    if (inputs.size() > 2) {
        refuse_layer(
            name,
            fmt::format("cross_entropy reads {} outputs, expected one or two", inputs.size()),
            "the second one is the auxiliary one");
    }
    if (!(spec.auxiliary_weight >= 0 && spec.auxiliary_weight <= 1)) {
        refuse_layer(name,
                     fmt::format("auxiliary_weight = {}, expected 0 to 1", spec.auxiliary_weight),
                     "0.4 is what AmoebaNet takes");
    }
    if (inputs[0].shape != inputs[1].shape) {
        refuse_layer(
            name,
            fmt::format("{}, expected outputs of one shape", two_shapes(inputs[0], inputs[1])),
            "both stand for the same classes");
    }
    return {loss_shape, 0};
}

Placed join_sum(const LayerSpec&, const std::string& name, std::span<const JoinedInput> inputs) {
    for (const JoinedInput& input : inputs) {
        if (input.shape != inputs.front().shape) {
            refuse_layer(
                name,
                fmt::format("{}, expected outputs of one shape", two_shapes(inputs.front(), input)),
                "an add sums numbers in equal places; a concat joins different widths");
        }
    }
    return {inputs.front().shape, 0};
}

Placed join_columns(const LayerSpec&,
                    const std::string& name,
                    std::span<const JoinedInput> inputs) {
    constexpr std::int64_t widest = std::int64_t{1} << 30;
    SampleShape output = inputs.front().shape;
    std::int64_t width = 0;
    for (const JoinedInput& input : inputs) {
        if (input.shape.positions != output.positions || input.shape.image != output.image) {
            refuse_layer(name,
                         fmt::format("{}, expected equal numbers of {}",
                                     two_shapes(inputs.front(), input),
                                     output.is_image() ? "pixels" : "positions"),
                         "a concat joins the widths of equal positions");
        }
        width += input.shape.width;
    }
    if (width > widest) {
        refuse_layer(name,
                     fmt::format("widths that add up to {}, expected at most {}", width, widest),
                     "check the sizes");
    }
    output.width = static_cast<int>(width);
    return {output, 0};
}

Placed place_opaque(LayerPlacement&, LayerSpec&, const std::string& name, const SampleShape&) {
    refuse_layer(name, "is known by its costs only", "such a model can be planned, not executed");
}

constexpr LayerKey outputs_key{"outputs", &LayerSpec::outputs, true};
constexpr LayerKey dropout_key{"dropout", &LayerSpec::dropout};
constexpr LayerKey probability_key{"probability", &LayerSpec::dropout, true};
constexpr LayerKey kernel_key{"kernel", &LayerSpec::kernel, true};
constexpr LayerKey stride_key{"stride", &LayerSpec::stride};
constexpr LayerKey padding_key{"padding", &LayerSpec::padding};
constexpr LayerKey groups_key{"groups", &LayerSpec::groups, false, 1};
constexpr LayerKey epsilon_key{"epsilon", ShareField{&LayerSpec::epsilon}};

constexpr std::array layer_rows{
    LayerKind{.type = LayerType::Embedding,
              .word = "embedding",
              .key_list = {{outputs_key,
                            {"vocabulary", &LayerSpec::vocabulary, false, 256},
                            {"context", &LayerSpec::context, true},
                            {"learned_positions", &LayerSpec::learned_positions, false, 0, true},
                            {"sinusoids", &LayerSpec::sinusoids, false, 0, true},
                            {"scaled", &LayerSpec::scaled, false, 0, true},
                            {"source_positions", &LayerSpec::source_positions, false, 0, true},
                            {"source_table", &LayerSpec::source_table, false, 0, true},
                            dropout_key}},
              .reads_numbers = false,
              .place = place_embedding},
    LayerKind{.type = LayerType::LayerNorm, .word = "layer_norm", .place = place_layer_norm},
    LayerKind{.type = LayerType::RmsNorm,
              .word = "rms_norm",
              .key_list = {{epsilon_key}},
              .place = place_rms_norm},
    LayerKind{.type = LayerType::Linear,
              .word = "linear",
              .key_list = {{outputs_key, {"bias", &LayerSpec::bias}, dropout_key}},
              .place = place_linear},
    LayerKind{.type = LayerType::Gelu,
              .word = "gelu",
              .key_list = {{{"approximate", &LayerSpec::gelu, false, 0, true}}},
              .place = place_elementwise},
    LayerKind{.type = LayerType::SwiGlu, .word = "swiglu", .place = place_swiglu},
    LayerKind{.type = LayerType::Experts,
              .word = "experts",
              .key_list = {{{"experts", &Routing::experts, true},
                            {"experts_per_token", &Routing::per_row, true},
                            {"feed_forward", &LayerSpec::inner_width, true},
                            {"router", &Routing::scores, false, 0, true},
                            {"router_groups", &Routing::groups, false, 0, true},
                            {"router_groups_per_token", &Routing::chosen_groups, false, 0, true},
                            {"router_normalised", &Routing::normalised, false, 0, true},
                            {"router_scale", &Routing::scale, false, 0, true},
                            {"auxiliary_loss", &Routing::auxiliary_loss, false, 0, true},
                            {"bias_update", &Routing::bias_update, false, 0, true}}},
              .place = place_experts},
    LayerKind{.type = LayerType::Dropout,
              .word = "dropout",
              .key_list = {{probability_key}},
              .backward_reads_input = false,
              .place = place_elementwise},
    LayerKind{.type = LayerType::Attention,
              .word = "attention",
              .key_list =
                  {{{"heads", &LayerSpec::heads, true},
                    {"key_value_heads", &LayerSpec::key_value_heads, false, 0, true},
                    {"head_size", &LayerSpec::head_size, false, 0, true},
                    {"bias", &LayerSpec::bias, false, 0, true},
                    {"causal", &LayerSpec::causal, false, 0, true},
                    {"rotary_base", RotaryField{&Rotary::base}, false, 0, true},
                    {"rotary_factor", RotaryField{&Rotary::factor}, false, 0, true},
                    {"rotary_context", &Rotary::context, false, 0, true},
                    {"rotary_low_frequency", RotaryField{&Rotary::low_frequency}, false, 0, true},
                    {"rotary_high_frequency", RotaryField{&Rotary::high_frequency}, false, 0, true},
                    dropout_key}},
              .place = place_attention},
    LayerKind{.type = LayerType::CrossAttention,
              .word = "cross_attention",
              .key_list = {{{"heads", &LayerSpec::heads, true},
                            {"head_size", &LayerSpec::head_size, false, 0, true},
                            {"bias", &LayerSpec::bias, false, 0, true},
                            dropout_key}},
              .place = place_join,
              .join = join_attention,
              .needs_several = true},
    LayerKind{.type = LayerType::Positions,
              .word = "positions",
              .key_list = {{{"begin", &LayerSpec::begin, false, 0},
                            {"positions", &LayerSpec::positions, true}}},
              .backward_reads_input = false,
              .place = place_positions},
    LayerKind{.type = LayerType::Residual,
              .word = "residual",
              .holds_layers = true,
              .place = place_residual},
    LayerKind{.type = LayerType::Sequence,
              .word = "sequence",
              .holds_layers = true,
              .may_branch = true,
              .reads_numbers = false,
              .place = place_sequence},
    LayerKind{.type = LayerType::CrossEntropy,
              .word = "cross_entropy",
              .key_list = {{{"label_smoothing", &LayerSpec::label_smoothing},
                            {"auxiliary_weight", ShareField{&LayerSpec::auxiliary_weight}}}},
              .place = place_cross_entropy,
              .join = join_losses},
    LayerKind{.type = LayerType::Add,
              .word = "add",
              .backward_reads_input = false,
              .place = place_join,
              .join = join_sum,
              .needs_several = true},
    LayerKind{.type = LayerType::Concat,
              .word = "concat",
              .backward_reads_input = false,
              .place = place_join,
              .join = join_columns,
              .needs_several = true},
    LayerKind{.type = LayerType::Conv2d,
              .word = "conv2d",
              .key_list = {{outputs_key,
                            kernel_key,
                            stride_key,
                            padding_key,
                            {"dilation", &LayerSpec::dilation},
                            groups_key,
                            {"bias", &LayerSpec::bias},
                            {"he_normal", &LayerSpec::he_normal}}},
              .place = place_conv2d},
    LayerKind{.type = LayerType::MaxPool,
              .word = "max_pool",
              .key_list = {{kernel_key, stride_key, padding_key}},
              .backward_reads_input = false,
              .place = place_pool},
    LayerKind{
        .type = LayerType::AvgPool,
        .word = "avg_pool",
        .key_list =
            {{kernel_key, stride_key, padding_key, {"count_padding", &LayerSpec::count_padding}}},
        .backward_reads_input = false,
        .place = place_pool},
    LayerKind{.type = LayerType::GlobalAvgPool,
              .word = "global_avg_pool",
              .backward_reads_input = false,
              .place = place_global_avg_pool},
    LayerKind{.type = LayerType::Upsample,
              .word = "upsample",
              .key_list = {{{"factor", &LayerSpec::factor, false, 2},
                            {"bilinear", &LayerSpec::bilinear}}},
              .backward_reads_input = false,
              .place = place_upsample},
    LayerKind{.type = LayerType::Pad,
              .word = "pad",
              .key_list = {{{"padding", &LayerSpec::padding, true}}},
              .backward_reads_input = false,
              .place = place_pad},
    LayerKind{.type = LayerType::PadChannels,
              .word = "pad_channels",
              .key_list = {{outputs_key}},
              .backward_reads_input = false,
              .place = place_pad_channels},
    LayerKind{.type = LayerType::BatchNorm,
              .word = "batch_norm",
              .key_list = {{epsilon_key,
                            {"momentum", ShareField{&LayerSpec::momentum}},
                            {"cumulative", &LayerSpec::cumulative},
                            {"deferred", &LayerSpec::deferred}}},
              .place = place_batch_norm},
    LayerKind{.type = LayerType::InstanceNorm,
              .word = "instance_norm",
              .key_list = {{epsilon_key}},
              .place = place_instance_norm},
    LayerKind{.type = LayerType::GroupNorm,
              .word = "group_norm",
              .key_list = {{{"groups", &LayerSpec::groups, true}, epsilon_key}},
              .place = place_group_norm},
    LayerKind{.type = LayerType::Relu, .word = "relu", .place = place_elementwise},
    LayerKind{.type = LayerType::LeakyRelu,
              .word = "leaky_relu",
              .key_list = {{{"slope", ShareField{&LayerSpec::slope}}}},
              .place = place_elementwise},
    LayerKind{.type = LayerType::ChannelDropout,
              .word = "channel_dropout",
              .key_list = {{probability_key}},
              .backward_reads_input = false,
              .place = place_elementwise},
    LayerKind{.type = LayerType::DropPath,
              .word = "drop_path",
              .key_list = {{probability_key, {"rising", &LayerSpec::rising}}},
              .backward_reads_input = false,
              .place = place_elementwise},
    LayerKind{.type = LayerType::Identity,
              .word = "identity",
              .backward_reads_input = false,
              .place = place_elementwise},
    LayerKind{.type = LayerType::Flatten,
              .word = "flatten",
              .backward_reads_input = false,
              .place = place_flatten},
    LayerKind{.type = LayerType::BinaryCrossEntropy,
              .word = "binary_cross_entropy",
              .place = place_binary_cross_entropy},
    LayerKind{.type = LayerType::Opaque, .word = "opaque", .place = place_opaque},
};

}  // namespace

std::span<const LayerKey> LayerKind::keys() const {
    const auto end = std::ranges::find(key_list, std::string_view{}, &LayerKey::name);
    return {key_list.begin(), end};
}

const LayerKind& layer_kind(LayerType type) {
    const auto found = std::ranges::find(layer_rows, type, &LayerKind::type);
    PIPETWIN_EXPECT(found != layer_rows.end(), "layer type out of range");
    return *found;
}

std::span<const LayerKind> written_layer_kinds() {
    return std::span(layer_rows).first<layer_rows.size() - 1>();
}

std::string_view to_string(LayerType type) {
    return layer_kind(type).word;
}

}  // namespace pipetwin

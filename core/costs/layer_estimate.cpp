// SPDX-License-Identifier: Apache-2.0
#include "core/costs/layer_estimate.h"

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/costs/layer_work.h"
#include "core/model/batch_norms.h"
#include "core/model/inner_layers.h"
#include "core/model/layer_spec.h"
#include "core/model/model.h"
#include "core/model/pixels.h"

namespace pipetwin {

namespace {

[[noreturn]] void refuse_opaque(const LayerSpec& spec) {
    throw Error(ErrorKind::BadInput,
                fmt::format("model, layer '{}'", spec.name),
                "is known by its costs only, so they cannot be estimated",
                "its profile has them");
}

/// Numbers of the window that one output of a convolution is a sum over, of `channels` that it
/// reads.
double window_numbers(const LayerSpec& spec, double channels) {
    return double{1} * spec.kernel.height * spec.kernel.width * channels / spec.groups;
}

/// True for windows that neighbours share most of: 3x3 pixels that move by one.
bool can_save_products(const LayerSpec& spec) {
    return spec.kernel == Pixels{3, 3} && spec.stride == Pixels{1, 1} &&
           spec.dilation == Pixels{1, 1} && spec.groups == 1;
}

/// Goes through the layers inside a layer in their order, with the shape that each of them reads.
class OperationCount {
  public:
    explicit OperationCount(const SampleShape& input) : shape_(input) {}

    /// Operations of the layer, whose output the next one reads.
    ForwardOperations of(const LayerSpec& spec) {
        const double rows = shape_.positions;
        const double width = shape_.width;
        switch (spec.type) {
            case LayerType::Linear:
                shape_.width = spec.outputs;
                return {.all = 2 * rows * width * spec.outputs};
            case LayerType::Attention: {
                const AttentionSizes sizes = attention_sizes(spec, shape_.width);
                const double queries = sizes.query_width();
                const double pairs = 4 * rows * rows * queries;
                return {.all = 2 * rows * width * (sizes.qkv_width() + queries) + pairs,
                        .masked = spec.causal ? pairs / 2 : 0};
            }
            case LayerType::Experts: {
                const double matrices = 3.0 * spec.inner_width * spec.routing.per_row;
                return {.all = 2 * rows * width * (matrices + spec.routing.experts)};
            }
            case LayerType::CrossAttention:
                return {};  // it reads two outputs
            case LayerType::Embedding:
                shape_ = {.positions = shape_.positions, .width = spec.outputs};
                return {};
            case LayerType::Sequence:
            case LayerType::Residual:
                return has_branches(spec) ? of_branches(spec, {shape_}) : of_chain(spec);
            case LayerType::Conv2d: {
                shape_ = output_shape(spec, shape_);
                return {.all = 2.0 * shape_.positions * window_numbers(spec, width) * spec.outputs};
            }
            case LayerType::Add:
            case LayerType::Concat:
            case LayerType::CrossEntropy:
                return {};
            case LayerType::Opaque:
                refuse_opaque(spec);
            default:  // moves numbers, or does little more
                shape_ = output_shape(spec, shape_);
                return {};
        }
    }

    /// Operations of a layer that reads outputs of these shapes.
    static ForwardOperations of(const LayerSpec& spec, const std::vector<SampleShape>& inputs) {
        OperationCount count(inputs.front());
        if (spec.type == LayerType::CrossAttention) {
            return of_cross_attention(spec, inputs);
        }
        return spec.type == LayerType::Sequence && takes_several(spec, inputs.size())
                   ? count.of_branches(spec, inputs)
                   : count.of(spec);
    }

  private:
    /// Projections of the queries and of the result, and of keys and values; both products of every
    /// query with every key.
    static ForwardOperations of_cross_attention(const LayerSpec& spec,
                                                const std::vector<SampleShape>& inputs) {
        const SampleShape& x = inputs[0];
        const SampleShape& memory = inputs[1];
        const double queries = attention_sizes(spec, x.width).query_width();
        const double rows = x.positions;
        const double keys = memory.positions;
        return {.all = 4 * queries * (rows * x.width + keys * memory.width + rows * keys)};
    }

    ForwardOperations of_chain(const LayerSpec& spec) {
        ForwardOperations sum;
        for (const LayerSpec& inner : spec.inner) {
            sum += of(inner);
        }
        return sum;
    }

    ForwardOperations of_branches(const LayerSpec& spec, const std::vector<SampleShape>& inputs) {
        ForwardOperations sum;
        for (const InnerLayer& inner : inner_layers(spec, inputs)) {
            sum += of(inner.spec, inner.inputs);
            shape_ = inner.output;
        }
        return sum;
    }

    SampleShape shape_;
};

/// Adds the kernels of a layer that joins outputs to the work of a micro-batch.
void add_join(LayerWork& work, const LayerSpec& spec, std::size_t outputs, double values) {
    if (spec.type == LayerType::Add) {
        work.sum_outputs(static_cast<double>(outputs), values);
    } else {
        work.join_outputs(values);
    }
}

/// Adds the kernels of a layer, and of those inside it, to its work.
class KernelWalk {
  public:
    KernelWalk(LayerWork& work, const SampleShape& input, double samples, const EstimateOptions& o)
        : work_(work), shape_(input), samples_(samples), options_(o) {}

    void add(const LayerSpec& spec) {
        switch (spec.type) {
            case LayerType::Embedding:
                work_.lookup(rows(), spec.outputs);
                shape_ = {.positions = shape_.positions, .width = spec.outputs};
                break;
            case LayerType::LayerNorm:
            case LayerType::RmsNorm:
                work_.norm(rows(), shape_.width);
                return;
            case LayerType::Linear:
                work_.product(rows(), shape_.width, spec.outputs);
                shape_.width = spec.outputs;
                break;
            case LayerType::Gelu:
                work_.activation(2 * values(), 3 * values());
                return;
            case LayerType::SwiGlu:  // two read and one written; three read and two written
                work_.activation(1.5 * values(), 2.5 * values());
                shape_.width /= 2;
                return;
            case LayerType::Experts:
                experts(spec);
                return;
            case LayerType::Dropout:
                break;
            case LayerType::Attention:
                attention(spec);
                break;
            case LayerType::Positions:
                shape_.positions = spec.positions;
                work_.pass(2 * values(), 2 * values());
                return;
            case LayerType::CrossEntropy:
                work_.loss(values(), options_.loss);
                return;
            case LayerType::Sequence:
                inner(spec);
                return;
            case LayerType::Residual:
                inner(spec);
                work_.pass(3 * values(), 3 * values());
                return;
            case LayerType::Add:
            case LayerType::Concat:
            case LayerType::CrossAttention:
                return;  // they read several outputs
            case LayerType::Opaque:
                refuse_opaque(spec);
            default:
                of_image(spec);
                return;
        }
        if (spec.dropout > 0) {
            work_.pass(2 * values(), 2 * values());
        }
    }

    /// Adds the kernels of a layer that makes `output` of outputs of the shapes `inputs`.
    static void add(LayerWork& work,
                    const LayerSpec& spec,
                    const std::vector<SampleShape>& inputs,
                    const SampleShape& output,
                    double samples,
                    const EstimateOptions& options) {
        KernelWalk walk(work, inputs.front(), samples, options);
        if (!takes_several(spec, inputs.size())) {
            walk.add(spec);
        } else if (spec.type == LayerType::Sequence) {
            walk.branches(spec, inputs);
        } else if (spec.type == LayerType::CrossEntropy) {
            for (const SampleShape& read : inputs) {
                KernelWalk(work, read, samples, options).add(spec);
            }
        } else if (spec.type == LayerType::CrossAttention) {
            walk.cross_attention(spec, inputs[1]);
        } else {
            add_join(work, spec, inputs.size(), samples * output.positions * output.width);
        }
    }

  private:
    double rows() const { return samples_ * shape_.positions; }
    double values() const { return rows() * shape_.width; }

    void inner(const LayerSpec& spec) {
        if (has_branches(spec)) {
            branches(spec, {shape_});
            return;
        }
        for (const LayerSpec& layer : spec.inner) {
            add(layer);
        }
    }

    /// Layers of images: convolutions are products over windows, all others are passes.
    void of_image(const LayerSpec& spec) {
        const double channels = shape_.width;
        const double pixels_read = rows();
        const double read = values();
        shape_ = output_shape(spec, shape_);
        switch (spec.type) {
            case LayerType::Conv2d:
                work_.convolution({.pixels_read = pixels_read,
                                   .channels = channels,
                                   .pixels = rows(),
                                   .outputs = static_cast<double>(spec.outputs),
                                   .window = double{1} * spec.kernel.height * spec.kernel.width,
                                   .groups = static_cast<double>(spec.groups),
                                   .saves_products = can_save_products(spec),
                                   .strided = spec.stride != Pixels{1, 1}});
                return;
            case LayerType::BatchNorm:
            case LayerType::InstanceNorm:
            case LayerType::GroupNorm:  // statistics first, then the values
                work_.pass(3 * read, 5 * read);
                return;
            case LayerType::MaxPool:
            case LayerType::AvgPool:
                work_.pool({.read = read,
                            .written = values(),
                            .window = double{1} * spec.kernel.height * spec.kernel.width});
                return;
            case LayerType::Relu:
            case LayerType::LeakyRelu:
                work_.pass(2 * read, 3 * read);
                return;
            case LayerType::Identity:
            case LayerType::Flatten:  // what they make lies where it was
                return;
            case LayerType::BinaryCrossEntropy:
                work_.pass(read, 2 * read);
                return;
            default:
                work_.pass(read + values(), read + values());
                return;
        }
    }

    void branches(const LayerSpec& spec, const std::vector<SampleShape>& inputs) {
        for (const InnerLayer& inner : inner_layers(spec, inputs)) {
            add(work_, inner.spec, inner.inputs, inner.output, samples_, options_);
            shape_ = inner.output;
        }
    }

    /// A router, products over the rows of each expert, and what carries rows there and back.
    void experts(const LayerSpec& spec) {
        const double width = shape_.width;
        const double count = spec.routing.experts;
        const double copies = rows() * spec.routing.per_row;
        const double matrices = std::min(count, copies);
        work_.half_product(rows(), width, count);
        work_.pass(2 * rows() * count, 2 * rows() * count);
        work_.begin_experts(true);
        work_.sort_rows(2 * copies * width, 2 * copies * width);
        const double inner = spec.inner_width;
        work_.product(
            {.rows = copies, .inputs = width, .outputs = 2 * inner, .matrices = matrices});
        work_.activation(3 * copies * inner, 5 * copies * inner);
        work_.product({.rows = copies, .inputs = inner, .outputs = width, .matrices = matrices});
        work_.sort_rows((copies + rows()) * width, 2 * copies * width);
        work_.end_experts();
        work_.forget_ends();
    }

    void attention(const LayerSpec& spec) {
        const double width = shape_.width;
        const double sequence = shape_.positions;
        const AttentionSizes sizes = attention_sizes(spec, shape_.width);
        const LayerWork::Attention shape{
            .samples = samples_,
            .sequence = sequence,
            .seen = spec.causal ? (sequence + 1) / 2 : sequence,
            .heads = static_cast<double>(sizes.heads),
            .key_value_heads = static_cast<double>(sizes.key_value_heads),
            .key_width = static_cast<double>(sizes.head_size),
            .value_width = static_cast<double>(sizes.head_size)};
        const double outputs = sizes.qkv_width();
        const double queries = sizes.query_width();
        work_.product(rows(), width, outputs);
        if (spec.rotary.is_there()) {
            work_.rotation(rows() * (outputs + queries) / 2);
        }
        heads(shape);
        work_.product(rows(), queries, width);
    }

    void heads(const LayerWork::Attention& shape) {
        if (options_.attention == AttentionKernels::Flash) {
            work_.flash_attention(shape);
        } else {
            work_.standard_attention(shape, false);
        }
    }

    /// Every query of what it reads first sees every position of the memory.
    void cross_attention(const LayerSpec& spec, const SampleShape& memory) {
        const AttentionSizes sizes = attention_sizes(spec, shape_.width);
        const double queries = sizes.query_width();
        const double keys = memory.positions;
        work_.product(rows(), shape_.width, queries);
        work_.product(samples_ * keys, memory.width, 2 * queries);
        heads({.samples = samples_,
               .sequence = static_cast<double>(shape_.positions),
               .seen = keys,
               .heads = static_cast<double>(sizes.heads),
               .key_value_heads = static_cast<double>(sizes.heads),
               .key_width = static_cast<double>(sizes.head_size),
               .value_width = static_cast<double>(sizes.head_size),
               .keys = keys});
        work_.product(rows(), queries, shape_.width);
        if (spec.dropout > 0) {
            work_.pass(2 * values(), 2 * values());
        }
    }

    LayerWork& work_;
    SampleShape shape_;
    double samples_;
    const EstimateOptions& options_;
};

}  // namespace

ForwardOperations forward_operations(const Layer& layer) {
    if (layer.spec.type == LayerType::Opaque) {
        refuse_opaque(layer.spec);
    }
    return OperationCount::of(layer.spec, layer.inputs);
}

LayerSample estimated_sample(const Model& model,
                             int index,
                             int samples,
                             const DeviceProfile& device,
                             const EstimateOptions& options) {
    const Layer& layer = model.layer(index);
    if (layer.spec.type == LayerType::Opaque) {
        refuse_opaque(layer.spec);
    }
    LayerWork work(device, options);
    KernelWalk::add(work, layer.spec, layer.inputs, layer.output, samples, options);
    LayerSample sample = work.sample();
    sample.micro_batch_size = samples;
    return sample;
}

namespace {

/// The names that a layer of a profile states; none where it reads the layer before.
std::vector<std::string> stated_inputs(const Model& model, int index) {
    std::vector<std::string> names;
    const std::vector<int>& operands = model.operands_of(index);
    if (operands.size() > 1 || (operands.size() == 1 && operands.front() != index - 1)) {
        for (const int operand : operands) {
            names.push_back(model.layer(operand).spec.name);
        }
    }
    return names;
}

}  // namespace

Profile estimated_times(const Model& model,
                        const DeviceProfile& device,
                        const EstimateOptions& options) {
    PIPETWIN_EXPECT(device.matrix_rates.contains(options.precision),
                    "the device has no rate at the precision of an estimate");
    Profile profile{
        .source = CostSource::Estimated, .device = device.name, .precision = options.precision};
    const SampleShape& sample = model.layer(0).input;
    profile.tokens_per_sample = sample.token_ids ? sample.positions : 0;
    const std::int64_t width = bytes_per_value(options.precision);
    for (int index = 0; index < model.layer_count(); ++index) {
        const Layer& layer = model.layer(index);
        LayerCost& cost = profile.layers.emplace_back();
        cost.name = layer.spec.name;
        cost.kind = std::string(to_string(layer.spec.type));
        cost.inputs = stated_inputs(model, index);
        cost.parameter_count = layer.parameter_count;
        cost.parameter_bytes = Bytes{layer.parameter_count * width};
        cost.running_bytes = Bytes{running_bytes_of(layer, std::max<std::int64_t>(width, 4))};
        cost.optimizer = adamw_time(layer.parameter_count, device, options);
        const ForwardOperations operations = forward_operations(layer);
        cost.operations = operations.all;
        cost.masked_operations = operations.masked;
        for (const int samples : sample_sizes(options.micro_batch_size)) {
            cost.samples.push_back(estimated_sample(model, index, samples, device, options));
        }
    }
    profile.tied_bytes = Bytes{model.tied_count() * width};
    profile.layers.back().parameter_count -= model.tied_count();
    return profile;
}

}  // namespace pipetwin

// SPDX-License-Identifier: Apache-2.0
#include "tests/support/graph_reference.h"

#include <algorithm>
#include <utility>

#include "core/base/as_index.h"
#include "core/model/inner_layers.h"
#include "core/model/model.h"
#include "exec/device/arena.h"
#include "exec/device/device.h"
#include "exec/executor/backend.h"
#include "exec/layers/layer.h"
#include "exec/layers/make_layer.h"

namespace pipetwin::test {
namespace {

using exec::ConstView;
using exec::Tensor;

/// A layer that has a formula of its own, or stands in a chain inside of another. Values are
/// numbered: 0 is the model's input, and each step makes the next one.
struct Step {
    LayerSpec spec;
    std::vector<std::size_t> operands;  ///< values
    SampleShape output;
    std::unique_ptr<exec::ExecutableLayer> layer{};  ///< null: a join
    /// The loss of the second output, where the last step is a loss of two.
    std::unique_ptr<exec::ExecutableLayer> auxiliary{};
};

/// Everything that one micro-batch leaves from forward to backward.
struct Pass {
    std::vector<Tensor> values;
    std::vector<Tensor> gradients;  ///< [value]
    std::vector<exec::Kept> kept;   ///< [step]
    exec::Kept auxiliary;           ///< of the loss of the second output
    double loss_scale = 0;
};

/// f(row, column of the sum or of the wide matrix, column of the operand), for all numbers of an
/// operand.
template <class F>
void for_each_joined(const Step& step, const Tensor& operand, std::int64_t first, F&& f) {
    const std::int64_t begin = step.spec.type == LayerType::Concat ? first : 0;
    for (std::int64_t row = 0; row < operand.rows(); ++row) {
        for (std::int64_t column = 0; column < operand.columns(); ++column) {
            f(row * step.output.width + begin + column, row * operand.columns() + column);
        }
    }
}

/// y = x_0 + x_1 + ..., or the operands side by side.
template <class T>
void join(const Step& step, const std::vector<const Tensor*>& operands, Tensor& y) {
    std::int64_t first = 0;
    for (const Tensor* const x : operands) {
        const bool adds = step.spec.type == LayerType::Add && x != operands.front();
        for_each_joined(step, *x, first, [&](std::int64_t joined, std::int64_t own) {
            T& to = y.as<T>()[joined];
            to = adds ? to + x->as<T>()[own] : x->as<T>()[own];
        });
        first += x->columns();
    }
}

/// What a join hands back to the operand that begins in column `first`.
template <class T>
void hand_back(const Step& step, const Tensor& dy, std::int64_t first, Tensor& dx) {
    for_each_joined(step, dx, first, [&](std::int64_t joined, std::int64_t own) {
        dx.as<T>()[own] = dy.as<T>()[joined];
    });
}

}  // namespace

struct GraphReference::Impl {
    Impl(const Model& of, const exec::ExecutorOptions& with)
        : model(of),
          format(exec::number_format(with.precision, with.backend)),
          device(exec::make_cpu_device()) {
        std::vector<std::size_t> value_of_unit;
        shapes.push_back(model.layer(0).input);
        for (int index = 0; index < model.layer_count(); ++index) {
            const Layer& unit = model.layer(index);
            exec::ParameterMaker maker(
                arena, exec::cpu_kernels(), {.seed = with.seed, .layer = index, .format = format});
            std::vector<std::size_t> operands;
            for (const int source : model.operands_of(index)) {
                operands.push_back(value_of_unit[as_index(source)]);
            }
            if (index == 0) {
                operands.push_back(0);
            }
            add_steps(unit.spec, operands, unit.output, unit.spec.name, maker);
            value_of_unit.push_back(steps.size());
        }
    }

    /// A layer, or those inside it.
    void add_steps(const LayerSpec& spec,
                   const std::vector<std::size_t>& operands,
                   const SampleShape& output,
                   const std::string& path,
                   exec::ParameterMaker& maker) {
        std::vector<SampleShape> inputs;
        for (const std::size_t operand : operands) {
            inputs.push_back(shapes[operand]);
        }
        if (spec.type == LayerType::Sequence && takes_several(spec, inputs.size())) {
            std::vector<std::size_t> values = operands;
            for (const InnerLayer& inner : inner_layers(spec, inputs)) {
                std::vector<std::size_t> read;
                for (const std::size_t operand : inner.operands) {
                    read.push_back(values[operand]);
                }
                add_steps(inner.spec, read, inner.output, path + "." + inner.spec.name, maker);
                values.push_back(steps.size());
            }
            return;
        }
        Step& step = steps.emplace_back();
        step.spec = spec;
        step.operands = operands;
        step.output = output;
        shapes.push_back(output);
        const bool is_loss = spec.type == LayerType::CrossEntropy;
        if (operands.size() == 1 || is_loss) {
            step.layer = exec::make_layer(spec, inputs.front(), format);
            step.layer->create_parameters(maker, path, false);
        }
        if (operands.size() == 2 && is_loss) {
            step.auxiliary = exec::make_layer(spec, inputs.back(), format);
        }
    }

    exec::LayerCall call(int number, const exec::MicroBatch& slice) {
        Bytes workspace;
        for (const Step& step : steps) {
            workspace = std::max(workspace,
                                 step.layer ? step.layer->workspace_bytes(slice.samples) : Bytes{});
        }
        return {.kernels = exec::cpu_kernels(),
                .arena = arena,
                .workspace = arena.workspace(workspace),
                .micro_batch = number,
                .samples = slice.samples,
                .batch_samples = slice.batch->samples,
                .first_sample = slice.first_sample,
                .step = slice.step};
    }

    Tensor tensor_for(const SampleShape& shape, int samples) {
        return arena.allocate(
            format.real, std::int64_t{samples} * shape.positions, shape.width, MemoryKind::Stash);
    }

    void forward(int number, const exec::MicroBatch& slice) {
        Pass& pass = passes.emplace_back();
        pass.values.resize(shapes.size());
        pass.gradients.resize(shapes.size());
        pass.kept.resize(steps.size());
        pass.values.front() = tensor_for(model.layer(0).input, slice.samples);
        const std::size_t per_sample = as_index(slice.batch->positions * slice.batch->width);
        exec::cpu_kernels().upload(std::span(slice.batch->values)
                                       .subspan(as_index(slice.first_sample) * per_sample,
                                                as_index(slice.samples) * per_sample),
                                   pass.values.front());
        exec::LayerCall call = this->call(number, slice);
        call.data = &slice;
        call.loss_sum = &loss_sums[as_index(number)];
        for (std::size_t index = 0; index < steps.size(); ++index) {
            const Step& step = steps[index];
            Tensor& y = pass.values[index + 1];
            y = step.output.width == 0 ? Tensor() : tensor_for(step.output, slice.samples);
            if (step.layer) {
                step.layer->forward(
                    call, pass.values[step.operands.front()], {}, y, pass.kept[index]);
                pass.loss_scale = call.loss_scale;
                if (step.auxiliary) {
                    call.loss_sum = &auxiliary_sums[as_index(number)];
                    step.auxiliary->forward(
                        call, pass.values[step.operands.back()], {}, y, pass.auxiliary);
                }
                continue;
            }
            std::vector<const Tensor*> operands;
            for (const std::size_t operand : step.operands) {
                operands.push_back(&pass.values[operand]);
            }
            format.real == exec::DType::F64 ? join<double>(step, operands, y)
                                            : join<float>(step, operands, y);
        }
    }

    /// The first gradient of a value stays as it is, and each further one is added to it.
    void add(Pass& pass, std::size_t value, Tensor gradient) {
        Tensor& sum = pass.gradients[value];
        if (sum.empty()) {
            sum = std::move(gradient);
        } else {
            exec::cpu_kernels().add(gradient, sum);
        }
    }

    /// The gradient of what the loss reads beside the model's own logits.
    void auxiliary_backward(Pass& pass, const Step& step, Tensor& dx) {
        const std::vector<Tensor>& kept = pass.auxiliary.tensors;  // targets, log sums
        exec::cpu_kernels().cross_entropy_backward(pass.values[step.operands.back()],
                                                   kept[0],
                                                   kept[1],
                                                   {.smoothing = step.spec.label_smoothing},
                                                   step.spec.auxiliary_weight * pass.loss_scale,
                                                   dx);
    }

    void backward(int number, const exec::MicroBatch& slice) {
        Pass& pass = passes[as_index(number)];
        exec::LayerCall call = this->call(number, slice);
        for (std::size_t index = steps.size(); index-- > 0;) {
            const Step& step = steps[index];
            const Tensor& dy = pass.gradients[index + 1];
            std::int64_t first = 0;
            for (const std::size_t operand : step.operands) {
                Tensor dx = tensor_for(shapes[operand], slice.samples);
                if (step.auxiliary && operand == step.operands.back()) {
                    auxiliary_backward(pass, step, dx);
                } else if (step.layer) {
                    step.layer->backward(call, pass.kept[index], pass.values[operand], dy, {}, dx);
                } else {
                    format.real == exec::DType::F64 ? hand_back<double>(step, dy, first, dx)
                                                    : hand_back<float>(step, dy, first, dx);
                }
                first += dx.columns();
                add(pass, operand, std::move(dx));
            }
        }
    }

    Model model;
    exec::NumberFormat format;
    std::unique_ptr<exec::Device> device;
    exec::Arena arena;
    std::vector<Step> steps;
    std::vector<SampleShape> shapes;  ///< [value]
    std::vector<Pass> passes;
    std::vector<double> loss_sums;
    std::vector<double> auxiliary_sums;
};

GraphReference::GraphReference(const Model& model, const exec::ExecutorOptions& options)
    : impl_(std::make_unique<Impl>(model, options)) {}

GraphReference::~GraphReference() = default;

double GraphReference::run(const std::vector<exec::MicroBatch>& slices,
                           BackwardOrder backward_order) {
    const int count = static_cast<int>(slices.size());
    impl_->device->enter_thread();
    impl_->passes.clear();
    impl_->loss_sums.assign(slices.size(), 0);
    impl_->auxiliary_sums.assign(slices.size(), 0);
    for (exec::Parameter* const parameter : parameters()) {
        exec::cpu_kernels().fill_zero(parameter->gradient);
    }
    for (int number = 0; number < count; ++number) {
        impl_->forward(number, slices[as_index(number)]);
    }
    for (int i = 0; i < count; ++i) {
        const int number = backward_order == BackwardOrder::Descending ? count - 1 - i : i;
        impl_->backward(number, slices[as_index(number)]);
    }
    double loss = 0;
    for (int number = 0; number < count; ++number) {
        const double scale = impl_->passes[as_index(number)].loss_scale;
        loss += impl_->loss_sums[as_index(number)] * scale;
        loss += impl_->auxiliary_sums[as_index(number)] *
                (impl_->steps.back().spec.auxiliary_weight * scale);
    }
    return loss;
}

std::vector<exec::Parameter*> GraphReference::parameters() {
    std::vector<exec::Parameter*> all;
    for (const Step& step : impl_->steps) {
        if (step.layer) {
            for (exec::Parameter* const parameter : step.layer->parameters()) {
                all.push_back(parameter);
            }
        }
    }
    return all;
}

}  // namespace pipetwin::test

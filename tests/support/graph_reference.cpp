#include "tests/support/graph_reference.h"

#include <algorithm>
#include <utility>

#include "core/base/as_index.h"
#include "exec/device/arena.h"
#include "exec/device/device.h"
#include "exec/executor/backend.h"
#include "exec/layers/layer.h"
#include "exec/layers/make_layer.h"

namespace pipetwin::test {
namespace {

using exec::ConstView;
using exec::Tensor;

/// Everything that one micro-batch leaves from forward to backward.
struct Pass {
    Tensor input;
    std::vector<Tensor> outputs;    ///< [layer]
    std::vector<Tensor> gradients;  ///< [layer]: of its output
    std::vector<exec::Kept> kept;   ///< [layer]
    double loss_scale = 0;
};

bool is_join(const Layer& layer) {
    return layer.spec.type == LayerType::Add || layer.spec.type == LayerType::Concat;
}

/// f(row, column of the sum or of the wide matrix, column of the operand), for all numbers of an
/// operand.
template <class F>
void for_each_joined(const Layer& layer, const Tensor& operand, std::int64_t first, F&& f) {
    const std::int64_t begin = layer.spec.type == LayerType::Concat ? first : 0;
    for (std::int64_t row = 0; row < operand.rows(); ++row) {
        for (std::int64_t column = 0; column < operand.columns(); ++column) {
            f(row * layer.output.width + begin + column, row * operand.columns() + column);
        }
    }
}

/// y = x_0 + x_1 + ..., or the operands side by side.
template <class T>
void join(const Layer& layer, const std::vector<const Tensor*>& operands, Tensor& y) {
    std::int64_t first = 0;
    for (const Tensor* const x : operands) {
        const bool adds = layer.spec.type == LayerType::Add && x != operands.front();
        for_each_joined(layer, *x, first, [&](std::int64_t joined, std::int64_t own) {
            T& to = y.as<T>()[joined];
            to = adds ? to + x->as<T>()[own] : x->as<T>()[own];
        });
        first += x->columns();
    }
}

/// What a join hands back to the operand that begins in column `first`.
template <class T>
void hand_back(const Layer& layer, const Tensor& dy, std::int64_t first, Tensor& dx) {
    for_each_joined(layer, dx, first, [&](std::int64_t joined, std::int64_t own) {
        dx.as<T>()[own] = dy.as<T>()[joined];
    });
}

}  // namespace

struct GraphReference::Impl {
    Impl(const Model& of, const exec::ExecutorOptions& with)
        : model(of),
          options(with),
          format(exec::number_format(with.precision, with.backend)),
          device(exec::make_cpu_device()) {
        for (int index = 0; index < model.layer_count(); ++index) {
            layers.push_back(
                is_join(model.layer(index))
                    ? nullptr
                    : exec::make_layer(model.layer(index).spec, model.layer(index).input, format));
            if (layers.back() == nullptr) {
                continue;
            }
            exec::ParameterMaker maker(
                arena, exec::cpu_kernels(), {.seed = with.seed, .layer = index, .format = format});
            layers.back()->create_parameters(maker, model.layer(index).spec.name, false);
        }
    }

    exec::LayerCall call(int number, const exec::MicroBatch& slice) {
        Bytes workspace;
        for (const auto& layer : layers) {
            workspace =
                std::max(workspace, layer ? layer->workspace_bytes(slice.samples) : Bytes{});
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
        const int count = model.layer_count();
        pass.outputs.resize(as_index(count));
        pass.gradients.resize(as_index(count));
        pass.kept.resize(as_index(count));
        pass.input = tensor_for(model.layer(0).input, slice.samples);
        const std::size_t per_sample = as_index(slice.batch->positions * slice.batch->width);
        exec::cpu_kernels().upload(std::span(slice.batch->values)
                                       .subspan(as_index(slice.first_sample) * per_sample,
                                                as_index(slice.samples) * per_sample),
                                   pass.input);
        exec::LayerCall call = this->call(number, slice);
        call.data = &slice;
        call.loss_sum = &loss_sums[as_index(number)];
        for (int index = 0; index < count; ++index) {
            const Layer& layer = model.layer(index);
            Tensor& y = pass.outputs[as_index(index)];
            y = layer.output.width == 0 ? Tensor() : tensor_for(layer.output, slice.samples);
            if (is_join(layer)) {
                std::vector<const Tensor*> operands;
                for (const int source : model.operands_of(index)) {
                    operands.push_back(&pass.outputs[as_index(source)]);
                }
                format.real == exec::DType::F64 ? join<double>(layer, operands, y)
                                                : join<float>(layer, operands, y);
            } else {
                layers[as_index(index)]->forward(
                    call, input_of(pass, index), {}, y, pass.kept[as_index(index)]);
            }
        }
        pass.loss_scale = call.loss_scale;
    }

    ConstView input_of(const Pass& pass, int index) const {
        return index == 0 ? pass.input : pass.outputs[as_index(model.inputs_of(index).front())];
    }

    /// The first gradient of an output stays as it is, and each further one is added to it.
    void add(Pass& pass, int source, Tensor gradient) {
        Tensor& sum = pass.gradients[as_index(source)];
        if (sum.empty()) {
            sum = std::move(gradient);
        } else {
            exec::cpu_kernels().add(gradient, sum);
        }
    }

    void backward(int number, const exec::MicroBatch& slice) {
        Pass& pass = passes[as_index(number)];
        exec::LayerCall call = this->call(number, slice);
        for (int index = model.layer_count() - 1; index >= 0; --index) {
            const Layer& layer = model.layer(index);
            const Tensor& dy = pass.gradients[as_index(index)];
            if (!is_join(layer)) {
                Tensor dx = index == 0 ? Tensor() : tensor_for(layer.input, slice.samples);
                layers[as_index(index)]->backward(
                    call, pass.kept[as_index(index)], input_of(pass, index), dy, {}, dx);
                if (index > 0) {
                    add(pass, model.inputs_of(index).front(), std::move(dx));
                }
                continue;
            }
            std::int64_t first = 0;
            for (const int source : model.operands_of(index)) {
                Tensor dx = tensor_for(model.layer(source).output, slice.samples);
                format.real == exec::DType::F64 ? hand_back<double>(layer, dy, first, dx)
                                                : hand_back<float>(layer, dy, first, dx);
                first += dx.columns();
                add(pass, source, std::move(dx));
            }
        }
    }

    Model model;
    exec::ExecutorOptions options;
    exec::NumberFormat format;
    std::unique_ptr<exec::Device> device;
    exec::Arena arena;
    std::vector<std::unique_ptr<exec::ExecutableLayer>> layers;  ///< null: a join
    std::vector<Pass> passes;
    std::vector<double> loss_sums;
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
        loss += impl_->loss_sums[as_index(number)] * impl_->passes[as_index(number)].loss_scale;
    }
    return loss;
}

std::vector<exec::Parameter*> GraphReference::parameters() {
    std::vector<exec::Parameter*> all;
    for (const auto& layer : impl_->layers) {
        if (layer) {
            for (exec::Parameter* const parameter : layer->parameters()) {
                all.push_back(parameter);
            }
        }
    }
    return all;
}

}  // namespace pipetwin::test

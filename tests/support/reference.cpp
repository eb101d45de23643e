// SPDX-License-Identifier: Apache-2.0
#include "tests/support/reference.h"

#include <cmath>
#include <numeric>
#include <span>

#include "core/base/as_index.h"
#include "core/model/model.h"
#include "core/schedule/generators/generate.h"
#include "exec/device/arena.h"
#include "exec/device/device.h"
#include "exec/executor/backend.h"

namespace pipetwin::test {

struct Reference::Impl {
    Impl(const Model& model, const exec::ExecutorOptions& with)
        : options(with),
          device(exec::make_cpu_device()),
          stage(*device,
                arena,
                model,
                {.stage = 0, .first_layer = 0, .layer_count = model.layer_count()},
                {.format = exec::number_format(with.precision, with.backend),
                 .seed = with.seed,
                 .micro_batches = 1,
                 .largest_micro_batch = 1,
                 .optimizer = with.optimizer.kind,
                 .input_gradient = with.input_gradient,
                 .layer_done = {}}) {}

    void forward(int micro_batch, const exec::MicroBatch& slice) {
        stage.forward(micro_batch, {}, slice, true, {});
    }
    void backward(int micro_batch) {
        exec::Tensor gradient;  // of the model's input
        stage.backward(micro_batch, {}, std::span(&gradient, 1));
    }

    exec::ExecutorOptions options;
    std::unique_ptr<exec::Device> device;
    exec::Arena arena;
    exec::Stage stage;
};

Reference::Reference(const Model& model, const exec::ExecutorOptions& options)
    : impl_(std::make_unique<Impl>(model, options)) {}

Reference::~Reference() = default;

double Reference::run_step(const std::vector<exec::MicroBatch>& slices,
                           BackwardOrder backward_order,
                           int step) {
    exec::Stage& stage = impl_->stage;
    const int count = static_cast<int>(slices.size());
    impl_->device->enter_thread();
    stage.begin_batch();
    for (int m = 0; m < count; ++m) {
        exec::MicroBatch slice = slices[as_index(m)];
        slice.step = step;
        impl_->forward(m, slice);
    }
    for (int i = 0; i < count; ++i) {
        impl_->backward(backward_order == BackwardOrder::Descending ? count - 1 - i : i);
    }
    impl_->device->finish();
    const double loss = stage.loss();
    stage.add_received_gradients();  // of a parameter that is used twice
    stage.sum_squares();
    impl_->device->finish();
    const exec::OptimizerSettings& optimizer = impl_->options.optimizer;
    const std::span<const double> squares = stage.counted_squares();
    const double norm = std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
    stage.update(optimizer, step + 1, exec::clip_scale(optimizer, norm));
    impl_->device->finish();
    stage.commit_batch();
    return loss;
}

std::vector<exec::Parameter*> Reference::state() {
    return impl_->stage.state();
}

std::vector<exec::Parameter*> Reference::parameters() {
    return impl_->stage.parameters();
}

}  // namespace pipetwin::test

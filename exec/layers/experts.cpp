// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/model/layer_spec.h"
#include "exec/device/column_kernels.h"
#include "exec/device/expert_kernels.h"
#include "exec/layers/makers.h"

namespace pipetwin::exec {
namespace {

/// Rows of a matrix, from `begin` on.
template <class AnyView>
AnyView rows_of(const AnyView& matrix, std::int64_t begin, std::int64_t count) {
    AnyView part =
        part_of(matrix, {.begin = begin * matrix.columns, .size = count * matrix.columns});
    return {part.data, part.dtype, count, matrix.columns};
}

/// A router sends each row to k of E experts (Routing); with p_j the weight of its j-th expert e,
/// and s(g | v) = v g / (1 + exp(-g)):
///
/// y = skip + sum over j of (p_j s(x u_e)) d_e
///         x, y (n, width)   u_e (width, 2 inner)   d_e (inner, width)   logits x r, r (width, E)
///
/// The copies of rows are sorted by expert, so that each expert has one product over all of its
/// own. An expert without rows has a gradient of zeros, so that replicas sum the same numbers.
///
/// Devices that divide the sequence have all experts and a part of the rows each: gradients are
/// terms of sums over the devices, and loads are those of all rows.
///
/// With `bias_update` a step that has succeeded moves the biases of the choice by the copies of its
/// whole mini-batch, in all replicas.
///
/// Keeps its input, the logits, the choice, its weights and places, and x u. I puts the gradients
/// of the logits and of x u in their places, and keeps p s(x u) for W.
class Experts final : public ExecutableLayer {
  public:
    Experts(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
        : ExecutableLayer(input, input, format),
          routing_(spec.routing),
          inner_(spec.inner_width),
          devices_(spec.cut.sequence ? spec.cut.devices : 1),
          copies_(as_index(routing_.experts)),
          loads_(copies_.size()),
          own_loads_(copies_.size()),
          loads_of_all_(as_index(devices_) * copies_.size()),
          moments_(2 * copies_.size()),
          expert_(as_index(routing_.experts)) {}

    Bytes kept_bytes(int samples) const override {
        const std::int64_t n = rows(samples);
        constexpr int integers = 2;  // choice and places
        return matrix_bytes(n, routing_.experts) +
               Bytes{integers * n * routing_.per_row * std::int64_t{sizeof(std::int32_t)}} +
               exact_bytes(n, routing_.per_row) + matrix_bytes(copies(samples), 2 * inner_);
    }
    Bytes split_bytes(int samples) const override { return matrix_bytes(copies(samples), inner_); }
    /// W needs all but the weights, or what I has put in its place.
    Bytes unread_bytes(int samples) const override {
        return exact_bytes(rows(samples), routing_.per_row);
    }
    void free_unread(Kept& kept) const override { kept.tensors[weights_index] = {}; }
    Bytes workspace_bytes(int samples) const override { return Room(*this, samples).end; }

    bool has_parameters() const override { return true; }
    void create_parameters(ParameterMaker& maker,
                           const std::string& path,
                           bool ends_residual) override {
        using Role = ParameterMaker::Role;
        const int width = input().width;
        router_ = maker.make(path + ".router.weight",
                             PaddedMatrix{.rows = width, .columns = routing_.experts},
                             {.role = Role::Weight, .inputs = width});
        if (has_bias()) {
            bias_ = maker.make_state(
                path + ".router.choice_bias", format().exact(), routing_.experts, 0);
            copies_of_batch_.values = maker.make_sums(2, routing_.experts);
        }
        router_.is_partial = devices_ > 1;
        for (std::size_t e = 0; e < expert_.size(); ++e) {
            const std::string name = fmt::format("{}.{}", path, e);
            expert_[e].up = maker.make(name + ".gate_up.weight",
                                       PaddedMatrix{.rows = width, .columns = 2 * inner_},
                                       {.role = Role::Weight, .inputs = width});
            expert_[e].down = maker.make(
                name + ".down.weight",
                PaddedMatrix{.rows = inner_, .columns = width},
                {.role = ends_residual ? Role::ResidualWeight : Role::Weight, .inputs = inner_});
            expert_[e].up.is_partial = expert_[e].down.is_partial = devices_ > 1;
        }
    }
    Bytes state_bytes() const override {
        return has_bias()
                   ? exact_bytes(1, routing_.experts) + Bytes{norm_scratch_bytes(routing_.experts)}
                   : Bytes{};
    }
    std::vector<Parameter*> state() override {
        return has_bias() ? std::vector{&bias_} : std::vector<Parameter*>{};
    }
    std::vector<BatchMoments*> batch_moments() override {
        return has_bias() ? std::vector{&copies_of_batch_} : std::vector<BatchMoments*>{};
    }
    void forget_batch() override { copies_of_batch_.rows = 0; }
    void commit_batch(const Kernels& kernels) override {
        if (copies_of_batch_.rows > 0) {
            kernels.experts().move_bias(
                routing_.bias_update, rows_of(View(copies_of_batch_.values), 1, 1), bias_.value);
        }
        forget_batch();
    }
    std::vector<Parameter*> parameters() override {
        std::vector<Parameter*> all{&router_};
        for (Expert& expert : expert_) {
            all.push_back(&expert.up);
            all.push_back(&expert.down);
        }
        return all;
    }

    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override {
        const ExpertKernels& experts = call.kernels.experts();
        const auto keep = [&](DType type, std::int64_t height, std::int64_t width) -> Tensor& {
            kept.tensors.push_back(call.arena.allocate(type, height, width, MemoryKind::Stash));
            return kept.tensors.back();
        };
        const std::int64_t n = x.rows;
        keep(real(), n, routing_.experts);
        keep(DType::I32, n, routing_.per_row);
        keep(format().exact(), n, routing_.per_row);
        keep(DType::I32, n, routing_.per_row);
        keep(real(), n * routing_.per_row, 2 * inner_);
        const OfBackward own(kept);
        call.kernels.linear_forward(x, router_.value, {}, {}, own.logits);
        experts.route(routing_, own.logits, bias_.value, own.choice, own.weights);
        count(call, own);
        experts.sort_copies(own.choice, copies_, own.places);
        const Room room(*this, call);
        if (has_bias() && !call.evaluation && !call.recomputation) {
            add_to_batch(call, room, n);
        }
        experts.copy_rows(x, own.places, room.wide);
        for_each_expert([&](const Expert& expert, std::int64_t begin, std::int64_t count) {
            call.kernels.linear_forward(rows_of(ConstView(room.wide), begin, count),
                                        expert.up.value,
                                        {},
                                        {},
                                        rows_of(own.gates, begin, count));
        });
        call.kernels.swiglu_forward(own.gates, room.inner);
        experts.weigh_copies(room.inner, own.places, own.weights, room.inner);
        for_each_expert([&](const Expert& expert, std::int64_t begin, std::int64_t count) {
            call.kernels.linear_forward(rows_of(ConstView(room.inner), begin, count),
                                        expert.down.value,
                                        {},
                                        {},
                                        rows_of(room.wide, begin, count));
        });
        experts.add_copies(room.wide, own.places, skip, y);
    }

    void backward_input(LayerCall& call,
                        Kept& kept,
                        ConstView /*x*/,
                        ConstView dy,
                        ConstView skip,
                        View dx) override {
        Tensor weighed =
            call.arena.allocate(real(), dy.rows * routing_.per_row, inner_, MemoryKind::Stash);
        const OfBackward own(kept);
        const Room room(*this, call);
        begin_backward(call, own, room, dy, weighed);
        call.done(Op::BackwardInput);
        end_input(call, own, room, skip, dx);
        kept.tensors.push_back(std::move(weighed));
    }

    void backward_weight(LayerCall& call, Kept& kept, ConstView x, ConstView dy) override {
        const OfBackward own(kept);
        const Room room(*this, call);
        count(call, own);
        call.kernels.experts().copy_rows(dy, own.places, room.wide);
        down_gradients(call, room.wide, kept.tensors.back());
        up_gradients(call, own, room, x);
        call.done(Op::BackwardWeight);
    }

    void backward(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override {
        const OfBackward own(kept);
        const Room room(*this, call);
        begin_backward(call, own, room, dy, room.inner);
        call.done(Op::BackwardInput);
        down_gradients(call, room.wide, room.inner);
        up_gradients(call, own, room, x);
        call.done(Op::BackwardWeight);
        end_input(call, own, room, skip, dx);
    }

  private:
    static constexpr std::size_t weights_index = 2;  ///< of what is kept
    struct Expert {
        Parameter up;
        Parameter down;
    };

    /// What is kept of a micro-batch.
    struct OfBackward {
        explicit OfBackward(Kept& kept)
            : logits(kept.tensors[0]),
              choice(kept.tensors[1]),
              weights(kept.tensors[weights_index]),
              places(kept.tensors[3]),
              gates(kept.tensors[4]) {}

        View logits;  ///< then their gradients
        View choice;
        View weights;
        View places;
        View gates;  ///< x u of every copy, then its gradient
    };

    /// Scratch memory of a call.
    struct Room {
        Room(const Experts& of, const LayerCall& call) : Room(of, call.samples) {
            for (View* const view : {&wide, &inner, &gradient, &weights, &moments}) {
                view->data = call.workspace + reinterpret_cast<std::uintptr_t>(view->data);
            }
        }
        /// Counts only.
        Room(const Experts& of, int samples) {
            const std::int64_t n = of.rows(samples);
            const std::int64_t all = of.copies(samples);
            wide = next(of.real(), all, of.input().width);
            inner = next(of.real(), all, of.inner_);
            gradient = next(of.real(), all, of.inner_);
            weights = next(of.format().exact(), n, of.routing_.per_row);
            moments = next(DType::F64, of.has_bias() ? 2 : 0, of.routing_.experts);
        }
        View next(DType type, std::int64_t height, std::int64_t width) {
            constexpr std::int64_t line = 64;
            const std::int64_t begin = end.count;
            const std::int64_t bytes = height * width * static_cast<std::int64_t>(size_of(type));
            end = Bytes{begin + (bytes + line - 1) / line * line};
            return {
                reinterpret_cast<void*>(static_cast<std::uintptr_t>(begin)), type, height, width};
        }

        View wide;      ///< (n k, width)
        View inner;     ///< (n k, inner)
        View gradient;  ///< (n k, inner)
        View weights;   ///< (n, k)
        View moments;   ///< (2, E) fp64
        Bytes end{};
    };

    std::int64_t copies(int samples) const { return rows(samples) * routing_.per_row; }

    bool has_bias() const { return routing_.bias_update > 0; }

    /// Adds the copies of a micro-batch to those of the mini-batch: as sums of squares around means
    /// of 0, which are added up exactly.
    void add_to_batch(const LayerCall& call, const Room& room, std::int64_t n) {
        find_loads(call);
        std::ranges::copy(loads_, moments_.begin() + std::ssize(loads_));
        call.kernels.upload(std::span<const double>(moments_), room.moments);
        call.kernels.columns().add_moments(
            {.rows = n, .values = room.moments}, copies_of_batch_.rows, copies_of_batch_.values);
        copies_of_batch_.rows += n;
    }

    /// Finds how many rows of all devices have chosen each expert.
    void find_loads(const LayerCall& call) {
        loads_ = copies_;
        if (devices_ == 1) {
            return;
        }
        std::ranges::copy(copies_, own_loads_.begin());
        call.group.all_gather_on_host(own_loads_, loads_of_all_);
        std::ranges::fill(loads_, 0);
        for (std::size_t i = 0; i < loads_of_all_.size(); ++i) {
            loads_[i % loads_.size()] += static_cast<std::int32_t>(loads_of_all_[i]);
        }
    }

    /// Finds how many rows each expert has; none where nothing is computed.
    void count(const LayerCall& call, const OfBackward& own) {
        std::ranges::fill(copies_, 0);
        call.kernels.experts().count_copies(own.choice, copies_);
    }

    /// Calls act(expert, its first copy, how many) for all that have rows.
    template <class Do>
    void for_each_expert(const Do& act) {
        std::int64_t begin = 0;
        for (std::size_t e = 0; e < expert_.size(); ++e) {
            if (copies_[e] > 0) {
                act(expert_[e], begin, std::int64_t{copies_[e]});
            }
            begin += copies_[e];
        }
    }

    /// Puts the copies of dy into room.wide, p s(x u) into `weighed`, and the gradients of x u and
    /// of the logits into their places.
    void begin_backward(
        LayerCall& call, const OfBackward& own, const Room& room, ConstView dy, View weighed) {
        const ExpertKernels& experts = call.kernels.experts();
        count(call, own);
        experts.copy_rows(dy, own.places, room.wide);
        for_each_expert([&](const Expert& expert, std::int64_t begin, std::int64_t count) {
            call.kernels.linear_backward_input(rows_of(ConstView(room.wide), begin, count),
                                               expert.down.value,
                                               {},
                                               rows_of(room.gradient, begin, count));
        });
        call.kernels.swiglu_forward(own.gates, weighed);
        experts.weigh_copies_backward(weighed, room.gradient, own.places, room.weights);
        experts.weigh_copies(weighed, own.places, own.weights, weighed);
        experts.weigh_copies(room.gradient, own.places, own.weights, room.gradient);
        call.kernels.swiglu_backward(own.gates, room.gradient, own.gates);
        const double rows_of_batch =
            static_cast<double>(call.batch_samples) * input().positions * devices_;
        const double rows_of_call = static_cast<double>(dy.rows) * devices_;
        const double load_factor = routing_.auxiliary_loss * routing_.experts /
                                   (routing_.per_row * rows_of_call * rows_of_batch);
        if (load_factor > 0) {
            find_loads(call);
        }
        experts.route_backward(
            routing_, own.logits, own.choice, room.weights, loads_, load_factor, own.logits);
    }

    /// dd += (p s(x u))^T dy
    void down_gradients(const LayerCall& call, ConstView dy, ConstView weighed) {
        add_gradients(call, &Expert::down, weighed, dy);
    }

    /// du += x^T d(x u),  dr += x^T dlogits
    void up_gradients(const LayerCall& call, const OfBackward& own, const Room& room, ConstView x) {
        call.kernels.experts().copy_rows(x, own.places, room.wide);
        add_gradients(call, &Expert::up, room.wide, own.gates);
        call.kernels.linear_backward_weight(x, own.logits, router_.next_gradient(), {});
    }

    void add_gradients(const LayerCall& call,
                       Parameter Expert::*matrix,
                       ConstView x,
                       ConstView dy) {
        std::int64_t begin = 0;
        for (std::size_t e = 0; e < expert_.size(); ++e) {
            const GradientSum sum = (expert_[e].*matrix).next_gradient();
            const std::int64_t count = copies_[e];
            if (count == 0) {
                call.kernels.begun(sum);
            } else {
                call.kernels.linear_backward_weight(
                    rows_of(x, begin, count), rows_of(dy, begin, count), sum, {});
            }
            begin += count;
        }
    }

    /// dx = skip + dlogits r^T + the sum of the copies' d(x u) u^T
    void end_input(
        LayerCall& call, const OfBackward& own, const Room& room, ConstView skip, View dx) {
        if (!dx.empty()) {
            for_each_expert([&](const Expert& expert, std::int64_t begin, std::int64_t count) {
                call.kernels.linear_backward_input(rows_of(ConstView(own.gates), begin, count),
                                                   expert.up.value,
                                                   {},
                                                   rows_of(room.wide, begin, count));
            });
            call.kernels.linear_backward_input(own.logits, router_.value, skip, dx);
            call.kernels.experts().add_copies(room.wide, own.places, dx, dx);
        }
        call.done(Op::BackwardInput);
    }

    Routing routing_;
    int inner_;
    int devices_;                       ///< that have a part of the rows each
    std::vector<std::int32_t> copies_;  ///< [expert] of the call at work
    std::vector<std::int32_t> loads_;   ///< [expert] likewise, of all devices
    std::vector<double> own_loads_;     ///< [expert] of this device, as the others are sent them
    std::vector<double> loads_of_all_;  ///< [device][expert]
    std::vector<double> moments_;       ///< 0, and then the loads
    Parameter router_;
    Parameter bias_;                ///< of the choice; empty without `bias_update`
    BatchMoments copies_of_batch_;  ///< by expert, in the second row
    std::vector<Expert> expert_;
};

}  // namespace

const LayerMaker make_experts = made<Experts>;

}  // namespace pipetwin::exec

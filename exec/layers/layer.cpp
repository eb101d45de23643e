// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/layer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/layer_spec.h"
#include "exec/base/divided_work.h"
#include "exec/base/normal_numbers.h"

namespace pipetwin::exec {
namespace {

/// Numbers that are drawn at a time.
constexpr std::int64_t small_piece = std::int64_t{1} << 14U;

}  // namespace

ShareCut::ShareCut(int shares, std::int64_t numbers) {
    for (int replica = 0; replica < shares; ++replica) {
        shares_.push_back(share_of(numbers, replica, shares));
    }
}

std::vector<ElementRange> ShareCut::next(std::int64_t size) {
    std::vector<ElementRange> parts;
    for (const ElementRange& share : shares_) {
        ElementRange& part = parts.emplace_back(common(share, {.begin = next_, .size = size}));
        part.begin -= next_;
    }
    next_ += size;
    return parts;
}

std::vector<ElementRange> ShareCut::of_table(std::int64_t size) const {
    return ShareCut(static_cast<int>(shares_.size()), size).next(size);
}

ParameterMaker::ParameterMaker(Arena& arena, const Kernels& kernels, const Settings& settings)
    : arena_(arena), kernels_(kernels), settings_(settings) {}

Parameter ParameterMaker::allocate(const std::string& name, const PaddedMatrix& shape, Uses uses) {
    const NumberFormat& format = settings_.format;
    const auto zeros = [&](DType type, std::int64_t height, std::int64_t width, MemoryKind kind) {
        Tensor tensor = arena_.allocate(type, height, width, kind);
        in_pieces_of(tensor.size(), [&](const ElementRange& piece) {
            kernels_.fill_zero(part_of(View(tensor), piece));
        });
        return tensor;
    };
    const auto tensor_of = [&](DType type, MemoryKind kind) {
        return zeros(
            type, shape.rows + shape.padding.rows, shape.columns + shape.padding.columns, kind);
    };
    Parameter parameter;
    parameter.name = name;
    parameter.padding = shape.padding;
    parameter.cut = shape.cut;
    if (settings_.division != nullptr) {
        divide(parameter, shape, uses);
    } else if (settings_.cut != nullptr) {
        const std::int64_t size = shape.kept_size();
        parameter.shares =
            uses == Uses::Two ? settings_.cut->of_table(size) : settings_.cut->next(size);
        parameter.share = parameter.shares.at(as_index(settings_.replica));
    }
    const auto state = [&] {
        if (!parameter.share) {
            return tensor_of(format.exact(), MemoryKind::Optimizer);
        }
        return parameter.share->size == 0
                   ? Tensor()
                   : zeros(format.exact(), 1, parameter.share->size, MemoryKind::Optimizer);
    };
    if (parameter.divided == nullptr) {
        parameter.value = tensor_of(format.real, MemoryKind::Weights);
        parameter.gradient = tensor_of(format.exact(), MemoryKind::Gradients);
        if (settings_.shared || uses == Uses::Two) {
            parameter.received = tensor_of(format.exact(), MemoryKind::Gradients);
        }
    }
    if (format.has_master_weights()) {
        parameter.master = state();
    }
    if (settings_.optimizer_slots >= 1) {
        parameter.first = state();
    }
    if (settings_.optimizer_slots >= 2) {
        parameter.second = state();
    }
    if (settings_.averages_weights) {
        parameter.average = state();
    }
    return parameter;
}

/// Numbers of which replicas have a share each, in memory of this one.
DividedNumbers& ParameterMaker::divided_numbers(std::int64_t count) {
    const LayerDivision& of = *settings_.division;
    DividedNumbers& numbers =
        *settings_.division->made.emplace_back(std::make_unique<DividedNumbers>());
    numbers.count = count;
    for (int replica = 0; replica < of.replicas; ++replica) {
        numbers.shares.push_back(share_of(count, replica, of.replicas));
    }
    numbers.own = numbers.shares[as_index(of.replica)];
    const NumberFormat& format = settings_.format;
    const auto row = [&](DType type, std::int64_t size, MemoryKind kind) {
        return size > 0 ? arena_.allocate(type, 1, size, kind) : Tensor();
    };
    (of.weights ? numbers.values : numbers.whole) =
        row(format.real, of.weights ? numbers.own.size : count, MemoryKind::Weights);
    numbers.gradients = row(format.exact(), numbers.own.size, MemoryKind::Gradients);
    return numbers;
}

/// Gives a parameter its place among the numbers of the layer, or of a table that another layer
/// uses, too.
void ParameterMaker::divide(Parameter& parameter, const PaddedMatrix& shape, Uses uses) {
    static std::byte nowhere;  // where nothing is read or written
    const NumberFormat& format = settings_.format;
    const std::int64_t size = shape.kept_size();
    if (const std::int64_t alignment = settings_.division->alignment; size % alignment != 0) {
        throw Error(ErrorKind::Infeasible,
                    KeyValue{"pipeline.shard"},
                    fmt::format("'{}' has {} numbers, and GPUs that divide gradients or weights "
                                "need a multiple of {} in each parameter",
                                parameter.name,
                                size,
                                alignment),
                    fmt::format("make the widths of the model multiples of {}, or set "
                                "pipeline.shard = \"optimizer\"",
                                alignment));
    }
    if (uses == Uses::Two) {
        parameter.divided = &divided_numbers(size);
    } else {
        if (numbers_ == nullptr) {
            numbers_ = &divided_numbers(settings_.division->numbers);
        }
        parameter.divided = numbers_;
    }
    DividedNumbers& numbers = *parameter.divided;
    parameter.first_number = std::exchange(numbers.passed, numbers.passed + size);
    const ElementRange kept = common(numbers.own, {.begin = parameter.first_number, .size = size});
    parameter.share = ElementRange{.begin = kept.begin - parameter.first_number, .size = kept.size};
    Memory& memory = arena_.memory();
    const auto part = [&](Tensor& of, std::int64_t begin) {
        return kept.size == 0
                   ? Tensor()
                   : Tensor::placed(memory,
                                    part_of(View(of), {.begin = begin, .size = kept.size}).data,
                                    of.dtype(),
                                    1,
                                    kept.size);
    };
    const auto working = [&](DType type, void* place) {
        return Tensor::placed(memory,
                              place,
                              type,
                              shape.rows + shape.padding.rows,
                              shape.columns + shape.padding.columns);
    };
    const bool has_whole = !numbers.whole.empty();
    parameter.value = working(
        format.real,
        has_whole
            ? part_of(View(numbers.whole), {.begin = parameter.first_number, .size = size}).data
            : &nowhere);
    parameter.gradient = working(format.exact(), &nowhere);
    const std::int64_t begin = kept.begin - numbers.own.begin;
    parameter.value_share =
        has_whole ? part(numbers.whole, kept.begin) : part(numbers.values, begin);
    parameter.gradient_share = part(numbers.gradients, begin);
    if (uses == Uses::Two) {
        if (numbers.own.size > 0) {
            numbers.received =
                arena_.allocate(format.exact(), 1, numbers.own.size, MemoryKind::Gradients);
        }
        parameter.received = working(format.exact(), &nowhere);
        parameter.received_share = part(numbers.received, begin);
    }
}

/// Calls work(piece) for all pieces of so many elements, at the same time where the device lets
/// several threads call its kernels.
void ParameterMaker::in_pieces_of(std::int64_t size,
                                  const std::function<void(const ElementRange&)>& work) const {
    constexpr std::int64_t piece = std::int64_t{1} << 18U;
    in_pieces(size, kernels_.are_immediate() ? piece : std::max(size, std::int64_t{1}), work);
}

/// Calls as `in_pieces_of` does, by as few numbers as a thread's stack has room for.
void ParameterMaker::in_small_pieces_of(
    std::int64_t size, const std::function<void(const ElementRange&)>& work) const {
    in_pieces_of(size, [&](const ElementRange& piece) {
        for (std::int64_t begin = piece.begin; begin < piece.end(); begin += small_piece) {
            work(common(piece, {.begin = begin, .size = small_piece}));
        }
    });
}

/// Gives the value and its exact copies their first numbers. `Number` is the type of the copies:
/// what is drawn is rounded to it, and from it to the type of the value.
template <class Number>
void ParameterMaker::draw(Parameter& parameter, const Drawing& drawing) const {
    const ElementRange whole{.begin = 0, .size = parameter.value.size()};
    const ElementRange own = parameter.share.value_or(whole);
    in_small_pieces_of(whole.size, [&](const ElementRange& piece) {
        std::array<Number, small_piece> memory;
        const std::span<Number> numbers(memory.data(), as_index(piece.size));
        if (drawing.shape.padding != MatrixPadding{}) {
            std::ranges::fill(numbers, Number{0});
        }
        drawing.shape.for_each_run(piece, [&](const ElementRange& run, std::int64_t first) {
            draw(drawing,
                 static_cast<std::uint64_t>(first),
                 numbers.subspan(as_index(run.begin - piece.begin), as_index(run.size)));
        });
        if (parameter.divided == nullptr || !parameter.divided->whole.empty()) {
            kernels_.upload(std::span<const Number>(numbers),
                            part_of(View(parameter.value), piece));
        }
        const ElementRange kept = common(piece, own);
        for (Tensor* const copy : {&parameter.master, &parameter.average, &parameter.value_share}) {
            if (!copy->empty() && kept.size > 0) {
                kernels_.upload(
                    std::span<const Number>(numbers).subspan(as_index(kept.begin - piece.begin),
                                                             as_index(kept.size)),
                    part_of(View(*copy), {.begin = kept.begin - own.begin, .size = kept.size}));
            }
        }
    });
}

void ParameterMaker::draw(Parameter& parameter,
                          const RandomStream& stream,
                          Role role,
                          int inputs) const {
    if (!settings_.draws) {
        return;
    }
    const Drawing drawing{
        .stream = stream, .role = role, .inputs = inputs, .shape = parameter.matrix()};
    if (settings_.format.exact() == DType::F64) {
        draw<double>(parameter, drawing);
    } else {
        draw<float>(parameter, drawing);
    }
    if (settings_.first_begins_at != 0 && !parameter.first.empty()) {
        const std::vector<double> equal(small_piece, settings_.first_begins_at);
        in_small_pieces_of(parameter.first.size(), [&](const ElementRange& piece) {
            kernels_.upload(std::span(equal).first(as_index(piece.size)),
                            part_of(View(parameter.first), piece));
        });
    }
}

Parameter ParameterMaker::make(const std::string& name,
                               const PaddedMatrix& shape,
                               const Making& as) {
    Parameter parameter = allocate(name, shape, as.uses);
    parameter.is_weight =
        as.role == Role::Weight || as.role == Role::ResidualWeight || as.role == Role::HeWeight;
    draw(parameter,
         RandomStream(settings_.seed)
             .of(static_cast<std::uint64_t>(settings_.layer))
             .of(static_cast<std::uint64_t>(made_++)),
         as.role,
         as.inputs);
    return parameter;
}

// The table is the first parameter of the model's first unit.
Parameter ParameterMaker::make_copy_of_table(const PaddedMatrix& shape) {
    Parameter parameter = allocate(settings_.table_name, shape, Uses::Two);
    parameter.is_copy = true;
    draw(parameter, RandomStream(settings_.seed).of(0).of(0), Role::Table, 1);
    return parameter;
}

Parameter ParameterMaker::make_state(const std::string& name,
                                     DType type,
                                     std::int64_t columns,
                                     int initial) {
    Parameter state;
    state.name = name;
    state.value = arena_.allocate(type, 1, columns, MemoryKind::Weights);
    kernels_.fill_zero(state.value);
    if (settings_.draws && initial != 0) {
        const std::vector<double> values(as_index(columns), initial);
        kernels_.upload(values, state.value);
    }
    return state;
}

Tensor ParameterMaker::make_constant(std::int64_t rows,
                                     std::int64_t columns,
                                     const std::vector<double>& values) {
    Tensor constant = arena_.allocate(settings_.format.real, rows, columns, MemoryKind::Weights);
    kernels_.upload(values, constant);
    return constant;
}

Tensor ParameterMaker::make_sums(std::int64_t rows, std::int64_t columns) {
    Tensor sums = arena_.allocate(DType::F64, rows, columns, MemoryKind::Weights);
    kernels_.fill_zero(sums);
    return sums;
}

RandomStream ParameterMaker::dropout_stream() {
    constexpr std::uint64_t dropouts = 0x64726f706f7574;  // "dropout": apart from weights and data
    return RandomStream(settings_.seed)
        .of(dropouts)
        .of(static_cast<std::uint64_t>(settings_.layer))
        .of(static_cast<std::uint64_t>(dropouts_++));
}

template <class Number>
void ParameterMaker::draw(const Drawing& drawing,
                          std::uint64_t first,
                          std::span<Number> numbers) const {
    constexpr double gpt_deviation = 0.02;
    const RandomStream& stream = drawing.stream;
    const bool gpt = settings_.style == Style::Gpt;
    const bool transformer = settings_.style == Style::Transformer;
    const auto normal = [&](double deviation) {
        normal_numbers(stream, deviation, first, numbers);
    };
    const auto all = [&](double number) {
        std::ranges::fill(numbers, static_cast<Number>(number));
    };
    const auto uniform = [&] {
        const double limit =
            std::sqrt(transformer ? 6 / static_cast<double>(drawing.shape.whole_rows() +
                                                            drawing.shape.whole_columns())
                                  : drawing.inputs);
        for (Number& each : numbers) {
            const double number = 2 * stream.uniform(first++) - 1;
            each = static_cast<Number>(transformer ? number * limit : number / limit);
        }
    };
    switch (drawing.role) {
        case Role::Weight:
            return gpt ? normal(gpt_deviation) : uniform();
        case Role::ResidualWeight:
            return gpt ? normal(gpt_deviation * settings_.residual_scale) : uniform();
        case Role::Bias:
            return gpt || transformer ? all(0) : uniform();
        case Role::Table:
            return normal(transformer
                              ? 1 / std::sqrt(static_cast<double>(drawing.shape.whole_columns()))
                              : gpt_deviation);
        case Role::HeWeight:
            return normal(std::sqrt(2.0 / drawing.inputs));
        case Role::Ones:
            return all(1);
        case Role::Zeros:
            return all(0);
    }
}

ExecutableLayer::ExecutableLayer(SampleShape input, SampleShape output, NumberFormat format)
    : input_(input), output_(output), format_(format) {}

Bytes ExecutableLayer::matrix_bytes(std::int64_t rows, std::int64_t columns) const {
    return {rows * columns * static_cast<std::int64_t>(size_of(real()))};
}

Bytes ExecutableLayer::exact_bytes(std::int64_t rows, std::int64_t columns) const {
    return {rows * columns * static_cast<std::int64_t>(size_of(format_.exact()))};
}

Bytes ExecutableLayer::input_bytes(int samples) const {
    return input_.token_ids ? Bytes{rows(samples) * static_cast<std::int64_t>(size_of(DType::I32))}
                            : matrix_bytes(rows(samples), input_.width);
}

Bytes ExecutableLayer::output_bytes(int samples) const {
    return matrix_bytes(std::int64_t{samples} * output_.positions, output_.width);
}

Bytes ExecutableLayer::kept_bytes(int /*samples*/) const {
    return {};
}
Bytes ExecutableLayer::workspace_bytes(int /*samples*/) const {
    return {};
}
Bytes ExecutableLayer::split_bytes(int /*samples*/) const {
    return {};
}
Bytes ExecutableLayer::unread_bytes(int samples) const {
    return kept_bytes(samples);
}
void ExecutableLayer::free_unread(Kept& kept) const {
    kept.tensors.clear();
}

Bytes ExecutableLayer::core_bytes(int /*samples*/) const {
    return {};
}
void ExecutableLayer::forget_core(Kept& /*kept*/) const {}
void ExecutableLayer::recompute_core(LayerCall& /*call*/, Kept& /*kept*/) {}

void ExecutableLayer::create_parameters(ParameterMaker& /*maker*/,
                                        const std::string& /*path*/,
                                        bool /*ends_residual*/) {}

template <class Item>
std::vector<Item*> ExecutableLayer::of_inner(std::vector<Item*> (ExecutableLayer::*items)()) {
    std::vector<Item*> all;
    for (ExecutableLayer* const layer : inner_) {
        std::ranges::copy((layer->*items)(), std::back_inserter(all));
    }
    return all;
}

std::vector<Parameter*> ExecutableLayer::parameters() {
    return of_inner(&ExecutableLayer::parameters);
}
bool ExecutableLayer::has_parameters() const {
    return std::ranges::any_of(inner_, &ExecutableLayer::has_parameters);
}

Bytes ExecutableLayer::state_bytes() const {
    Bytes sum;
    for (const ExecutableLayer* const layer : inner_) {
        sum += layer->state_bytes();
    }
    return sum;
}
std::vector<Parameter*> ExecutableLayer::state() {
    return of_inner(&ExecutableLayer::state);
}
std::vector<BatchMoments*> ExecutableLayer::batch_moments() {
    return of_inner(&ExecutableLayer::batch_moments);
}
void ExecutableLayer::forget_batch() {
    std::ranges::for_each(inner_, &ExecutableLayer::forget_batch);
}
void ExecutableLayer::commit_batch(const Kernels& kernels) {
    for (ExecutableLayer* const layer : inner_) {
        layer->commit_batch(kernels);
    }
}

void ExecutableLayer::forward_with_gradient(LayerCall& /*call*/, View /*x*/, Kept& /*kept*/) {
    throw InternalError("a layer without a gradient in its forward");
}

void ExecutableLayer::backward_weight(LayerCall& /*call*/,
                                      Kept& /*kept*/,
                                      ConstView /*x*/,
                                      ConstView /*dy*/) {}

void ExecutableLayer::backward(
    LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) {
    backward_weight(call, kept, x, dy);
    backward_input(call, kept, x, dy, skip, dx);
}

void ExecutableLayer::backward_of(
    ExecutableLayer& inner, bool whole, LayerCall& call, Kept& kept, const Operands& of) {
    if (whole) {
        inner.backward(call, kept, of.x, of.dy, of.skip, of.dx);
    } else {
        inner.backward_input(call, kept, of.x, of.dy, of.skip, of.dx);
    }
}

void PlainLayer::backward_input(
    LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) {
    if (!dx.empty()) {
        input_gradient(call, kept, {.x = x, .dy = dy, .skip = skip, .dx = dx});
    }
    call.done(Op::BackwardInput);
}

JoiningLayer::JoiningLayer(std::vector<SampleShape> inputs, SampleShape output, NumberFormat format)
    : ExecutableLayer(inputs.front(), output, format), inputs_(std::move(inputs)) {}

void JoiningLayer::join_backward_weight(LayerCall& /*call*/,
                                        Kept& /*kept*/,
                                        std::span<const ConstView> /*x*/,
                                        ConstView /*dy*/) {}

void JoiningLayer::join_backward(LayerCall& call,
                                 Kept& kept,
                                 std::span<const ConstView> x,
                                 ConstView dy,
                                 std::span<const InputGradient> dx) {
    join_backward_input(call, kept, x, dy, dx);
    join_backward_weight(call, kept, x, dy);
}

void JoiningLayer::forward(
    LayerCall& /*call*/, ConstView /*x*/, ConstView /*skip*/, View /*y*/, Kept& /*kept*/) {
    throw InternalError("a layer that joins outputs reads several");
}

void JoiningLayer::backward_input(LayerCall& /*call*/,
                                  Kept& /*kept*/,
                                  ConstView /*x*/,
                                  ConstView /*dy*/,
                                  ConstView /*skip*/,
                                  View /*dx*/) {
    throw InternalError("a layer that joins outputs reads several");
}

}  // namespace pipetwin::exec

// SPDX-License-Identifier: Apache-2.0
#include "exec/executor/trained_parameters.h"

#include <algorithm>

#include "core/base/as_index.h"

namespace pipetwin::exec {
namespace {

/// Calls copy(first byte in the tensor, first byte without padding, bytes) for all numbers of a
/// tensor that the model has.
template <class Copy>
void for_each_run(const PaddedMatrix& matrix, DType type, const Copy& copy) {
    const auto bytes = [&](std::int64_t numbers) {
        return static_cast<std::ptrdiff_t>(as_index(numbers) * size_of(type));
    };
    matrix.for_each_run({.begin = 0, .size = matrix.kept_size()},
                        [&](const ElementRange& run, std::int64_t first) {
                            copy(bytes(run.begin), bytes(first), bytes(run.size));
                        });
}

}  // namespace

void TrainedParameters::read_numbers(const Parameter& parameter,
                                     const Tensor& part,
                                     std::vector<std::byte>& bytes) const {
    bytes.resize(as_index(part.bytes().count));
    read(part, bytes);
    if (parameter.padding == MatrixPadding{}) {
        return;
    }
    // Runs move to the front, in their order, so none is overwritten before it is copied.
    const PaddedMatrix matrix = parameter.matrix();
    for_each_run(
        matrix, part.dtype(), [&](std::ptrdiff_t from, std::ptrdiff_t to, std::ptrdiff_t count) {
            std::copy_n(bytes.begin() + from, count, bytes.begin() + to);
        });
    bytes.resize(as_index(matrix.size()) * size_of(part.dtype()));
}

void TrainedParameters::write_numbers(std::span<const std::byte> bytes,
                                      const Parameter& parameter,
                                      Tensor& part) const {
    if (parameter.padding == MatrixPadding{}) {
        write(bytes, part);
        return;
    }
    std::vector<std::byte> padded(as_index(part.bytes().count));
    for_each_run(parameter.matrix(),
                 part.dtype(),
                 [&](std::ptrdiff_t to, std::ptrdiff_t from, std::ptrdiff_t count) {
                     std::copy_n(bytes.begin() + from, count, padded.begin() + to);
                 });
    write(padded, part);
}

void spread_weights(const Schedule& schedule,
                    const TrainedParameters& from,
                    const std::function<std::vector<Parameter*>(int stage)>& parameters_of) {
    std::vector<std::byte> bytes;
    const auto spread = [&](Parameter& original, Parameter& copy) {
        for (Tensor Parameter::*const part : trained_parts) {
            Tensor& to = copy.*part;
            bytes.resize(as_index(to.bytes().count));
            if (!to.empty()) {
                from.read(original.*part, bytes);
                from.write(bytes, to);
            }
        }
    };
    const int pieces = model_stage_count(schedule);
    for (int index = pieces; index < schedule.stage_count(); ++index) {
        const int piece = schedule.weights_of_stage[as_index(index)];
        const std::vector<Parameter*>& originals = from.pieces[as_index(piece)];
        const std::vector<Parameter*> copies = parameters_of(index);
        for (std::size_t i = 0; i < copies.size(); ++i) {
            spread(*originals[i], *copies[i]);
        }
    }
    for (Parameter* const parameter : parameters_of(pieces - 1)) {
        if (parameter->is_copy) {  // of the first piece's first parameter, the token table
            spread(*from.pieces.front().front(), *parameter);
        }
    }
}

}  // namespace pipetwin::exec

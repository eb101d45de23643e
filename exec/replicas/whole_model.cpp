// SPDX-License-Identifier: Apache-2.0
#include "exec/replicas/whole_model.h"

#include <algorithm>
#include <deque>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/plan/plan.h"
#include "exec/device/memory.h"

namespace pipetwin::exec {
namespace {

/// Parameters that have shapes but no contents, in place of those that are elsewhere or in parts.
class WholeModel {
  public:
    WholeModel(const Plan& plan, const std::vector<StageShapes>& shapes, ParameterStore& store)
        : plan_(plan), shapes_(shapes), store_(store) {
        for (const auto& [stage, parameters] : shapes.front()) {
            for (std::size_t index = 0; index < parameters.size(); ++index) {
                add(stage, static_cast<int>(index));
            }
        }
    }

    TrainedParameters trained() {
        TrainedParameters trained;
        for (int piece = 0; piece < model_stage_count(plan_->schedule); ++piece) {
            std::vector<Parameter*>& own = trained.pieces.emplace_back(parameters_of(piece));
            std::erase_if(own, [](const Parameter* parameter) { return parameter->is_copy; });
        }
        trained.read = [this](const Tensor& from, std::span<std::byte> to) { read(from, to); };
        trained.write = [this](std::span<const std::byte> from, Tensor& to) { write(from, to); };
        return trained;
    }

    /// To all that have the same weights.
    void finish() {
        if (was_written_) {
            spread_weights(
                plan_->schedule, trained(), [this](int stage) { return parameters_of(stage); });
        }
    }

  private:
    void add(int stage, int index) {
        const ParameterShape& shape = shape_of({.stage = stage, .parameter = index});
        Parameter& parameter = stand_ins_[stage].emplace_back();
        parameter.name = shape.name;
        parameter.is_copy = shape.is_copy;
        parameter.padding = shape.padding;
        for (std::size_t part = 0; part < trained_parts.size(); ++part) {
            for (int replica = 0; replica < plan_->replicas; ++replica) {
                const ParameterPlace place{.replica = replica,
                                           .stage = stage,
                                           .parameter = index,
                                           .part = static_cast<int>(part)};
                const ParameterShape::Part& there = shape_of(place).parts.at(part);
                if (there.is_there) {  // its share may be empty in others
                    std::byte& address = addresses_.emplace_back();
                    const PaddedMatrix matrix = matrix_of(shape);
                    parameter.*trained_parts.at(part) = Tensor::placed(host_memory(),
                                                                       &address,
                                                                       there.type,
                                                                       matrix.whole_rows(),
                                                                       matrix.whole_columns());
                    places_[&address] = place;
                    break;
                }
            }
        }
    }

    const ParameterShape& shape_of(const ParameterPlace& place) const {
        return shapes_.at(as_index(place.replica * plan_->tensor_parallel + place.device))
            .at(place.stage)
            .at(as_index(place.parameter));
    }

    /// What is kept of a tensor, padding included, and what of the whole it is.
    static PaddedMatrix matrix_of(const ParameterShape& shape) {
        return {.rows = shape.rows, .columns = shape.columns, .cut = shape.cut};
    }

    std::vector<Parameter*> parameters_of(int stage) {
        std::vector<Parameter*> all;
        for (Parameter& parameter : stand_ins_[stage]) {
            all.push_back(&parameter);
        }
        return all;
    }

    /// Calls act(place there, its numbers) for what each replica and device has of the tensor.
    template <class Do>
    void for_each_owner(const Tensor& tensor, const Do& act) const {
        constexpr std::size_t value = 0;
        ParameterPlace place = places_.at(tensor.data());
        for (place.replica = 0; place.replica < plan_->replicas; ++place.replica) {
            for (place.device = 0; place.device < plan_->tensor_parallel; ++place.device) {
                const ParameterShape& shape = shape_of(place);
                ElementRange share{.begin = 0, .size = shape.rows * shape.columns};
                if (shape.share && (place.part != value || shape.divides_value)) {
                    share = *shape.share;
                }
                if (share.size > 0) {
                    act(place, share);
                }
            }
        }
    }

    /// Calls copy(first byte of the part, first byte of the whole, bytes) for all numbers of
    /// `share`.
    template <class Copy>
    void for_each_piece(const ParameterPlace& place,
                        const ElementRange& share,
                        DType type,
                        const Copy& copy) const {
        const std::size_t size = size_of(type);
        matrix_of(shape_of(place))
            .for_each_run(share, [&](const ElementRange& run, std::int64_t first) {
                copy(as_index(run.begin - share.begin) * size,
                     as_index(first) * size,
                     as_index(run.size) * size);
            });
    }

    void read(const Tensor& from, std::span<std::byte> to) {
        std::vector<std::int64_t> known(as_index(plan_->tensor_parallel));  // [device]
        bool is_whole = false;  // one device has all of it
        for_each_owner(from, [&](const ParameterPlace& place, const ElementRange& share) {
            std::int64_t& of_device = known[as_index(place.device)];
            if (share.end() <= of_device || is_whole) {
                return;  // another replica or device has the same
            }
            const std::vector<std::byte> bytes = store_.read(place);
            PIPETWIN_EXPECT(bytes.size() == as_index(share.size) * size_of(from.dtype()),
                            "a tensor has the size that was described");
            for_each_piece(
                place, share, from.dtype(), [&](std::size_t part, std::size_t all, std::size_t n) {
                    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(part),
                                n,
                                to.begin() + static_cast<std::ptrdiff_t>(all));
                });
            of_device = share.end();
            is_whole = !shape_of(place).cut.cuts() && of_device == from.size();
        });
    }

    void write(std::span<const std::byte> from, const Tensor& to) {
        for_each_owner(to, [&](const ParameterPlace& place, const ElementRange& share) {
            std::vector<std::byte> bytes(as_index(share.size) * size_of(to.dtype()));
            for_each_piece(
                place, share, to.dtype(), [&](std::size_t part, std::size_t all, std::size_t n) {
                    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(all),
                                n,
                                bytes.begin() + static_cast<std::ptrdiff_t>(part));
                });
            store_.write(bytes, place);
        });
        was_written_ = true;
    }

    const Plan& plan_;
    const std::vector<StageShapes>& shapes_;
    ParameterStore& store_;
    std::map<int, std::deque<Parameter>> stand_ins_;  ///< by stage
    std::deque<std::byte> addresses_;                 ///< one for each of their tensors
    std::map<const void*, ParameterPlace> places_;    ///< by address
    bool was_written_ = false;
};

}  // namespace

namespace {

/// One of trained_parts, or what this replica has of it.
Tensor& part_of_parameter(Parameter& parameter, std::size_t part) {
    Tensor Parameter::*const tensor = trained_parts.at(part);
    return tensor == &Parameter::value ? parameter.kept_value() : parameter.*tensor;
}

}  // namespace

StageShapes stage_shapes(Executor& executor) {
    StageShapes shapes;
    for (int stage = 0; stage < executor.plan().stage_count(); ++stage) {
        if (!executor.has_stage(stage)) {
            continue;
        }
        for (Parameter* const parameter : executor.trained_of_stage(stage)) {
            ParameterShape& shape = shapes[stage].emplace_back();
            shape.name = parameter->name;
            shape.is_copy = parameter->is_copy;
            shape.rows = parameter->value.rows();
            shape.columns = parameter->value.columns();
            shape.padding = parameter->padding;
            shape.cut = parameter->cut;
            shape.share = parameter->share;
            shape.divides_value = parameter->divides_value();
            for (std::size_t part = 0; part < trained_parts.size(); ++part) {
                const Tensor& tensor = part_of_parameter(*parameter, part);
                shape.parts.at(part) = {.is_there = !tensor.empty(), .type = tensor.dtype()};
            }
        }
    }
    return shapes;
}

void put(ByteWriter& message, const StageShapes& shapes) {
    message.put(shapes.size());
    for (const auto& [stage, parameters] : shapes) {
        message.put(stage).put(parameters.size());
        for (const ParameterShape& shape : parameters) {
            message.put_text(shape.name).put(shape.is_copy).put(shape.rows).put(shape.columns);
            message.put(shape.padding).put(shape.cut);
            message.put(shape.share.has_value()).put(shape.share.value_or(ElementRange{}));
            message.put(shape.divides_value);
            message.put(shape.parts);
        }
    }
}

StageShapes get_stage_shapes(ByteReader& message) {
    StageShapes shapes;
    for (auto stages = message.get<std::size_t>(); stages > 0; --stages) {
        std::vector<ParameterShape>& parameters = shapes[message.get<int>()];
        for (auto count = message.get<std::size_t>(); count > 0; --count) {
            ParameterShape& shape = parameters.emplace_back();
            shape.name = message.get_text();
            shape.is_copy = message.get<bool>();
            shape.rows = message.get<std::int64_t>();
            shape.columns = message.get<std::int64_t>();
            shape.padding = message.get<MatrixPadding>();
            shape.cut = message.get<MatrixCut>();
            const bool has_share = message.get<bool>();
            const auto share = message.get<ElementRange>();
            if (has_share) {
                shape.share = share;
            }
            shape.divides_value = message.get<bool>();
            shape.parts = message.get<decltype(shape.parts)>();
        }
    }
    return shapes;
}

Tensor& tensor_at(Executor& executor, const ParameterPlace& place) {
    Parameter* const parameter = executor.trained_of_stage(place.stage)[as_index(place.parameter)];
    return part_of_parameter(*parameter, as_index(place.part));
}

std::vector<std::byte> read_tensor(Executor& executor, const ParameterPlace& place) {
    const Tensor& tensor = tensor_at(executor, place);
    std::vector<std::byte> bytes(as_index(tensor.bytes().count));
    executor.reader()(tensor, bytes);
    return bytes;
}

void write_tensor(std::span<const std::byte> bytes,
                  Executor& executor,
                  const ParameterPlace& place) {
    executor.writer()(bytes, tensor_at(executor, place));
}

void gather_parameters(const Plan& plan,
                       const std::vector<StageShapes>& shapes,
                       ParameterStore& store,
                       const std::function<void(const TrainedParameters&)>& use) {
    WholeModel model(plan, shapes, store);
    use(model.trained());
    model.finish();
}

}  // namespace pipetwin::exec

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
                const TensorPlace place{.replica = replica,
                                        .stage = stage,
                                        .parameter = index,
                                        .part = static_cast<int>(part)};
                const ParameterShape::Part& there = shape_of(place).parts.at(part);
                if (there.is_there) {  // its share may be empty in others
                    std::byte& address = addresses_.emplace_back();
                    parameter.*trained_parts.at(part) = Tensor::placed(
                        host_memory(), &address, there.type, shape.rows, shape.columns);
                    places_[&address] = place;
                    break;
                }
            }
        }
    }

    const ParameterShape& shape_of(const TensorPlace& place) const {
        return shapes_.at(as_index(place.replica)).at(place.stage).at(as_index(place.parameter));
    }

    std::vector<Parameter*> parameters_of(int stage) {
        std::vector<Parameter*> all;
        for (Parameter& parameter : stand_ins_[stage]) {
            all.push_back(&parameter);
        }
        return all;
    }

    /// Calls act(place in that replica, first byte, bytes) for what each replica has of the tensor.
    template <class Do>
    void for_each_replica(const Tensor& tensor, const Do& act) const {
        constexpr std::size_t value = 0;
        TensorPlace place = places_.at(tensor.data());
        for (place.replica = 0; place.replica < plan_->replicas; ++place.replica) {
            ElementRange share{.begin = 0, .size = tensor.size()};
            if (const auto& own = shape_of(place).share; own && place.part != value) {
                share = *own;
            }
            const std::size_t size = size_of(tensor.dtype());
            if (share.size > 0) {
                act(place,
                    as_index(share.begin) * size,
                    static_cast<std::size_t>(share.size) * size);
            }
        }
    }

    void read(const Tensor& from, std::span<std::byte> to) {
        std::size_t known = 0;
        for_each_replica(from, [&](const TensorPlace& place, std::size_t begin, std::size_t size) {
            if (begin + size <= known) {
                return;  // every replica has all of it
            }
            const std::vector<std::byte> bytes = store_.read(place);
            PIPETWIN_EXPECT(bytes.size() == size, "a tensor has the size that was described");
            std::ranges::copy(bytes, to.begin() + static_cast<std::ptrdiff_t>(begin));
            known = begin + size;
        });
        PIPETWIN_EXPECT(known == to.size(), "the replicas have all of a tensor between them");
    }

    void write(std::span<const std::byte> from, const Tensor& to) {
        for_each_replica(to, [&](const TensorPlace& place, std::size_t begin, std::size_t size) {
            store_.write(from.subspan(begin, size), place);
        });
        was_written_ = true;
    }

    const Plan& plan_;
    const std::vector<StageShapes>& shapes_;
    ParameterStore& store_;
    std::map<int, std::deque<Parameter>> stand_ins_;  ///< by stage
    std::deque<std::byte> addresses_;                 ///< one for each of their tensors
    std::map<const void*, TensorPlace> places_;       ///< by address
    bool was_written_ = false;
};

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
            shape.share = parameter->share;
            for (std::size_t part = 0; part < trained_parts.size(); ++part) {
                const Tensor& tensor = parameter->*trained_parts.at(part);
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
            message.put(shape.padding);
            message.put(shape.share.has_value()).put(shape.share.value_or(ElementRange{}));
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
            const bool has_share = message.get<bool>();
            const auto share = message.get<ElementRange>();
            if (has_share) {
                shape.share = share;
            }
            shape.parts = message.get<decltype(shape.parts)>();
        }
    }
    return shapes;
}

Tensor& tensor_at(Executor& executor, const TensorPlace& place) {
    Parameter* const parameter = executor.trained_of_stage(place.stage)[as_index(place.parameter)];
    return parameter->*trained_parts.at(as_index(place.part));
}

std::vector<std::byte> read_tensor(Executor& executor, const TensorPlace& place) {
    const Tensor& tensor = tensor_at(executor, place);
    std::vector<std::byte> bytes(as_index(tensor.bytes().count));
    executor.reader()(tensor, bytes);
    return bytes;
}

void write_tensor(std::span<const std::byte> bytes, Executor& executor, const TensorPlace& place) {
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

#include "exec/remote_parameters.h"

#include <deque>
#include <exception>
#include <map>
#include <utility>

#include "core/error.h"
#include "exec/memory.h"
#include "exec/transport/byte_message.h"

namespace pipetwin::exec {
namespace {

enum class Request { Read, Write, Done, Failed };

/// One tensor of a stage's parameters.
struct TensorPlace {
    int stage = 0;
    int parameter = 0;
    int part = 0;  ///< of trained_parts
};

/// What process 0 has in place of a tensor of another process.
struct Shape {
    bool is_there = false;
    DType type{};
    std::int64_t rows = 0;
    std::int64_t columns = 0;
};

Tensor& tensor_at(Executor& executor, const TensorPlace& place) {
    Parameter* const parameter =
        executor.parameters_of_stage(place.stage)[static_cast<std::size_t>(place.parameter)];
    return parameter->*trained_parts.at(static_cast<std::size_t>(place.part));
}

/// The stages of this process, with names and shapes.
ByteWriter description(Executor& executor) {
    ByteWriter text;
    for (int stage = 0; stage < executor.plan().stage_count(); ++stage) {
        if (!executor.has_stage(stage)) {
            continue;
        }
        const std::vector<Parameter*> parameters = executor.parameters_of_stage(stage);
        text.put(stage).put(parameters.size());
        for (Parameter* const parameter : parameters) {
            text.put_text(parameter->name).put(parameter->is_copy);
            for (Tensor Parameter::*const part : trained_parts) {
                const Tensor& tensor = parameter->*part;
                text.put(Shape{.is_there = !tensor.empty(),
                               .type = tensor.dtype(),
                               .rows = tensor.rows(),
                               .columns = tensor.columns()});
            }
        }
    }
    return text;
}

/// Of process 0: its own parameters, and stand-ins for those of the other ranks, which have shapes
/// but no contents.
class WholeModel {
  public:
    WholeModel(World& world, Executor& executor)
        : world_(world), executor_(executor), plan_(executor.plan()) {
        const auto all = world.all_gather(description(executor).bytes());
        for (int rank = 0; rank < plan_.rank_count(); ++rank) {
            if (rank != 0) {
                add(all[static_cast<std::size_t>(rank)]);
            }
        }
    }

    TrainedParameters trained() {
        TrainedParameters trained;
        for (int piece = 0; piece < piece_count(plan_->schedule); ++piece) {
            std::vector<Parameter*>& own = trained.pieces.emplace_back(parameters_of(piece));
            std::erase_if(own, [](const Parameter* parameter) { return parameter->is_copy; });
        }
        const TrainedParameters here = own_access();
        trained.read = [this, here](const Tensor& from, std::span<std::byte> to) {
            const auto place = places_.find(from.data());
            if (place == places_.end()) {
                return here.read(from, to);
            }
            ask(owner(place->second, 0), Request::Read, place->second);
            const std::vector<std::byte> bytes = world_.receive(owner(place->second, 0));
            PIPETWIN_EXPECT(bytes.size() == to.size(), "a tensor has the size that was described");
            std::ranges::copy(bytes, to.begin());
        };
        trained.write = [this, here](std::span<const std::byte> from, Tensor& to) {
            const TensorPlace place = place_of(to);
            for (int replica = 0; replica < plan_->replicas; ++replica) {
                const int process = owner(place, replica);
                if (process == world_.index()) {
                    here.write(from, to);
                } else {
                    ask(process, Request::Write, place);
                    world_.send(process, from);
                }
            }
            was_written_ = true;
        };
        return trained;
    }

    /// Nobody is asked any more.
    void end(const Error* failure) {
        if (was_written_ && failure == nullptr) {
            spread_weights(
                plan_->schedule, trained(), [this](int stage) { return parameters_of(stage); });
        }
        for (int process = 1; process < world_.size(); ++process) {
            ByteWriter message;
            message.put(failure == nullptr ? Request::Done : Request::Failed).put(TensorPlace{});
            if (failure != nullptr) {
                message.put(failure->kind()).put_text(failure->place());
                message.put_text(failure->text()).put_text(failure->hint());
            }
            world_.send(process, message.bytes());
        }
    }

  private:
    void add(std::span<const std::byte> described) {
        for (ByteReader text(described); !text.at_end();) {
            const int stage = text.get<int>();
            const auto count = text.get<std::size_t>();
            std::deque<Parameter>& stand_ins = stand_ins_[stage];
            for (std::size_t i = 0; i < count; ++i) {
                Parameter& parameter = stand_ins.emplace_back();
                parameter.name = text.get_text();
                parameter.is_copy = text.get<bool>();
                for (std::size_t part = 0; part < trained_parts.size(); ++part) {
                    const auto shape = text.get<Shape>();
                    if (shape.is_there) {
                        std::byte& address = addresses_.emplace_back();
                        parameter.*trained_parts.at(part) = Tensor::placed(
                            host_memory(), &address, shape.type, shape.rows, shape.columns);
                        places_[&address] = {.stage = stage,
                                             .parameter = static_cast<int>(i),
                                             .part = static_cast<int>(part)};
                    }
                }
            }
        }
    }

    std::vector<Parameter*> parameters_of(int stage) {
        if (executor_.has_stage(stage)) {
            return executor_.parameters_of_stage(stage);
        }
        std::vector<Parameter*> all;
        for (Parameter& parameter : stand_ins_.at(stage)) {
            all.push_back(&parameter);
        }
        return all;
    }

    /// Reads and writes tensors of this process.
    TrainedParameters own_access() const {
        TrainedParameters access;
        access.read = executor_.reader();
        access.write = executor_.writer();
        return access;
    }

    TensorPlace place_of(const Tensor& tensor) const {
        if (const auto known = places_.find(tensor.data()); known != places_.end()) {
            return known->second;
        }
        for (int stage = 0; stage < plan_.stage_count(); ++stage) {
            if (!executor_.has_stage(stage)) {
                continue;
            }
            const std::vector<Parameter*> parameters = executor_.parameters_of_stage(stage);
            for (std::size_t i = 0; i < parameters.size(); ++i) {
                for (std::size_t part = 0; part < trained_parts.size(); ++part) {
                    if (&(parameters[i]->*trained_parts.at(part)) == &tensor) {
                        return {.stage = stage,
                                .parameter = static_cast<int>(i),
                                .part = static_cast<int>(part)};
                    }
                }
            }
        }
        throw InternalError("a tensor of this training");
    }

    int owner(const TensorPlace& place, int replica) const {
        return replica * plan_.rank_count() +
               plan_->schedule.rank_of_stage[static_cast<std::size_t>(place.stage)];
    }

    void ask(int process, Request request, const TensorPlace& place) {
        world_.send(process, ByteWriter().put(request).put(place).bytes());
    }

    World& world_;
    Executor& executor_;
    const Plan& plan_;
    std::map<int, std::deque<Parameter>> stand_ins_;  ///< by stage
    std::deque<std::byte> addresses_;                 ///< one for each of their tensors
    std::map<const void*, TensorPlace> places_;       ///< by address
    bool was_written_ = false;
};

/// Of every other process.
void serve(World& world, Executor& executor) {
    world.all_gather(description(executor).bytes());
    const auto read = executor.reader();
    const auto write = executor.writer();
    while (true) {
        const std::vector<std::byte> message = world.receive(0);
        ByteReader text(message);
        const auto request = text.get<Request>();
        const auto place = text.get<TensorPlace>();
        if (request == Request::Done) {
            return;
        }
        if (request == Request::Failed) {
            const auto kind = text.get<ErrorKind>();
            const std::string where = text.get_text();
            const std::string what = text.get_text();
            throw Error(kind, where, what, text.get_text());
        }
        Tensor& tensor = tensor_at(executor, place);
        if (request == Request::Read) {
            std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes().count));
            read(tensor, bytes);
            world.send(0, bytes);
        } else {
            write(world.receive(0), tensor);
        }
    }
}

}  // namespace

void with_all_parameters(World& world,
                         Executor& executor,
                         const std::function<void(const TrainedParameters&)>& use) {
    if (world.index() != 0) {
        return serve(world, executor);
    }
    WholeModel model(world, executor);
    try {
        use(model.trained());
    } catch (const Error& error) {
        model.end(&error);
        throw;
    } catch (const std::exception& exception) {
        const Error error(ErrorKind::Other, "", exception.what());
        model.end(&error);
        throw;
    }
    model.end(nullptr);
}

}  // namespace pipetwin::exec

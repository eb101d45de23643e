#include "exec/replicas/remote_parameters.h"

#include <exception>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "exec/replicas/whole_model.h"
#include "exec/transport/byte_message.h"

namespace pipetwin::exec {
namespace {

enum class Request { Read, Write, Done, Failed };

/// Of process 0: its own executor, and the other processes.
class Processes final : public ParameterHolders {
  public:
    Processes(World& world, Executor& executor) : world_(world), executor_(executor) {}

    std::vector<std::byte> read(const TensorPlace& from) override {
        const int process = owner(from);
        if (process == world_.index()) {
            return read_tensor(executor_, from);
        }
        ask(process, Request::Read, from);
        return world_.receive(process);
    }

    void write(std::span<const std::byte> bytes, const TensorPlace& to) override {
        const int process = owner(to);
        if (process == world_.index()) {
            return write_tensor(bytes, executor_, to);
        }
        ask(process, Request::Write, to);
        world_.send(process, bytes);
    }

    /// Nobody is asked any more.
    void end(const Error* failure) {
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
    int owner(const TensorPlace& place) const {
        const Plan& plan = executor_.plan();
        return place.replica * plan.rank_count() +
               plan->schedule.rank_of_stage[as_index(place.stage)];
    }

    void ask(int process, Request request, const TensorPlace& place) {
        world_.send(process, ByteWriter().put(request).put(place).bytes());
    }

    World& world_;
    Executor& executor_;
};

/// [replica], from what each process tells of its rank. To be called by all processes.
std::vector<StageShapes> shapes_of_all(World& world, Executor& executor) {
    ByteWriter mine;
    put(mine, stage_shapes(executor));
    const Plan& plan = executor.plan();
    std::vector<StageShapes> shapes(as_index(plan->replicas));
    const auto all = world.all_gather(mine.bytes());
    for (std::size_t process = 0; process < all.size(); ++process) {
        ByteReader message(all[process]);
        shapes[process / as_index(plan.rank_count())].merge(get_stage_shapes(message));
    }
    return shapes;
}

/// Of every other process.
void serve(World& world, Executor& executor) {
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
        if (request == Request::Read) {
            world.send(0, read_tensor(executor, place));
        } else {
            write_tensor(world.receive(0), executor, place);
        }
    }
}

}  // namespace

void with_all_parameters(World& world,
                         Executor& executor,
                         const std::function<void(const TrainedParameters&)>& use) {
    const std::vector<StageShapes> shapes = shapes_of_all(world, executor);
    if (world.index() != 0) {
        return serve(world, executor);
    }
    Processes processes(world, executor);
    try {
        with_whole_model(executor.plan(), shapes, processes, use);
    } catch (const Error& error) {
        processes.end(&error);
        throw;
    } catch (const std::exception& exception) {
        const Error error(ErrorKind::Other, "", exception.what());
        processes.end(&error);
        throw;
    }
    processes.end(nullptr);
}

}  // namespace pipetwin::exec

// SPDX-License-Identifier: Apache-2.0
#include "exec/replicas/remote_parameters.h"

#include <exception>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/plan/plan.h"
#include "exec/replicas/whole_model.h"
#include "exec/transport/byte_message.h"
#include "exec/transport/channel.h"

namespace pipetwin::exec {
namespace {

enum class Request { Read, Write, Done, Failed };

const Plan& plan_of(const ExecutorsHere& here) {
    return here.begin()->second->plan();
}

/// The parameters as process 0 reaches them: in its own executors and in other processes.
class Processes final : public ParameterStore {
  public:
    Processes(ProcessGroup& group, const ExecutorsHere& here) : group_(group), here_(here) {}

    std::vector<std::byte> read(const ParameterPlace& from) override {
        const int process = owner(from);
        if (process == group_.index()) {
            return read_tensor(*here_.at({from.replica, from.device}), from);
        }
        ask(process, Request::Read, from);
        return group_.receive(process);
    }

    void write(std::span<const std::byte> bytes, const ParameterPlace& to) override {
        const int process = owner(to);
        if (process == group_.index()) {
            return write_tensor(bytes, *here_.at({to.replica, to.device}), to);
        }
        ask(process, Request::Write, to);
        group_.send(process, bytes);
    }

    /// Says to all other processes that they are asked for nothing more.
    void end(const Error* failure) {
        for (int process = 1; process < group_.size(); ++process) {
            ByteWriter message;
            message.put(failure == nullptr ? Request::Done : Request::Failed).put(ParameterPlace{});
            if (failure != nullptr) {
                message.put(failure->kind()).put_text(failure->place());
                message.put_text(failure->text()).put_text(failure->hint());
            }
            group_.send(process, message.bytes());
        }
    }

  private:
    int owner(const ParameterPlace& place) const {
        const Plan& plan = plan_of(here_);
        return process_of(group_,
                          plan,
                          {.replica = place.replica,
                           .rank = plan->schedule.rank_of_stage[as_index(place.stage)],
                           .device = place.device});
    }

    void ask(int process, Request request, const ParameterPlace& place) {
        group_.send(process, ByteWriter().put(request).put(place).bytes());
    }

    ProcessGroup& group_;
    const ExecutorsHere& here_;
};

/// The shapes of all stages, [replica x devices + device], from what each process sends of its
/// ranks. Collective.
std::vector<StageShapes> shapes_of_all(ProcessGroup& group, const ExecutorsHere& here) {
    ByteWriter mine;
    const int devices = plan_of(here)->tensor_parallel;
    for (const auto& [place, executor] : here) {
        const auto& [replica, device] = place;
        mine.put(replica * devices + device);
        put(mine, stage_shapes(*executor));
    }
    std::vector<StageShapes> shapes(as_index(plan_of(here)->replicas * devices));
    for (const auto& theirs : group.all_gather(mine.bytes())) {
        for (ByteReader message(theirs); !message.at_end();) {
            const int executor = message.get<int>();
            shapes[as_index(executor)].merge(get_stage_shapes(message));
        }
    }
    return shapes;
}

/// Answers what process 0 asks, in every other process, until it has no more to ask.
void serve(ProcessGroup& group, const ExecutorsHere& here) {
    while (true) {
        const std::vector<std::byte> message = group.receive(0);
        ByteReader text(message);
        const auto request = text.get<Request>();
        const auto place = text.get<ParameterPlace>();
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
            group.send(0, read_tensor(*here.at({place.replica, place.device}), place));
        } else {
            write_tensor(group.receive(0), *here.at({place.replica, place.device}), place);
        }
    }
}

}  // namespace

void with_all_parameters(ProcessGroup& group,
                         const ExecutorsHere& here,
                         const std::function<void(const TrainedParameters&)>& use) {
    const std::vector<StageShapes> shapes = shapes_of_all(group, here);
    if (group.index() != 0) {
        return serve(group, here);
    }
    Processes processes(group, here);
    try {
        gather_parameters(plan_of(here), shapes, processes, use);
    } catch (const ChannelClosed&) {
        throw;  // every process learns by itself which one was lost
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

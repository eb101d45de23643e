// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <exception>
#include <future>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/model.h"
#include "exec/device/device_failure.h"
#include "exec/device/kernels.h"
#include "exec/executor/executor_impl.h"

namespace pipetwin::exec {
namespace {

std::string message_of(const std::exception_ptr& error) {
    try {
        std::rethrow_exception(error);
    } catch (const std::exception& exception) {
        return exception.what();
    } catch (...) {
        return "an exception that is no std::exception";
    }
}

}  // namespace

void Executor::Impl::refuse_lost_device() const {
    if (lost_device) {
        throw Error(ErrorKind::WorkerFailed,
                    place_of(*lost_device),
                    "the GPU failed there, and this program cannot use it any more",
                    "start the run again");
    }
}

std::string Executor::Impl::text_of(const GroupWait& wait) const {
    const bool has_layer = wait.layer >= 0 && wait.layer < model.layer_count();
    const auto size_of = [&] {
        switch (wait.kind) {
            case GroupKind::Devices:
                break;
            case GroupKind::Neighbours:
                return model.layer(wait.layer).spec.cut.sharers;
            case GroupKind::Replicas:
                return plan->gradient_shards;
            case GroupKind::GroupsOfReplicas:
                return plan->replicas / plan->gradient_shards;
        }
        return plan->tensor_parallel;
    };
    const std::string layer =
        has_layer ? fmt::format(" of layer '{}'", model.layer(wait.layer).spec.name) : "";
    return fmt::format("the {}{} among {}: {} {} has not come",
                       to_string(wait.call),
                       layer,
                       group_text(wait.kind, wait.member, size_of(), plan->replicas),
                       wait.kind == GroupKind::Devices || wait.kind == GroupKind::Neighbours
                           ? "device"
                           : "replica",
                       wait.member);
}

std::string Executor::Impl::group_wait_of(int rank) const {
    std::string text;
    for_each_group([&](std::size_t stage, const Group& group) {
        const std::optional<GroupWait> wait = group.waits_for();
        if (wait && plan->schedule.rank_of_stage[stage] == rank) {
            text = text_of(*wait);
        }
    });
    return text;
}

std::vector<std::string> Executor::broken_waits() const {
    std::vector<std::string> all;
    impl_->for_each_group([&](std::size_t stage, const Group& group) {
        if (const std::optional<GroupWait>& wait = group.broken_wait()) {
            const TensorPlace& tensor = impl_->options.tensor;
            all.push_back(
                fmt::format("rank {}{}{}: waited in {}",
                            impl_->plan->schedule.rank_of_stage[stage],
                            impl_->plan->replicas > 1
                                ? fmt::format(" of replica {}", impl_->options.replica.index)
                                : "",
                            tensor.devices > 1 ? fmt::format(", device {}", tensor.device) : "",
                            impl_->text_of(*wait)));
        }
    });
    return all;
}

/// A rank that hangs has failed, but it does not know.
void Executor::Impl::stop_all(const Hang& hang) {
    const std::size_t rank = as_index(hang.rank);
    int place = -1;
    std::optional<Action> action;
    if (hang.cell) {
        place = order[rank][as_index(*hang.cell)];
        action = plan->schedule.ranks[rank][as_index(*hang.cell)];
    }
    failures.report(place,
                    hang.rank,
                    action,
                    std::make_exception_ptr(
                        Error(ErrorKind::Hang,
                              "",
                              hang.text,
                              "look at what that rank's device does; if it is only slow, measure "
                              "its costs again")));
    for (Worker* const worker : workers_here()) {
        worker->close_channels();
    }
}

/// Workers that did not come back from the last step.
void Executor::Impl::await_stragglers() {
    if (!has_stragglers) {
        return;
    }
    if (!threads.wait(options.hang_limits.grace)) {
        throw Error(
            ErrorKind::Hang,
            last_failure ? place_of(*last_failure) : "",
            fmt::format("rank {} has not come back yet", fmt::join(threads.busy(), ", rank ")),
            "start the run again");
    }
    has_stragglers = false;
    clean_up();
}

void Executor::Impl::reopen_channels() {
    for (std::vector<Edge>* direction : {&edges.forward, &edges.backward}) {
        for (Edge& edge : *direction) {
            if (edge.channel) {
                edge.channel->reopen();
            }
        }
    }
    for (const Reduction& reduction : edges.reductions) {
        if (reduction.channel) {
            reduction.channel->reopen();
        }
    }
}

void Executor::Impl::clean_up() {
    if (group().is_alone()) {
        reopen_channels();
    } else {
        is_over = true;  // what is under way between processes cannot be called back
    }
    for (Worker* const worker : workers_here()) {
        worker->abandon();
    }
}

void Executor::Impl::clean_up_and_throw() {
    const StepFailures::One failure = failures.first();
    last_failure = Failure{
        .rank = failure.rank,
        .device = options.tensor.devices > 1 ? std::optional(options.tensor.device) : std::nullopt,
        .step = input.step,
        .action = failure.action,
        .message = message_of(failure.error)};
    if (failures.any_for_good()) {
        lost_device = last_failure;
    }
    if (!has_stragglers) {
        clean_up();
    }
    throw_failure(failure);
}

void Executor::Impl::throw_failure(const StepFailures::One& failure) {
    const std::string place = place_of(*last_failure);
    try {
        std::rethrow_exception(failure.error);
    } catch (const DeviceFailure& error) {
        throw Error(error.kind(), place, error.text() + failures.others_text(), error.hint());
    } catch (const Error& error) {
        if (error.kind() == ErrorKind::NotFinite && failure.action &&
            failure.action->op == Op::Forward && !has_stragglers && here.size() == workers.size() &&
            options.tensor.devices == 1 && plan->weight_shards == 1) {  // not several together
            throw error.with_text(error.text() + first_not_finite(*failure.action)).at(place);
        }
        throw error.at(place);
    }
}

/// Runs a forward of a stage once more, with the messages that earlier stages have left.
void Executor::Impl::look_through(int stage,
                                  int micro_batch,
                                  std::map<std::pair<int, int>, Tensor>& messages) {
    Worker& worker = worker_of(stage);
    Stage& at_work = worker.stage(stage);
    const MicroBatch& data = input.data[as_index(micro_batch)];
    const auto take = [&](int from) {
        Tensor tensor = std::move(messages[{from, stage}]);
        if (!tensor.empty()) {
            tensor.detach();
            tensor = worker.adopt(std::move(tensor));
        }
        return tensor;
    };
    std::vector<Tensor> received;
    for (const int from : worker.senders(stage)) {
        received.push_back(take(from));
    }
    std::vector<Tensor> sent(worker.receivers(stage).size());
    if (input.evaluation) {
        at_work.evaluate(micro_batch, received, data, sent);
    } else {
        at_work.forward(micro_batch, received, data, false, sent);
    }
    for (std::size_t index = 0; index < sent.size(); ++index) {
        messages[{stage, worker.receivers(stage)[index]}] = std::move(sent[index]);
    }
}

/// Runs the micro-batch through all stages once more, now looking at every layer's output.
std::string Executor::Impl::first_not_finite(const Action& forward) {
    const int micro_batch = forward.micro_batch;
    const int first = first_stage_of_pipeline(plan->schedule, forward.stage);
    const int end = first + model_stage_count(plan->schedule);
    std::optional<int> found;
    const Kernels* kernels = nullptr;  // of the stage at work
    const auto watch = [&](int layer, const Tensor& output) {
        const auto is_finite = [](double value) { return std::isfinite(value); };
        if (!found && !std::ranges::all_of(exec::values(*kernels, output), is_finite)) {
            found = layer;
        }
    };
    std::async(std::launch::async,
               [&] {  // a thread of its own: the device sets it up for computing
                   std::map<std::pair<int, int>, Tensor> messages;  // from and to which stage
                   for (int stage = first; stage < end && !found; ++stage) {
                       Worker& worker = worker_of(stage);
                       worker.device().enter_thread();
                       kernels = &worker.device().kernels();
                       worker.stage(stage).watch_outputs(watch);
                       look_through(stage, micro_batch, messages);
                       worker.stage(stage).watch_outputs({});
                       worker.device().leave_thread();
                   }
               })
        .get();
    for (Worker* const worker : workers_here()) {
        worker->abandon();
    }
    const int layer = found.value_or(model.layer_count() - 1);
    return fmt::format("; the first output that is not finite is that of layer '{}' in stage {}",
                       model.layer(layer).spec.name,
                       first + plan->partition->stage_of_layer(layer));
}

std::string place_of(const Failure& failure) {
    return fmt::format("rank {}, {}step {}, {}",
                       failure.rank,
                       failure.device ? fmt::format("device {}, ", *failure.device) : "",
                       failure.step,
                       failure.action ? in_full(*failure.action) : "before its first action");
}

}  // namespace pipetwin::exec

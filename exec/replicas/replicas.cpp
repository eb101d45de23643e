// SPDX-License-Identifier: Apache-2.0
#include "exec/replicas/replicas.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <utility>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/plan/plan.h"
#include "exec/base/cores.h"
#include "exec/replicas/remote_parameters.h"

namespace pipetwin::exec {
namespace {

/// Each of several executors has cores of its own, where there are enough for all.
void share_out_cores(ProcessPlace& place,
                     std::size_t ranks,
                     std::size_t executors,
                     std::size_t index) {
    const std::vector<int> cores = place.cores.empty() ? allowed_cores() : place.cores;
    if (cores.size() < ranks * executors) {
        place.shares_cores = true;
        return;
    }
    const auto begin = cores.begin() + static_cast<std::ptrdiff_t>(index * ranks);
    place.cores.assign(begin, begin + static_cast<std::ptrdiff_t>(ranks));
}

}  // namespace

Replicas::Replicas(const Plan& plan, const Model& model, const ExecutorOptions& options)
    : group_(*options.place.group),
      here_(replicas_here(group_, plan)),
      devices_here_(devices_here(group_, plan)),
      devices_(as_index(devices_here_.count)),
      executors_(as_index(here_.count) * devices_),
      stages_(static_cast<std::size_t>(plan.stage_count())),
      lanes_(plan->gradient_shards > 1 ? replica_lane_count : 1),
      others_(executors_ - 1) {
    if (executors_ > 1) {
        for (std::size_t i = 0; i < executors_ * executors_ * stages_ * lanes_; ++i) {
            channels_.push_back(make_local_channel(std::nullopt));
        }
    }
    for (std::size_t index = 0; index < executors_; ++index) {
        pipelines_.push_back(make_executor(plan, model, options, index));
    }
}

std::unique_ptr<Executor> Replicas::make_executor(const Plan& plan,
                                                  const Model& model,
                                                  const ExecutorOptions& options,
                                                  std::size_t index) {
    ExecutorOptions own = options;
    const std::size_t replica = index / devices_;
    const std::size_t device = index % devices_;
    own.replica.index = here_.first + static_cast<int>(replica);
    own.tensor.device = devices_here_.first + static_cast<int>(device);
    own.tensor.devices = plan->tensor_parallel;
    if (index > 0) {  // a clock has the layers of one device
        own.layer_done = {};
        own.action_begun = {};
    }
    if (executors_ > 1) {
        share_out_cores(own.place, static_cast<std::size_t>(plan.rank_count()), executors_, index);
        const auto channel = [this](std::size_t from, std::size_t to, int stage, ReplicaLane lane) {
            const std::size_t pair = (from * executors_ + to) * stages_ + as_index(stage);
            return channels_[pair * lanes_ + static_cast<std::size_t>(lane)].get();
        };
        own.replica.channel = [=, this](int from, int to, int stage, ReplicaLane lane) {
            return channel(
                as_index(from) * devices_ + device, as_index(to) * devices_ + device, stage, lane);
        };
        own.tensor.channel = [=, this](int from, int to, int stage) -> Channel& {
            return *channel(replica * devices_ + as_index(from),
                            replica * devices_ + as_index(to),
                            stage,
                            ReplicaLane::Step);
        };
    }
    return std::make_unique<Executor>(plan, model, std::move(own));
}

/// After a step has failed. Ranks that hung in it may still be inside of channels.
void Replicas::reopen_channels() {
    if (!are_closed_) {
        return;
    }
    for (const auto& pipeline : pipelines_) {
        pipeline->await_stragglers();
    }
    for (const auto& each : channels_) {
        each->reopen();
    }
    are_closed_ = false;
}

/// Calls work(executor) for all at the same time. Throws what the first of those threw that failed
/// by themselves.
template <class Work>
void Replicas::on_all(const Work& work) {
    failed_.reset();
    if (pipelines_.size() == 1) {
        failed_ = 0;
        work(0);
        failed_.reset();
        return;
    }
    reopen_channels();
    std::vector<std::exception_ptr> errors(pipelines_.size());
    std::vector<char> stopped(pipelines_.size());
    const auto guarded = [&](std::size_t replica) {
        try {
            work(replica);
        } catch (const ChannelClosed&) {
            stopped[replica] = 1;  // another one has failed
        } catch (...) {
            errors[replica] = std::current_exception();
            for (const auto& each : channels_) {
                each->close();  // ends the waits for the executor that failed
            }
        }
    };
    others_.run([&](std::size_t index) { guarded(index + 1); });
    guarded(0);
    while (!others_.wait(std::chrono::seconds(1))) {
    }
    const auto first =
        std::ranges::find_if(errors, [](const auto& error) { return error != nullptr; });
    if (first == errors.end()) {
        return;
    }
    are_closed_ = true;
    failed_ = static_cast<std::size_t>(first - errors.begin());
    try {
        std::rethrow_exception(*first);
    } catch (const Error& error) {
        if (error.kind() != ErrorKind::Hang) {
            throw;
        }
        std::string text = error.text();
        for (std::size_t index = 0; index < pipelines_.size(); ++index) {
            if (stopped[index] == 0) {
                continue;  // a worker of it may still be stuck
            }
            for (const std::string& wait : pipelines_[index]->broken_waits()) {
                text += "\n  " + wait;
            }
        }
        throw error.with_text(text);
    }
}

void Replicas::run_step(const Batch& batch, int step, StepResult& result) {
    std::vector<StepResult> of_others(pipelines_.size() - 1);
    on_all([&](std::size_t replica) {
        pipelines_[replica]->run_step(batch, step, replica == 0 ? result : of_others[replica - 1]);
    });
    if (!of_others.empty()) {
        result.timeline.replicas.clear();
    }
    for (const StepResult& other : of_others) {
        result.stolen = std::max(result.stolen, other.stolen);
    }
    for (std::size_t index = devices_; index < executors_; index += devices_) {
        StepResult& other = of_others[index - 1];  // of another replica's first device
        result.loss += other.loss;
        result.accuracy.right += other.accuracy.right;
        const Duration later = other.start - result.start;
        for (auto& row : other.timeline.ranks) {
            for (Span& span : row) {
                span.begin += later;
                span.ready += later;
                span.end += later;
            }
        }
        result.timeline.replicas.push_back(std::move(other.timeline.ranks));
    }
}

Score Replicas::score(const Batch& batch, int step) {
    std::vector<Score> scores(pipelines_.size());
    on_all([&](std::size_t replica) { scores[replica] = pipelines_[replica]->score(batch, step); });
    Score sum = scores.front();
    for (std::size_t index = devices_; index < executors_; index += devices_) {
        sum.loss += scores[index].loss;
        sum.accuracy.right += scores[index].accuracy.right;
    }
    return sum;
}

std::vector<double> Replicas::logits(const Batch& batch, std::span<const int> positions, int step) {
    std::vector<std::vector<double>> parts(pipelines_.size());
    on_all([&](std::size_t replica) {
        parts[replica] = pipelines_[replica]->logits(batch, positions, step);
    });
    std::vector<double> sum = std::move(parts.front());
    for (const std::vector<double>& other : std::span(parts).subspan(1)) {
        std::ranges::transform(sum, other, sum.begin(), std::plus());
    }
    return sum;
}

void Replicas::with_parameters(const std::function<void(const TrainedParameters&)>& use) {
    ExecutorsHere here;
    for (std::size_t index = 0; index < executors_; ++index) {
        const int replica = here_.first + static_cast<int>(index / devices_);
        here[{replica, devices_here_.first + static_cast<int>(index % devices_)}] =
            pipelines_[index].get();
    }
    with_all_parameters(group_, here, use);
}

std::optional<Failure> Replicas::last_failure() const {
    return failed_ ? pipelines_[*failed_]->last_failure() : std::nullopt;
}

std::vector<std::string> Replicas::notes() const {
    std::vector<std::string> all;
    for (const auto& pipeline : pipelines_) {
        for (const std::string& note : pipeline->notes()) {
            if (std::ranges::find(all, note) == all.end()) {
                all.push_back(note);
            }
        }
    }
    return all;
}

}  // namespace pipetwin::exec

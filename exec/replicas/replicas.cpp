// SPDX-License-Identifier: Apache-2.0
#include "exec/replicas/replicas.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <utility>

#include "core/base/as_index.h"
#include "core/plan/plan.h"
#include "exec/base/cores.h"
#include "exec/replicas/remote_parameters.h"

namespace pipetwin::exec {
namespace {

/// Each of several pipelines has cores of its own, where there are enough for all.
void share_out_cores(ProcessPlace& place, const Plan& plan, std::size_t replica) {
    const std::vector<int> cores = place.cores.empty() ? allowed_cores() : place.cores;
    const auto ranks = static_cast<std::size_t>(plan.rank_count());
    if (cores.size() < ranks * as_index(plan->replicas)) {
        place.shares_cores = true;
        return;
    }
    const auto begin = cores.begin() + static_cast<std::ptrdiff_t>(replica * ranks);
    place.cores.assign(begin, begin + static_cast<std::ptrdiff_t>(ranks));
}

}  // namespace

Replicas::Replicas(const Plan& plan, const Model& model, const ExecutorOptions& options)
    : group_(*options.place.group),
      here_(replicas_here(group_, plan)),
      replicas_(as_index(here_.count)),
      stages_(static_cast<std::size_t>(plan.stage_count())),
      others_(replicas_ - 1) {
    if (replicas_ == 1) {
        ExecutorOptions own = options;
        own.replica.index = here_.first;
        pipelines_.push_back(std::make_unique<Executor>(plan, model, std::move(own)));
        return;
    }
    for (std::size_t i = 0; i < replicas_ * replicas_ * stages_; ++i) {
        channels_.push_back(make_local_channel(std::nullopt));
    }
    for (std::size_t replica = 0; replica < replicas_; ++replica) {
        ExecutorOptions own = options;
        share_out_cores(own.place, plan, replica);
        own.replica.index = static_cast<int>(replica);
        own.replica.channel = [this](int from, int to, int stage) {
            return channel(from, to, stage);
        };
        pipelines_.push_back(std::make_unique<Executor>(plan, model, std::move(own)));
    }
}

Channel* Replicas::channel(int from, int to, int stage) {
    const std::size_t pair = as_index(from) * replicas_ + as_index(to);
    return channels_[pair * stages_ + as_index(stage)].get();
}

/// Calls work(replica) for all at the same time. Throws what the first of those threw that failed
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
    std::vector<std::exception_ptr> errors(pipelines_.size());
    std::vector<char> stopped(pipelines_.size());
    const auto guarded = [&](std::size_t replica) {
        try {
            work(replica);
        } catch (const ChannelClosed&) {
            stopped[replica] = 1;  // another one has failed
        } catch (...) {
            errors[replica] = std::current_exception();
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
    for (const auto& each : channels_) {
        each->reopen();
    }
    failed_ = static_cast<std::size_t>(first - errors.begin());
    std::rethrow_exception(*first);
}

void Replicas::run_step(const Batch& batch, int step, StepResult& result) {
    std::vector<StepResult> of_others(pipelines_.size() - 1);
    on_all([&](std::size_t replica) {
        pipelines_[replica]->run_step(batch, step, replica == 0 ? result : of_others[replica - 1]);
    });
    if (!of_others.empty()) {
        result.timeline.replicas.clear();
    }
    for (StepResult& other : of_others) {
        result.loss += other.loss;
        result.accuracy.right += other.accuracy.right;
        result.stolen = std::max(result.stolen, other.stolen);
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
    for (const Score& other : std::span(scores).subspan(1)) {
        sum.loss += other.loss;
        sum.accuracy.right += other.accuracy.right;
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
    for (std::size_t pipeline = 0; pipeline < pipelines_.size(); ++pipeline) {
        here[here_.first + static_cast<int>(pipeline)] = pipelines_[pipeline].get();
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

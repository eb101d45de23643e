// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/runtime/command_queue.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace pipetwin::cuda {
namespace {

/// Most bytes of all lists that are remembered. Those of a step are a few megabytes; a run whose
/// addresses never repeat must not fill the memory.
constexpr std::size_t most_known_bytes = std::size_t{256} << 20U;

}  // namespace

void CommandQueue::prepare() {
    if (prepared_bytes_ == list_.bytes().size()) {
        return;
    }
    prepared_bytes_ = list_.bytes().size();
    prepared_ = nullptr;
    if (graphs_ == Graphs::No || list_.empty()) {
        return;
    }
    if (known_bytes_ > most_known_bytes) {
        // A graph may still be running; CUDA keeps what it needs until it has ended.
        known_.clear();
        known_bytes_ = 0;
    }
    const auto [entry, is_new] = known_.try_emplace(std::string(list_.bytes()));
    if (is_new) {
        known_bytes_ += entry->first.size();
        return;
    }
    try {
        if (!entry->second) {
            entry->second = capture();
        }
        prepared_ = &entry->second;
    } catch (const CudaFailure& failure) {
        if (failure.is_for_good()) {
            throw;
        }
        give_up_graphs(failure);
    }
}

void CommandQueue::flush() {
    if (list_.empty()) {
        return;
    }
    prepare();
    prepared_bytes_ = 0;
    list_.swap(under_way_);
    list_.clear();
    made_ = 0;
    if (!launch()) {
        under_way_.run(stream_, made_);
    }
}

void CommandQueue::forget() noexcept {
    under_way_.clear();
    made_ = 0;
}

void CommandQueue::discard() noexcept {
    list_.clear();
    prepared_bytes_ = 0;
    forget();
}

/// False: there is no graph, and the calls have to be made one by one.
bool CommandQueue::launch() {
    if (prepared_ == nullptr) {
        return false;
    }
    try {
        PIPETWIN_CUDA_CHECK(cudaGraphLaunch(prepared_->get(), stream_));
    } catch (const CudaFailure& failure) {
        if (failure.is_for_good() || has_launched_) {
            throw;
        }
        give_up_graphs(failure);
        return false;
    }
    has_launched_ = true;
    made_ = under_way_.size();
    return true;
}

void CommandQueue::give_up_graphs(const CudaFailure& why) {
    graphs_ = Graphs::No;
    why_no_graphs_ = why.text();
    prepared_ = nullptr;
    known_.clear();
    known_bytes_ = 0;
}

CommandQueue::GraphExec CommandQueue::capture() const {
    PIPETWIN_CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    cudaGraph_t captured = nullptr;
    try {
        std::size_t captured_calls = 0;
        list_.run(stream_, captured_calls);
    } catch (...) {  // the stream must not stay in capture
        static_cast<void>(cudaStreamEndCapture(stream_, &captured));
        static_cast<void>(cudaGetLastError());  // others would take it for theirs
        const Graph broken(captured);
        throw;
    }
    PIPETWIN_CUDA_CHECK(cudaStreamEndCapture(stream_, &captured));
    const Graph graph(captured);
    cudaGraphExec_t ready = nullptr;
    PIPETWIN_CUDA_CHECK(cudaGraphInstantiate(&ready, graph.get(), 0));
    return GraphExec(ready);
}

CudaFailure CommandQueue::explained(const CudaFailure& failure) const {
    if (!failure.is_for_good() || made_ == 0) {
        return failure;
    }
    const std::vector<std::string_view> calls = under_way_.names(made_);
    return {fmt::format("{}, met after {}", failure.text(), fmt::join(calls, ", ")),
            failure.hint(),
            CudaFailure::Lasts::ForGood,
            CudaFailure::Cause::Own};
}

}  // namespace pipetwin::cuda

#include "exec/cuda/command_queue.h"

namespace pipetwin::cuda {
namespace {

/// Of lists that are remembered. Those of a step are a few megabytes; a run whose addresses never
/// repeat must not fill the memory.
constexpr std::size_t most_known_bytes = std::size_t{256} << 20U;

}  // namespace

void CommandQueue::flush() {
    if (list_.empty()) {
        return;
    }
    if (graphs_ == Graphs::No) {
        list_.run(stream_);
        list_.clear();
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
        list_.run(stream_);
    } else {
        run_known(entry->second);
    }
    list_.clear();
}

void CommandQueue::run_known(GraphExec& graph) {
    if (!graph) {
        graph = capture();
    }
    PIPETWIN_CUDA_CHECK(cudaGraphLaunch(graph.get(), stream_));
}

CommandQueue::GraphExec CommandQueue::capture() const {
    PIPETWIN_CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    cudaGraph_t captured = nullptr;
    try {
        list_.run(stream_);
    } catch (...) {  // the stream must not stay in capture
        static_cast<void>(cudaStreamEndCapture(stream_, &captured));
        const Graph broken(captured);
        throw;
    }
    PIPETWIN_CUDA_CHECK(cudaStreamEndCapture(stream_, &captured));
    const Graph graph(captured);
    cudaGraphExec_t ready = nullptr;
    PIPETWIN_CUDA_CHECK(cudaGraphInstantiate(&ready, graph.get(), 0));
    return GraphExec(ready);
}

}  // namespace pipetwin::cuda

#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>

#include "exec/cuda/command_list.h"
#include "exec/cuda/owned.h"

namespace pipetwin::cuda {

/// The calls of a device on their way to its stream. A list that comes a second time becomes a CUDA
/// graph, which one launch starts ever after: a step repeats the calls of the step before, down to
/// the addresses, and hundreds of launches would keep a fast device waiting.
class CommandQueue {
  public:
    enum class Graphs { No, Yes };
    CommandQueue(cudaStream_t stream, Graphs graphs) : stream_(stream), graphs_(graphs) {}

    CommandList& list() { return list_; }
    cudaStream_t stream() const { return stream_; }

    /// Hands what is listed to the stream. Does not wait for it.
    void flush();

  private:
    using Graph = Owned<cudaGraph_t, cudaGraphDestroy>;
    using GraphExec = Owned<cudaGraphExec_t, cudaGraphExecDestroy>;

    GraphExec capture() const;
    void run_known(GraphExec& graph);

    cudaStream_t stream_;
    Graphs graphs_;
    CommandList list_;
    std::unordered_map<std::string, GraphExec>
        known_;  ///< by the bytes of the list; null: seen once
    std::size_t known_bytes_ = 0;
};

}  // namespace pipetwin::cuda

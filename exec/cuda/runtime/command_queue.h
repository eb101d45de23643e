// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>

#include "exec/cuda/runtime/command_list.h"
#include "exec/cuda/runtime/owned.h"

namespace pipetwin::cuda {

/// The calls of a device on their way to its stream. A list that comes a second time becomes a CUDA
/// graph, which one launch starts ever after: a step repeats the calls of the step before, down to
/// the addresses, and hundreds of launches would keep a fast device waiting. Where no graph can be
/// made of the stream's calls, they are made one by one.
class CommandQueue {
  public:
    /// Whether repeated lists become CUDA graphs.
    enum class Graphs { No, Yes };
    CommandQueue(cudaStream_t stream, Graphs graphs) : stream_(stream), graphs_(graphs) {}

    CommandList& list() { return list_; }
    cudaStream_t stream() const { return stream_; }

    /// Finds the graph of what is listed, or makes it, and begins nothing: calls that were handed
    /// over may be under way meanwhile. Throws CudaFailure.
    void prepare();
    /// Hands what is listed to the stream, prepared or not. Does not wait for it. Throws
    /// CudaFailure.
    void flush();

    /// Forgets the calls that were handed over: they are done.
    void forget() noexcept;
    /// Forgets all calls: a failure has made their results useless.
    void discard() noexcept;

    /// Returns `failure` with what is known here: a lasting failure may come from any call that is
    /// under way.
    CudaFailure explained(const CudaFailure& failure) const;

    /// The reason why there are no graphs although they were wanted; empty: there are.
    const std::string& why_no_graphs() const { return why_no_graphs_; }

  private:
    using Graph = Owned<cudaGraph_t, cudaGraphDestroy>;
    using GraphExec = Owned<cudaGraphExec_t, cudaGraphExecDestroy>;

    GraphExec capture() const;
    bool launch();
    void give_up_graphs(const CudaFailure& why);

    cudaStream_t stream_;
    Graphs graphs_;
    CommandList list_;
    CommandList under_way_;  ///< handed over, or being so
    std::size_t made_ = 0;   ///< of `under_way_`, calls that were made
    std::unordered_map<std::string, GraphExec>
        known_;  ///< by the bytes of the list; null: seen once
    std::size_t known_bytes_ = 0;
    std::size_t prepared_bytes_ = 0;  ///< of the list that was prepared; 0: none was
    GraphExec* prepared_ = nullptr;   ///< its graph; null: the calls are made one by one
    bool has_launched_ = false;       ///< a graph
    std::string why_no_graphs_;
};

}  // namespace pipetwin::cuda

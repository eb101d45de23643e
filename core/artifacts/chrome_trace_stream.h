// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/artifacts/chrome_trace.h"
#include "core/base/error.h"

namespace pipetwin {

/// Reads a trace of ours as its bytes come, a megabyte of events at a time, so that no more is kept
/// than the result. It takes nothing that the strict reader refuses, but less: metadata before the
/// events, steps one after the other. What it does not take ends the reading, never by an
/// exception.
class TraceStream {
  public:
    /// `size` is how many bytes the trace has; metadata that promise more actions than so many
    /// bytes can hold are refused.
    TraceStream(std::string place, std::uint64_t size);
    ~TraceStream();
    TraceStream(TraceStream&& other) noexcept;
    TraceStream& operator=(TraceStream&& other) noexcept;

    /// Takes the next bytes of the trace.
    void feed(std::string_view block);
    /// Ends the trace: no more bytes come.
    void finish();

    bool complete() const;           ///< all was read, and all is there
    bool has_metadata() const;       ///< the metadata were read
    std::uint64_t bytes() const;     ///< that came
    std::uint64_t stop() const;      ///< the first byte that was not taken
    std::size_t step_count() const;  ///< that the metadata promise; InternalError without metadata
    /// The reason why the trace is not complete, naming the byte. InternalError if nothing failed.
    Error error() const;

    /// The trace with the steps that are whole; may be called once.
    Trace take();

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace pipetwin

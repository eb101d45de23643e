// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <cuda_runtime_api.h>

#include "exec/cuda/runtime/command_list.h"

namespace pipetwin::cuda {

/// What the calls of kernels need of the lane that makes them.
class CallSite {
  public:
    virtual CommandList& list() = 0;
    /// Device memory for the inside of one call. Contents do not survive to the next.
    virtual void* scratch(std::size_t bytes) = 0;
    /// Host memory that copies to the GPU are made from, valid until what is listed is done. Waits
    /// for that where not enough is left.
    virtual std::byte* staged(std::size_t bytes) = 0;

    /// Device memory for so many elements, as `scratch`.
    template <class Element>
    Element* scratch_of(std::int64_t elements) {
        return static_cast<Element*>(scratch(static_cast<std::size_t>(elements) * sizeof(Element)));
    }
    /// Lists a copy of the value into a part of the scratch memory; returns that. For what changes
    /// from step to step: a CUDA graph keeps the address that it is copied from, not the number.
    template <class Value>
    const Value* to_device(const Value& value, Value* here) {
        std::byte* const from = staged(sizeof(value));
        std::memcpy(from, &value, sizeof(value));
        list_copy(here, from, sizeof(value));
        return here;
    }
    /// Lists a copy of the value into scratch memory; returns where it is then.
    template <class Value>
    const Value* to_device(const Value& value) {
        return to_device(value, scratch_of<Value>(1));
    }
    /// Lists a copy of bytes.
    void list_copy(void* to, const void* from, std::size_t bytes) {
        list().add("cudaMemcpyAsync", copy_bytes, to, from, bytes);
    }

  protected:
    ~CallSite() = default;

  private:
    static cudaError_t copy_bytes(void* to,
                                  const void* from,
                                  std::size_t bytes,
                                  cudaStream_t stream) {
        return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
    }
};

}  // namespace pipetwin::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cudnn_graph.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/as_index.h"
#include "exec/cuda/cudnn/cudnn_loaded.h"
#include "exec/cuda/runtime/check.h"

/// cuDNN 9 without linking it: its graph interface by pointers, found when the module first wants
/// it. Source: cuDNN's "Graph API" and cudnn_graph.h.
namespace pipetwin::cuda {

/// cuDNN's functions, found at run time. A test may put other functions in their places.
struct CudnnFunctions {
    decltype(&cudnnGetVersion) get_version = nullptr;
    decltype(&cudnnGetErrorString) get_error_string = nullptr;
    decltype(&cudnnGetLastErrorString) get_last_error_string = nullptr;
    decltype(&cudnnCreate) create = nullptr;
    decltype(&cudnnDestroy) destroy = nullptr;
    decltype(&cudnnSetStream) set_stream = nullptr;
    decltype(&cudnnBackendCreateDescriptor) create_descriptor = nullptr;
    decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor = nullptr;
    decltype(&cudnnBackendSetAttribute) set_attribute = nullptr;
    decltype(&cudnnBackendGetAttribute) get_attribute = nullptr;
    decltype(&cudnnBackendFinalize) finalize = nullptr;
    decltype(&cudnnBackendExecute) execute = nullptr;
};

/// Throws CudaFailure with the call, cuDNN's name for the error, and what it says about it.
void check_cudnn(const CudnnFunctions& cudnn, const char* call, cudnnStatus_t status);

/// cudnnGetVersion's number as text: "9.19.0".
std::string text_of_cudnn_version(std::size_t version);

/// A library handle, of the device and context that are current when it is made.
class CudnnHandle {
  public:
    explicit CudnnHandle(const CudnnFunctions& cudnn);
    CudnnHandle(const CudnnHandle&) = delete;
    CudnnHandle& operator=(const CudnnHandle&) = delete;
    CudnnHandle(CudnnHandle&&) = delete;
    CudnnHandle& operator=(CudnnHandle&&) = delete;
    ~CudnnHandle();

    cudnnHandle_t get() const { return handle_; }

  private:
    const CudnnFunctions& cudnn_;
    cudnnHandle_t handle_ = nullptr;
};

/// cuDNN's type of an attribute's values. Pointers to memory are set by set_pointers, since a
/// descriptor is a void*, too.
template <class T>
inline constexpr auto cudnn_type_of = nullptr;  // there are no such values
template <>
inline constexpr auto cudnn_type_of<std::int64_t> = CUDNN_TYPE_INT64;
template <>
inline constexpr auto cudnn_type_of<bool> = CUDNN_TYPE_BOOLEAN;
template <>
inline constexpr auto cudnn_type_of<char> = CUDNN_TYPE_CHAR;
template <>
inline constexpr auto cudnn_type_of<cudnnHandle_t> = CUDNN_TYPE_HANDLE;
template <>
inline constexpr auto cudnn_type_of<cudnnDataType_t> = CUDNN_TYPE_DATA_TYPE;
template <>
inline constexpr auto cudnn_type_of<float> = CUDNN_TYPE_FLOAT;
template <>
inline constexpr auto cudnn_type_of<double> = CUDNN_TYPE_DOUBLE;
template <>
inline constexpr auto cudnn_type_of<cudnnConvolutionMode_t> = CUDNN_TYPE_CONVOLUTION_MODE;
template <>
inline constexpr auto cudnn_type_of<cudnnPointwiseMode_t> = CUDNN_TYPE_POINTWISE_MODE;
template <>
inline constexpr auto cudnn_type_of<cudnnReduceTensorOp_t> = CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
template <>
inline constexpr auto cudnn_type_of<cudnnBackendHeurMode_t> = CUDNN_TYPE_HEUR_MODE;
template <>
inline constexpr auto cudnn_type_of<cudnnBackendNumericalNote_t> = CUDNN_TYPE_NUMERICAL_NOTE;
template <>
inline constexpr auto cudnn_type_of<cudnnBackendDescriptor_t> = CUDNN_TYPE_BACKEND_DESCRIPTOR;

/// One of cuDNN's descriptors, owned. Every call throws CudaFailure where cuDNN refuses.
class CudnnDescriptor {
  public:
    CudnnDescriptor(const CudnnFunctions& cudnn, cudnnBackendDescriptorType_t type);
    CudnnDescriptor(const CudnnDescriptor&) = delete;
    CudnnDescriptor& operator=(const CudnnDescriptor&) = delete;
    CudnnDescriptor(CudnnDescriptor&& other) noexcept
        : cudnn_(other.cudnn_), descriptor_(std::exchange(other.descriptor_, nullptr)) {}
    CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept {
        std::swap(cudnn_, other.cudnn_);
        std::swap(descriptor_, other.descriptor_);
        return *this;
    }
    ~CudnnDescriptor();

    cudnnBackendDescriptor_t get() const { return descriptor_; }

    /// Sets an attribute: several values, one value, or another descriptor.
    template <class T>
    void set(cudnnBackendAttributeName_t name, std::span<const T> values) {
        set_bytes(name, cudnn_type_of<T>, values.size(), values.data());
    }
    template <class T>
    void set(cudnnBackendAttributeName_t name, const T& value) {
        set(name, std::span(&value, 1));
    }
    void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
        set(name, value.get());
    }
    /// Sets an attribute whose values are addresses of memory.
    void set_pointers(cudnnBackendAttributeName_t name, std::span<void* const> pointers) {
        set_bytes(name, CUDNN_TYPE_VOID_PTR, pointers.size(), pointers.data());
    }
    /// Ends the setting of attributes. Throws CudaFailure where cuDNN does not support them.
    void finalize();

    /// Number of values that an attribute has.
    std::int64_t count_of(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const;
    /// All values of an attribute.
    template <class T>
    std::vector<T> values_of(cudnnBackendAttributeName_t name) const {
        std::vector<T> values(as_index(count_of(name, cudnn_type_of<T>)));
        values.resize(get_bytes(name, cudnn_type_of<T>, values.size(), values.data()));
        return values;
    }
    /// An attribute that has one value.
    template <class T>
    T value_of(cudnnBackendAttributeName_t name) const {
        T value{};
        get_bytes(name, cudnn_type_of<T>, 1, &value);
        return value;
    }
    /// An attribute that is a descriptor: cuDNN fills one that exists.
    CudnnDescriptor descriptor_of(cudnnBackendAttributeName_t name,
                                  cudnnBackendDescriptorType_t type) const;
    /// An attribute that is a list of descriptors of this type.
    std::vector<CudnnDescriptor> descriptors_of(cudnnBackendAttributeName_t name,
                                                cudnnBackendDescriptorType_t type) const;

  private:
    void set_bytes(cudnnBackendAttributeName_t name,
                   cudnnBackendAttributeType_t type,
                   std::size_t count,
                   const void* values);
    /// The number of values that there were.
    std::size_t get_bytes(cudnnBackendAttributeName_t name,
                          cudnnBackendAttributeType_t type,
                          std::size_t room,
                          void* values) const;

    const CudnnFunctions* cudnn_;
    cudnnBackendDescriptor_t descriptor_ = nullptr;
};

}  // namespace pipetwin::cuda

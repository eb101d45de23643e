// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cudnn_graph.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

/// What the fake cuDNN keeps of a descriptor, and what a graph of them computes.
namespace pipetwin::cuda::test {

struct FakeDescriptor {
    cudnnBackendDescriptorType_t type{};
    std::map<cudnnBackendAttributeName_t, std::vector<std::byte>> attributes{};
    std::size_t engine = 0;                 ///< of a configuration or an engine, which it is
    const FakeDescriptor* graph = nullptr;  ///< of a configuration or a plan

    bool has(cudnnBackendAttributeName_t name) const { return attributes.contains(name); }

    template <class T>
    std::vector<T> all(cudnnBackendAttributeName_t name) const {
        const std::vector<std::byte>& bytes = attributes.at(name);
        std::vector<T> values(bytes.size() / sizeof(T));
        std::memcpy(values.data(), bytes.data(), bytes.size());
        return values;
    }
    template <class T>
    T one(cudnnBackendAttributeName_t name) const {
        T value{};
        std::memcpy(&value, attributes.at(name).data(), sizeof(T));
        return value;
    }
    const FakeDescriptor& descriptor(cudnnBackendAttributeName_t name) const {
        return *static_cast<const FakeDescriptor*>(one<cudnnBackendDescriptor_t>(name));
    }
};

/// Operation by operation in double, as cuDNN's documentation defines them; `pack` has the
/// addresses of tensors that are not virtual, by their names.
void evaluate(const FakeDescriptor& graph, const std::map<std::int64_t, void*>& pack);

}  // namespace pipetwin::cuda::test

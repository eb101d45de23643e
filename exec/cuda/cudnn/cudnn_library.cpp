// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/cudnn/cudnn_library.h"

#include <algorithm>
#include <array>

#include "core/base/as_index.h"

namespace pipetwin::cuda {
void check_cudnn(const CudnnFunctions& cudnn, const char* call, cudnnStatus_t status) {
    if (status == CUDNN_STATUS_SUCCESS) {
        return;
    }
    std::array<char, 1024> message{};
    cudnn.get_last_error_string(message.data(), message.size() - 1);
    std::string text = cudnn.get_error_string(status);
    if (message.front() != '\0') {
        text += std::string(": ") + message.data();
    }
    check(call, false, text.c_str(), static_cast<int>(status));
}

std::string text_of_cudnn_version(std::size_t version) {
    return std::to_string(version / 10000) + '.' + std::to_string(version / 100 % 100) + '.' +
           std::to_string(version % 100);
}

CudnnHandle::CudnnHandle(const CudnnFunctions& cudnn) : cudnn_(cudnn) {
    check_cudnn(cudnn, "cudnnCreate", cudnn.create(&handle_));
}

CudnnHandle::~CudnnHandle() {
    static_cast<void>(cudnn_.destroy(handle_));
}

CudnnDescriptor::CudnnDescriptor(const CudnnFunctions& cudnn, cudnnBackendDescriptorType_t type)
    : cudnn_(&cudnn) {
    check_cudnn(cudnn, "cudnnBackendCreateDescriptor", cudnn.create_descriptor(type, &descriptor_));
}

CudnnDescriptor::~CudnnDescriptor() {
    if (descriptor_ != nullptr) {
        static_cast<void>(cudnn_->destroy_descriptor(descriptor_));
    }
}

void CudnnDescriptor::finalize() {
    check_cudnn(*cudnn_, "cudnnBackendFinalize", cudnn_->finalize(descriptor_));
}

void CudnnDescriptor::set_bytes(cudnnBackendAttributeName_t name,
                                cudnnBackendAttributeType_t type,
                                std::size_t count,
                                const void* values) {
    const std::string call =
        "cudnnBackendSetAttribute of " + std::to_string(static_cast<int>(name));
    check_cudnn(
        *cudnn_,
        call.c_str(),
        cudnn_->set_attribute(descriptor_, name, type, static_cast<std::int64_t>(count), values));
}

std::int64_t CudnnDescriptor::count_of(cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type) const {
    std::int64_t count = 0;
    check_cudnn(*cudnn_,
                "cudnnBackendGetAttribute",
                cudnn_->get_attribute(descriptor_, name, type, 0, &count, nullptr));
    return count;
}

std::size_t CudnnDescriptor::get_bytes(cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type,
                                       std::size_t room,
                                       void* values) const {
    std::int64_t count = 0;
    const auto most = static_cast<std::int64_t>(room);
    check_cudnn(*cudnn_,
                "cudnnBackendGetAttribute",
                cudnn_->get_attribute(descriptor_, name, type, most, &count, values));
    return as_index(std::min(count, most));
}

CudnnDescriptor CudnnDescriptor::descriptor_of(cudnnBackendAttributeName_t name,
                                               cudnnBackendDescriptorType_t type) const {
    CudnnDescriptor found(*cudnn_, type);
    cudnnBackendDescriptor_t place = found.get();
    get_bytes(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &place);
    return found;
}

std::vector<CudnnDescriptor> CudnnDescriptor::descriptors_of(
    cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type) const {
    std::vector<CudnnDescriptor> found;
    std::vector<cudnnBackendDescriptor_t> places;
    for (std::int64_t i = count_of(name, CUDNN_TYPE_BACKEND_DESCRIPTOR); i > 0; --i) {
        places.push_back(found.emplace_back(*cudnn_, type).get());
    }
    const std::size_t count =
        get_bytes(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, places.size(), places.data());
    found.erase(found.begin() + static_cast<std::ptrdiff_t>(count), found.end());
    return found;
}

}  // namespace pipetwin::cuda

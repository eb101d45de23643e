// SPDX-License-Identifier: Apache-2.0
#include "tests/exec/cuda/cudnn/fake_cudnn.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "tests/exec/cuda/cudnn/fake_cudnn_graph.h"

namespace pipetwin::cuda::test {
namespace {

FakeCudnn fake;
std::recursive_mutex mutex;  ///< of it
using Lock = std::lock_guard<std::recursive_mutex>;
cudnnStatus_t last_status = CUDNN_STATUS_SUCCESS;

using Descriptor = FakeDescriptor;

struct Handle {
    cudaStream_t stream = nullptr;
};

cudnnStatus_t next_status() {
    const Lock lock(mutex);
    const int call = fake.calls++;
    const bool fails = call >= fake.first_failure && call - fake.first_failure < fake.failures;
    last_status = fails ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
    return last_status;
}

std::size_t get_version() {
    return fake.version;
}

const char* get_error_string(cudnnStatus_t /*status*/) {
    return "CUDNN_STATUS_FAKED";
}

void get_last_error_string(char* message, std::size_t size) {
    std::strncpy(message, last_status == CUDNN_STATUS_SUCCESS ? "" : "as a test wanted", size);
}

cudnnStatus_t create(cudnnHandle_t* handle) {
    const cudnnStatus_t status = next_status();
    if (status == CUDNN_STATUS_SUCCESS) {
        const Lock lock(mutex);
        ++fake.live_handles;
        *handle = reinterpret_cast<cudnnHandle_t>(new Handle);
    }
    return status;
}

cudnnStatus_t destroy(cudnnHandle_t handle) {
    const Lock lock(mutex);
    --fake.live_handles;
    delete reinterpret_cast<Handle*>(handle);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream) {
    const Lock lock(mutex);
    fake.stream = stream;
    reinterpret_cast<Handle*>(handle)->stream = stream;
    return next_status();
}

cudnnStatus_t create_descriptor(cudnnBackendDescriptorType_t type,
                                cudnnBackendDescriptor_t* descriptor) {
    const cudnnStatus_t status = next_status();
    if (status == CUDNN_STATUS_SUCCESS) {
        const Lock lock(mutex);
        ++fake.live_descriptors;
        *descriptor = new Descriptor{.type = type};
    }
    return status;
}

cudnnStatus_t destroy_descriptor(cudnnBackendDescriptor_t descriptor) {
    const Lock lock(mutex);
    --fake.live_descriptors;
    delete static_cast<Descriptor*>(descriptor);
    return CUDNN_STATUS_SUCCESS;
}

std::size_t size_of(cudnnBackendAttributeType_t type) {
    switch (type) {
        case CUDNN_TYPE_BOOLEAN:
        case CUDNN_TYPE_CHAR:
            return 1;
        case CUDNN_TYPE_HANDLE:
        case CUDNN_TYPE_DOUBLE:
        case CUDNN_TYPE_INT64:
        case CUDNN_TYPE_VOID_PTR:
        case CUDNN_TYPE_BACKEND_DESCRIPTOR:
            return 8;
        default:
            return 4;  // enumerations and INT32
    }
}

cudnnStatus_t set_attribute(cudnnBackendDescriptor_t descriptor,
                            cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type,
                            std::int64_t count,
                            const void* values) {
    const auto* const bytes = static_cast<const std::byte*>(values);
    auto& target = *static_cast<Descriptor*>(descriptor);
    target.attributes[name] = {bytes, bytes + static_cast<std::size_t>(count) * size_of(type)};
    return next_status();
}

/// The values that there are; those of descriptors are filled in.
std::int64_t answer(const Descriptor& from,
                    cudnnBackendAttributeName_t name,
                    std::int64_t room,
                    void* values) {
    const auto fill = [&](std::size_t i, std::size_t engine, const Descriptor* graph) {
        auto& to = *static_cast<Descriptor*>(static_cast<cudnnBackendDescriptor_t*>(values)[i]);
        to.engine = engine;
        to.graph = graph;
    };
    switch (name) {
        case CUDNN_ATTR_ENGINEHEUR_RESULTS:
            for (std::size_t i = 0; i < static_cast<std::size_t>(room); ++i) {
                fill(i, i, &from.descriptor(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH));
            }
            return static_cast<std::int64_t>(fake.engines.size());
        case CUDNN_ATTR_ENGINECFG_ENGINE:
            fill(0, from.engine, from.graph);
            return 1;
        case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE: {
            const auto& notes = fake.engines.at(from.engine);
            std::copy_n(notes.begin(), room, static_cast<cudnnBackendNumericalNote_t*>(values));
            return static_cast<std::int64_t>(notes.size());
        }
        case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
            *static_cast<std::int64_t*>(values) = fake.workspace_bytes;
            return 1;
        default:
            return 0;
    }
}

cudnnStatus_t get_attribute(cudnnBackendDescriptor_t descriptor,
                            cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t /*type*/,
                            std::int64_t room,
                            std::int64_t* count,
                            void* values) {
    const cudnnStatus_t status = next_status();
    if (status == CUDNN_STATUS_SUCCESS) {
        *count = answer(*static_cast<Descriptor*>(descriptor), name, room, values);
    }
    return status;
}

cudnnStatus_t finalize(cudnnBackendDescriptor_t descriptor) {
    const Lock lock(mutex);
    auto& target = *static_cast<Descriptor*>(descriptor);
    if (target.type == CUDNN_BACKEND_TENSOR_DESCRIPTOR &&
        !target.one<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL)) {
        const auto name = target.one<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
        fake.kept.insert(name);
        if (target.one<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE)) {
            fake.by_value.insert(name);
        }
    }
    if (target.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
        target.graph = target.descriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).graph;
    }
    return next_status();
}

/// What is to be done, with the host's numbers as they are now.
std::function<void()> work_of(const Descriptor& graph, std::map<std::int64_t, void*> pack) {
    std::map<std::int64_t, float> numbers;
    for (const std::int64_t name : fake.by_value) {
        if (const auto found = pack.find(name); found != pack.end()) {
            numbers[name] = *static_cast<const float*>(found->second);
        }
    }
    return [&graph, pack = std::move(pack), numbers = std::move(numbers)]() mutable {
        for (auto& [name, number] : numbers) {
            pack[name] = &number;
        }
        evaluate(graph, pack);
    };
}

cudnnStatus_t execute(cudnnHandle_t handle,
                      cudnnBackendDescriptor_t plan,
                      cudnnBackendDescriptor_t pack) {
    const Lock lock(mutex);
    const auto& given = *static_cast<Descriptor*>(pack);
    const auto names = given.all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const auto pointers = given.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    ++fake.executions;
    fake.pack.clear();
    for (std::size_t i = 0; i < names.size(); ++i) {
        fake.pack[names[i]] = pointers.at(i);
    }
    fake.workspace = given.one<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    const cudnnStatus_t status = fake.refuses ? CUDNN_STATUS_EXECUTION_FAILED : next_status();
    if (status == CUDNN_STATUS_SUCCESS && fake.computes) {
        std::function<void()> work = work_of(*static_cast<Descriptor*>(plan)->graph, fake.pack);
        if (fake.submit == nullptr) {
            work();
        } else if (fake.submit(reinterpret_cast<Handle*>(handle)->stream, std::move(work)) !=
                   cudaSuccess) {
            return CUDNN_STATUS_EXECUTION_FAILED;
        }
    }
    return status;
}

}  // namespace

FakeCudnn& new_fake_cudnn() {
    fake = {};
    last_status = CUDNN_STATUS_SUCCESS;
    return fake;
}

int fake_cudnn_calls() {
    const Lock lock(mutex);
    return fake.calls;
}

const CudnnFunctions& fake_cudnn_functions() {
    static const CudnnFunctions functions{.get_version = get_version,
                                          .get_error_string = get_error_string,
                                          .get_last_error_string = get_last_error_string,
                                          .create = create,
                                          .destroy = destroy,
                                          .set_stream = set_stream,
                                          .create_descriptor = create_descriptor,
                                          .destroy_descriptor = destroy_descriptor,
                                          .set_attribute = set_attribute,
                                          .get_attribute = get_attribute,
                                          .finalize = finalize,
                                          .execute = execute};
    return functions;
}

}  // namespace pipetwin::cuda::test

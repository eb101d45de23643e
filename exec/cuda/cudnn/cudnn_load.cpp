// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <string>
#include <type_traits>

#include "exec/cuda/cudnn/cudnn_library.h"

namespace pipetwin::cuda {
namespace {

constexpr const char* library_file = "libcudnn.so.9";

std::string loader_message() {
    const char* const text =
        ::dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps it per thread
    return text == nullptr ? "unknown loader error" : text;
}

/// Throws CudaFailure with the loader's message.
CudnnFunctions look_up_functions() {
    // The library stays loaded until the program ends: CUDA's libraries do not like to leave.
    void* const library = ::dlopen(library_file, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        throw CudaFailure(loader_message());
    }
    const auto look_up = [library](const char* name, auto& function) {
        function =
            reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
        if (function == nullptr) {
            throw CudaFailure(loader_message());
        }
    };
    CudnnFunctions found;
    look_up("cudnnGetVersion", found.get_version);
    look_up("cudnnGetErrorString", found.get_error_string);
    look_up("cudnnGetLastErrorString", found.get_last_error_string);
    look_up("cudnnCreate", found.create);
    look_up("cudnnDestroy", found.destroy);
    look_up("cudnnSetStream", found.set_stream);
    look_up("cudnnBackendCreateDescriptor", found.create_descriptor);
    look_up("cudnnBackendDestroyDescriptor", found.destroy_descriptor);
    look_up("cudnnBackendSetAttribute", found.set_attribute);
    look_up("cudnnBackendGetAttribute", found.get_attribute);
    look_up("cudnnBackendFinalize", found.finalize);
    look_up("cudnnBackendExecute", found.execute);
    return found;
}

}  // namespace

CudnnLoaded load_cudnn() {
    try {
        static const CudnnFunctions functions = look_up_functions();
        return {.functions = &functions, .why_not = {}};
    } catch (const CudaFailure& failure) {
        return {.functions = nullptr, .why_not = failure.text()};
    }
}

}  // namespace pipetwin::cuda

#include <vector>

#include "exec/cuda/check.h"
#include "exec/cuda/green_context.h"
#include "exec/cuda/self_test.h"
#include "tests/support/cuda_emulation/emulation.h"

/// For a test that has loaded the module.
extern "C" std::int64_t pipetwin_emulated_graph_launches() {
    return pipetwin::cuda::emulation::counts().graph_launches;
}

/// In the place of what exec/cuda has of NCCL and the driver; products are beside this file.
namespace pipetwin::cuda {

PipetwinCudaVersions library_versions() {
    return {.runtime = 13000, .driver = 13000, .cublas = 0, .nccl = 0};
}

std::string check_buffer() {
    return "emulated";
}
std::string check_kernel() {
    return "emulated";
}
std::string check_product() {
    return "emulated";
}
std::string check_loopback() {
    return "emulated";
}

// Green contexts: a stream each, 16 units of multiprocessors.

std::vector<std::unique_ptr<GreenContext>> cut_device(int /*device*/, std::span<const int> parts) {
    std::vector<std::unique_ptr<GreenContext>> contexts;
    for (const int share : parts) {
        std::unique_ptr<GreenContext> part(new GreenContext);
        PIPETWIN_CUDA_CHECK(cudaStreamCreateWithFlags(&part->stream_, cudaStreamNonBlocking));
        part->multiprocessors_ = share * multiprocessors_of_a_unit;
        contexts.push_back(std::move(part));
    }
    return contexts;
}

int units_of_device(int /*device*/) {
    return 16;
}

void GreenContext::enter() const {}

GreenContext::~GreenContext() {
    static_cast<void>(cudaStreamDestroy(stream_));
}

}  // namespace pipetwin::cuda

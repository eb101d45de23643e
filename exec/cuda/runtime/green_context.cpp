#include "exec/cuda/runtime/green_context.h"

#include <string>

#include "exec/cuda/runtime/driver.h"

namespace pipetwin::cuda {
namespace {

CUdevice driver_device(int device) {
    PIPETWIN_CUDA_CHECK(cudaSetDevice(device));
    PIPETWIN_CUDA_CHECK(cudaFree(nullptr));  // green contexts need the primary one to be there
    CUdevice found = 0;
    PIPETWIN_DRIVER(cuDeviceGet)(&found, device);
    return found;
}

/// All multiprocessors, in units. Only parts of one split may be put together again.
std::vector<CUdevResource> split(CUdevice device) {
    CUdevResource all{};
    PIPETWIN_DRIVER(cuDeviceGetDevResource)(device, &all, CU_DEV_RESOURCE_TYPE_SM);
    unsigned count = all.sm.smCount / multiprocessors_of_a_unit;
    std::vector<CUdevResource> units(count);
    CUdevResource rest{};
    PIPETWIN_DRIVER(cuDevSmResourceSplitByCount)
    (units.data(), &count, &all, &rest, 0U, static_cast<unsigned>(multiprocessors_of_a_unit));
    units.resize(count);
    return units;
}

}  // namespace

int units_of_device(int device) {
    return static_cast<int>(split(driver_device(device)).size());
}

std::vector<std::unique_ptr<GreenContext>> cut_device(int device, std::span<const int> parts) {
    const CUdevice place = driver_device(device);
    std::vector<CUdevResource> units = split(place);
    std::vector<std::unique_ptr<GreenContext>> contexts;
    std::size_t given = 0;
    for (const int share : parts) {
        const auto count = static_cast<unsigned>(share);
        if (given + count > units.size()) {
            throw CudaFailure("the GPU has only " + std::to_string(units.size()) + " units of " +
                              std::to_string(multiprocessors_of_a_unit) + " multiprocessors");
        }
        std::unique_ptr<GreenContext> part(new GreenContext);
        part->device_ = device;
        CUdevResourceDesc description = nullptr;
        PIPETWIN_DRIVER(cuDevResourceGenerateDesc)(&description, &units[given], count);
        PIPETWIN_DRIVER(cuGreenCtxCreate)
        (&part->green_, description, place, static_cast<unsigned>(CU_GREEN_CTX_DEFAULT_STREAM));
        PIPETWIN_DRIVER(cuCtxFromGreenCtx)(&part->context_, part->green_);
        PIPETWIN_DRIVER(cuGreenCtxStreamCreate)
        (&part->stream_, part->green_, static_cast<unsigned>(CU_STREAM_NON_BLOCKING), 0);
        for (std::size_t unit = given; unit < given + count; ++unit) {
            part->multiprocessors_ += static_cast<int>(units[unit].sm.smCount);
        }
        given += count;
        contexts.push_back(std::move(part));
    }
    return contexts;
}

void GreenContext::enter() const {
    PIPETWIN_DRIVER(cuCtxSetCurrent)(context_);
}

// Failures while going are dropped: the next checked call meets a broken device anyway.
GreenContext::~GreenContext() {
    try {
        if (stream_ != nullptr) {
            static_cast<void>(cudaStreamDestroy(stream_));
        }
        if (green_ != nullptr) {
            // It may be the calling thread's, who goes on with the device's own context.
            static_cast<void>(cudaSetDevice(device_));
            PIPETWIN_DRIVER(cuGreenCtxDestroy)(green_);
        }
    } catch (const CudaFailure&) {  // NOLINT(bugprone-empty-catch)
    }
}

}  // namespace pipetwin::cuda

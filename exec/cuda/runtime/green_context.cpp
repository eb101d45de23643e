// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/runtime/green_context.h"

#include <optional>
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

/// Cuts the device into groups of `multiprocessors`, as many as possible, `most` at the most.
std::vector<CUdevResource> split(CUdevice device, int multiprocessors, std::optional<int> most) {
    CUdevResource all{};
    PIPETWIN_DRIVER(cuDeviceGetDevResource)(device, &all, CU_DEV_RESOURCE_TYPE_SM);
    const auto size = static_cast<unsigned>(multiprocessors);
    unsigned count = most ? static_cast<unsigned>(*most) : all.sm.smCount / size;
    std::vector<CUdevResource> groups(count);
    CUdevResource rest{};
    PIPETWIN_DRIVER(cuDevSmResourceSplitByCount)
    (groups.data(), &count, &all, &rest, 0U, size);
    groups.resize(count);
    return groups;
}

/// All multiprocessors, in units. Only parts of one split may be put together again.
std::vector<CUdevResource> split_into_units(CUdevice device) {
    return split(device, multiprocessors_of_a_unit, std::nullopt);
}

}  // namespace

int units_of_device(int device) {
    return static_cast<int>(split_into_units(driver_device(device)).size());
}

struct GreenContext::Maker {
    static std::unique_ptr<GreenContext> make(int device,
                                              CUdevice place,
                                              std::span<CUdevResource> groups);
};

std::unique_ptr<GreenContext> GreenContext::Maker::make(int device,
                                                        CUdevice place,
                                                        std::span<CUdevResource> groups) {
    std::unique_ptr<GreenContext> part(new GreenContext);
    part->device_ = device;
    CUdevResourceDesc description = nullptr;
    PIPETWIN_DRIVER(cuDevResourceGenerateDesc)
    (&description, groups.data(), static_cast<unsigned>(groups.size()));
    PIPETWIN_DRIVER(cuGreenCtxCreate)
    (&part->green_, description, place, static_cast<unsigned>(CU_GREEN_CTX_DEFAULT_STREAM));
    PIPETWIN_DRIVER(cuCtxFromGreenCtx)(&part->context_, part->green_);
    PIPETWIN_DRIVER(cuGreenCtxStreamCreate)
    (&part->stream_, part->green_, static_cast<unsigned>(CU_STREAM_NON_BLOCKING), 0);
    for (const CUdevResource& group : groups) {
        part->multiprocessors_ += static_cast<int>(group.sm.smCount);
    }
    return part;
}

std::vector<std::unique_ptr<GreenContext>> cut_device(int device, std::span<const int> parts) {
    const CUdevice place = driver_device(device);
    std::vector<CUdevResource> units = split_into_units(place);
    std::vector<std::unique_ptr<GreenContext>> contexts;
    std::size_t given = 0;
    for (const int share : parts) {
        const auto count = static_cast<std::size_t>(share);
        if (given + count > units.size()) {
            throw CudaFailure("the GPU has only " + std::to_string(units.size()) + " units of " +
                              std::to_string(multiprocessors_of_a_unit) + " multiprocessors");
        }
        contexts.push_back(
            GreenContext::Maker::make(device, place, std::span(units).subspan(given, count)));
        given += count;
    }
    return contexts;
}

// Units of 8 leave multiprocessors over in every cluster of them whose number is no multiple of 8:
// 20 of an H100's 132, where two groups of 64 leave 4.
std::vector<std::unique_ptr<GreenContext>> cut_evenly(int device, int parts) {
    const CUdevice place = driver_device(device);
    CUdevResource all{};
    PIPETWIN_DRIVER(cuDeviceGetDevResource)(place, &all, CU_DEV_RESOURCE_TYPE_SM);
    std::vector<CUdevResource> groups;
    int units = static_cast<int>(all.sm.smCount) / parts / multiprocessors_of_a_unit;
    while (units > 0 && std::ssize(groups) < parts) {
        groups = split(place, units * multiprocessors_of_a_unit, parts);
        --units;
    }
    if (std::ssize(groups) < parts) {
        throw CudaFailure("the GPU cannot be cut into " + std::to_string(parts) + " parts");
    }
    std::vector<std::unique_ptr<GreenContext>> contexts;
    for (CUdevResource& group : groups) {
        contexts.push_back(GreenContext::Maker::make(device, place, std::span(&group, 1)));
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
            // The context may be that of the calling thread, which goes on with the device's own.
            static_cast<void>(cudaSetDevice(device_));
            PIPETWIN_DRIVER(cuGreenCtxDestroy)(green_);
        }
    } catch (const CudaFailure&) {  // NOLINT(bugprone-empty-catch)
    }
}

}  // namespace pipetwin::cuda

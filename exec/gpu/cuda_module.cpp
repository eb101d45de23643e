// SPDX-License-Identifier: Apache-2.0
#include "exec/gpu/cuda_module.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <tuple>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "exec/base/run_time_module.h"
#include "exec/cuda/module/module.h"
#include "exec/device/device_failure.h"
#include "exec/transport/launch_environment.h"

namespace pipetwin::exec {
namespace {

namespace fs = std::filesystem;

constexpr const char* module_file = "pipetwin_cuda.so";

// The numbers of cudaError_t that are answers rather than failures; the CUDA headers are not
// included on this side.
constexpr int no_error = 0;
constexpr int insufficient_driver = 35;
constexpr int no_device = 100;

std::string not_found() {
    return fmt::format("no {} beside the program or in PIPETWIN_MODULE_PATH", module_file);
}

/// The module's functions. The library stays loaded until the program ends: CUDA's own libraries do
/// not like to leave.
struct Module {
    decltype(&pipetwin_cuda_interface_version) interface_version = nullptr;
    decltype(&pipetwin_cuda_versions) versions = nullptr;
    decltype(&pipetwin_cuda_device_count) device_count = nullptr;
    decltype(&pipetwin_cuda_describe) describe = nullptr;
    decltype(&pipetwin_cuda_error_text) error_text = nullptr;
    decltype(&pipetwin_cuda_make_devices) make_devices = nullptr;
    decltype(&pipetwin_cuda_memory) memory = nullptr;
    decltype(&pipetwin_cuda_attention_workspace) attention_workspace = nullptr;
    decltype(&pipetwin_cuda_measure) measure = nullptr;
    decltype(&pipetwin_cuda_make_link_id) make_link_id = nullptr;
    decltype(&pipetwin_cuda_make_link) make_link = nullptr;
    decltype(&pipetwin_cuda_make_sum) make_sum = nullptr;
    decltype(&pipetwin_cuda_abort) abort = nullptr;
    decltype(&pipetwin_cuda_make_gather) make_gather = nullptr;
};

/// True if the environment says that this process is one of several. False where the environment is
/// wrong: training refuses that with an error.
bool is_one_of_several() {
    try {
        const auto launched = launched_process(environment_variables());
        return launched && launched->count > 1;
    } catch (const Error&) {
        return false;
    }
}

/// Throws std::runtime_error with the loader's message.
Module load_module(const fs::path& file) {
    // Streams that share one of the default's eight queues wait for each other, whatever parts of
    // the GPU they belong to. Read when CUDA starts.
    // NOLINTNEXTLINE(concurrency-mt-unsafe): before there are threads
    ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    // A kernel that is loaded when it is first called may wait for all that runs. Where processes
    // exchange messages, that may be a receive which waits for what the kernel makes.
    if (is_one_of_several()) {
        // NOLINTNEXTLINE(concurrency-mt-unsafe): as above
        ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    }
    void* const library = load_library(file);
    Module module;
    look_up(library, "pipetwin_cuda_interface_version", module.interface_version);
    expect_interface(file, module.interface_version(), pipetwin_cuda_interface);
    look_up(library, "pipetwin_cuda_versions", module.versions);
    look_up(library, "pipetwin_cuda_device_count", module.device_count);
    look_up(library, "pipetwin_cuda_describe", module.describe);
    look_up(library, "pipetwin_cuda_error_text", module.error_text);
    look_up(library, "pipetwin_cuda_make_devices", module.make_devices);
    look_up(library, "pipetwin_cuda_memory", module.memory);
    look_up(library, "pipetwin_cuda_attention_workspace", module.attention_workspace);
    look_up(library, "pipetwin_cuda_measure", module.measure);
    look_up(library, "pipetwin_cuda_make_link_id", module.make_link_id);
    look_up(library, "pipetwin_cuda_make_link", module.make_link);
    look_up(library, "pipetwin_cuda_make_sum", module.make_sum);
    look_up(library, "pipetwin_cuda_abort", module.abort);
    look_up(library, "pipetwin_cuda_make_gather", module.make_gather);
    return module;
}

std::string describe_versions(const Module& module) {
    PipetwinCudaVersions found{};
    module.versions(&found);
    std::ostringstream text;
    // Each library packs its version in its own way.
    text << "CUDA " << found.runtime / 1000 << '.' << found.runtime % 1000 / 10;
    text << ", cuBLAS " << found.cublas / 10000 << '.' << found.cublas / 100 % 100 << '.'
         << found.cublas % 100;
    text << ", NCCL " << found.nccl / 10000 << '.' << found.nccl / 100 % 100 << '.'
         << found.nccl % 100;
    return text.str();
}

CudaState state_of(int error) {
    switch (error) {
        case no_error:
            return CudaState::Available;
        case no_device:
            return CudaState::NoDevice;
        default:  // 35 and the other ways in which driver and runtime do not come together
            return CudaState::NoDriver;
    }
}

std::string describe_error(const Module& module, int error) {
    if (error == insufficient_driver) {
        return "no driver (CUDA error 35)";
    }
    return std::string(module.error_text(error)) + " (" + std::to_string(error) + ")";
}

void probe_devices(const Module& module, CudaProbe& probe) {
    int count = 0;
    int error = module.device_count(&count);
    for (int index = 0; error == no_error && index < count; ++index) {
        PipetwinCudaDevice device{};
        error = module.describe(index, &device);
        if (error == no_error) {
            probe.devices.push_back({.name = device.name,
                                     .compute_capability = device.compute_capability,
                                     .memory_bytes = device.memory_bytes,
                                     .multiprocessors = device.multiprocessors});
        }
    }
    probe.state = error == no_error && count == 0 ? CudaState::NoDevice : state_of(error);
    if (error != no_error) {
        probe.detail = describe_error(module, error);
    }
}

PipetwinCudaLinkId link_id(std::span<const std::byte> bytes) {
    PipetwinCudaLinkId id{};
    PIPETWIN_EXPECT(bytes.size() == sizeof id.bytes, "an id of this module");
    std::memcpy(id.bytes, bytes.data(), bytes.size());
    return id;
}

}  // namespace

CudaProbe probe_cuda() {
    CudaProbe probe;
    const std::optional<fs::path> file = find_module(module_file);
    if (!file) {
        probe.detail = not_found();
        return probe;
    }
    try {
        const Module module = load_module(*file);
        probe.versions = describe_versions(module);
        probe_devices(module, probe);
    } catch (const std::runtime_error& error) {
        probe.state = CudaState::LibrariesMissing;
        probe.detail = error.what();
    }
    return probe;
}

namespace {

/// The oldest generation with bf16 and asynchronous copies (Ampere).
constexpr int least_compute_capability = 80;

void require_usable(const CudaProbe& probe, int device) {
    const char* const hint =
        "train with --set cluster.backend=cpu; 'pipetwin devices' lists what is there";
    if (probe.state != CudaState::Available) {
        throw Error(ErrorKind::Unavailable,
                    KeyValue{"cluster.backend"},
                    "cuda: not available here: " + probe.detail,
                    hint);
    }
    const auto count = std::ssize(probe.devices);
    if (device >= count) {
        throw Error(ErrorKind::Unavailable,
                    KeyValue{"cluster.backend"},
                    fmt::format("cuda: GPU {} of {} wanted", device, count),
                    hint);
    }
    const CudaDevice& found = probe.devices[as_index(device)];
    if (found.compute_capability < least_compute_capability) {
        throw Error(ErrorKind::Unavailable,
                    KeyValue{"cluster.backend"},
                    fmt::format("cuda: {} has compute capability {}.{}, expected {}.0 or later",
                                found.name,
                                found.compute_capability / 10,
                                found.compute_capability % 10,
                                least_compute_capability / 10),
                    hint);
    }
}

bool is_asked_for(const char* variable) {
    const char* const text =
        std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): it is never set
    return text != nullptr && *text != '\0';
}

/// While nothing has been asked of the device yet, it is not there.
Error unavailable(const DeviceFailure& failure) {
    return {ErrorKind::Unavailable,
            KeyValue{"cluster.backend"},
            "cuda: " + failure.text(),
            "train with --set cluster.backend=cpu; 'pipetwin devices --measure' shows whether the "
            "GPU works at all"};
}

}  // namespace

CudaMemory cuda_memory(int device) {
    require_cuda(device);
    const Module module = load_module(find_module(module_file).value());
    CudaMemory memory;
    const int error = module.memory(device, &memory.free.count, &memory.total.count);
    if (error != no_error) {
        throw Error(ErrorKind::Unavailable,
                    KeyValue{"cluster.backend"},
                    "cuda: cudaMemGetInfo: " + describe_error(module, error),
                    "'pipetwin devices' lists what is there");
    }
    return memory;
}

Bytes cuda_attention_workspace(int device, const CudaAttention& attention) {
    if (is_asked_for("PIPETWIN_OWN_ATTENTION")) {
        return {};
    }
    static std::mutex mutex;
    static std::map<std::tuple<int, CudaAttention>, Bytes> known;
    const std::lock_guard lock(mutex);
    const auto asked = std::tuple(device, attention);
    if (const auto found = known.find(asked); found != known.end()) {
        return found->second;
    }
    require_cuda(device);
    const Module module = load_module(find_module(module_file).value());
    const PipetwinCudaAttention wanted{.samples = attention.samples,
                                       .positions = attention.positions,
                                       .padded_keys = attention.padded_keys,
                                       .heads = attention.heads,
                                       .key_value_heads = attention.key_value_heads,
                                       .head_size = attention.head_size,
                                       .q_stride = attention.q_stride,
                                       .k_stride = attention.k_stride};
    try {
        return known[asked] = Bytes{module.attention_workspace(device, &wanted)};
    } catch (const DeviceFailure& failure) {
        throw unavailable(failure);
    }
}

CudaRates measure_cuda(int device, const CudaRateSizes& sizes) {
    require_cuda(device);
    const Module module = load_module(find_module(module_file).value());
    const PipetwinCudaSizes wanted{
        .matrix = sizes.matrix, .copy_bytes = sizes.copy.count, .repeats = sizes.repeats};
    PipetwinCudaRates rates{};
    try {
        module.measure(device, &wanted, &rates);
    } catch (const DeviceFailure& failure) {
        throw unavailable(failure);
    }
    return {.bf16_flops = rates.bf16_flops,
            .fp32_flops = rates.fp32_flops,
            .device_copy = rates.device_copy,
            .to_device = rates.to_device,
            .from_device = rates.from_device};
}

void require_cuda(int device) {
    require_usable(probe_cuda(), device);
}

std::vector<std::unique_ptr<Device>> make_cuda_devices(const CudaRequest& request) {
    require_cuda(request.device);
    const Module module = load_module(find_module(module_file).value());
    const PipetwinCudaRequest wanted{
        .device = request.device,
        .gpus = request.gpus,
        .ranks = request.ranks,
        .own_multiprocessors = request.own_multiprocessors ? 1 : 0,
        .units = request.units.empty() ? nullptr : request.units.data(),
        .graphs = request.graphs ? 1 : 0,
        .own_attention = (request.own_attention || is_asked_for("PIPETWIN_OWN_ATTENTION")) ? 1 : 0,
        .own_convolutions =
            (request.own_convolutions || is_asked_for("PIPETWIN_OWN_CONVOLUTIONS")) ? 1 : 0,
        .own_gelu = (request.own_gelu || is_asked_for("PIPETWIN_OWN_GELU")) ? 1 : 0,
        .memory_bytes = request.memory.count};
    std::vector<Device*> made(as_index(request.ranks));
    try {
        module.make_devices(&wanted, made.data());
    } catch (const DeviceFailure& failure) {
        throw unavailable(failure);
    }
    std::vector<std::unique_ptr<Device>> devices;
    for (Device* const device : made) {
        devices.emplace_back(device);
    }
    return devices;
}

GpuLinks cuda_links(int device, int ctas) {
    // What `make` makes of the module.
    const auto from_module = [device](const auto& make) {
        require_cuda(device);
        try {
            return make(load_module(find_module(module_file).value()));
        } catch (const DeviceFailure& failure) {
            throw unavailable(failure);
        }
    };
    const auto gathered = [from_module, device](const PipetwinCudaLinkId* id,
                                                const char* place,
                                                const GpuMember& member) {
        const PipetwinCudaMember self{.index = member.index, .count = member.count};
        return from_module([&](const Module& module) {
            GpuGather* gather = nullptr;
            module.make_gather(device, id, place, &self, &gather);
            return std::unique_ptr<GpuGather>(gather);
        });
    };
    return {.make_id =
                [from_module] {
                    PipetwinCudaLinkId id{};
                    from_module([&](const Module& module) {
                        module.make_link_id(&id);
                        return true;
                    });
                    const auto bytes = std::as_bytes(std::span(id.bytes));
                    return std::vector<std::byte>(bytes.begin(), bytes.end());
                },
            .make =
                [from_module, device, ctas](
                    std::span<const std::byte> bytes, bool sends, LinkMemory memory) {
                    const PipetwinCudaLinkId id = link_id(bytes);
                    const PipetwinCudaLinkEnd end{.sends = sends ? 1 : 0,
                                                  .in_host_memory = memory == LinkMemory::Host,
                                                  .ctas = memory == LinkMemory::Gpu ? ctas : 1};
                    return from_module([&](const Module& module) {
                        GpuLink* link = nullptr;
                        module.make_link(device, &id, &end, &link);
                        return std::unique_ptr<GpuLink>(link);
                    });
                },
            .make_gather =
                [gathered](std::span<const std::byte> bytes, const GpuMember& member) {
                    const PipetwinCudaLinkId id = link_id(bytes);
                    return gathered(&id, nullptr, member);
                },
            .make_sum =
                [from_module, device](std::span<const std::byte> bytes, const GpuMember& member) {
                    const PipetwinCudaLinkId id = link_id(bytes);
                    const PipetwinCudaMember self{.index = member.index, .count = member.count};
                    return from_module([&](const Module& module) {
                        GpuSum* sum = nullptr;
                        module.make_sum(device, &id, &self, &sum);
                        return std::unique_ptr<GpuSum>(sum);
                    });
                },
            .abort =
                [](std::span<GpuTraffic* const> traffic) {
                    load_module(find_module(module_file).value())
                        .abort(traffic.data(), static_cast<int>(traffic.size()));
                },
            .meet =
                [gathered](const std::string& place, const GpuMember& member) {
                    return gathered(nullptr, place.c_str(), member);
                }};
}

}  // namespace pipetwin::exec

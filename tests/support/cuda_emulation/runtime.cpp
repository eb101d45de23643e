// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/cuda_emulation/cuda_runtime_api.h"
#include "tests/support/cuda_emulation/emulation.h"

using Work = std::function<void()>;

struct CUgraph_st {
    std::vector<Work> work;
};

struct CUgraphExec_st {
    std::vector<Work> work;
};

struct CUstream_st {
    struct Item {
        Work work;
        bool can_fail = true;           ///< an event cannot
        bool needs_memory = true;       ///< at the addresses that the program has for it
        std::function<bool()> tried{};  ///< in place of `work`
    };
    int gpu = 0;
    std::vector<Item> waiting;
    CUgraph_st* capturing = nullptr;
};

struct CUevent_st {
    cudaStream_t stream = nullptr;
    std::int64_t recorded = 0;  ///< how often it was asked to be
    std::int64_t reached = 0;   ///< and how often it was
    std::chrono::steady_clock::time_point time;
};

namespace pipetwin::cuda::emulation {
namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t most_poisoned = std::size_t{1} << 20U;
constexpr std::size_t memory_of_device = std::size_t{4} << 30U;

std::size_t whole_pages(std::size_t bytes) {
    return (std::max(bytes, std::size_t{1}) + page - 1) / page * page;
}

/// The calling thread's.
thread_local int current_gpu = 0;

/// A recursive mutex that threads get in the order in which they ask for it: who asks for it again
/// and again, as a loop that waits for a GPU does, would else keep out those who ask once.
class FairMutex {
  public:
    void lock() {
        std::unique_lock guard(mutex_);
        if (owner_ != std::this_thread::get_id()) {
            const std::uint64_t own = asked_++;
            is_next_.wait(guard, [&] { return own == served_; });
            owner_ = std::this_thread::get_id();
        }
        ++depth_;
    }
    void unlock() {
        const std::lock_guard guard(mutex_);
        if (--depth_ == 0) {
            owner_ = {};
            ++served_;
            is_next_.notify_all();
        }
    }

  private:
    std::mutex mutex_;
    std::condition_variable is_next_;
    std::thread::id owner_;
    int depth_ = 0;
    std::uint64_t asked_ = 0;
    std::uint64_t served_ = 0;
};

/// Everything that the emulated machine has. One thing happens at a time, whichever thread asks.
class Machine {
  public:
    FairMutex mutex;
    struct Block {
        std::size_t bytes = 0;
        int gpu = 0;  ///< of device memory
        bool is_open = false;
        std::byte* inside = nullptr;  ///< the same memory where it is always open
        int file = -1;                ///< that it is
    };
    int gpus = gpus_of_environment();
    std::set<CUstream_st*> trying;  ///< streams that may have work that takes several tries
    bool has_tryer = false;
    std::map<std::byte*, Block> device_memory;
    std::map<std::byte*, Block> pinned_memory;
    Counts counts;
    std::optional<Injection> injection;
    Injected injected;
    cudaError_t broken = cudaSuccess;  ///< what every call returns since it failed for good

    /// What a call has to return: success, unless it is the one that is to fail, or too late.
    cudaError_t come_to(Call call) {
        if (broken != cudaSuccess) {
            return broken;
        }
        if (!injection || injection->call != call || injection->after-- > 0) {
            return cudaSuccess;
        }
        const auto error = static_cast<cudaError_t>(injection->error);
        broken = injection->for_good ? error : cudaSuccess;
        injected = Injected{true, std::this_thread::get_id()};
        injection.reset();
        return error;
    }

    std::size_t taken(int gpu) const {
        std::size_t sum = 0;
        for (const auto& [begin, block] : device_memory) {
            sum += block.gpu == gpu ? block.bytes : 0;
        }
        return sum;
    }

    bool is_pinned(const void* address) const { return holds(pinned_memory, address); }
    bool is_on_device(const void* address) const { return holds(device_memory, address); }

    /// The memory of a GPU is open while `work` runs.
    void work_on(int gpu, const Work& work) {
        const Open open(*this, 1U << static_cast<unsigned>(gpu));
        work();
    }

    /// Where memory can be read and written at any time; no memory of a device stays where it is.
    std::byte* inside(const void* address) {
        auto* const place = static_cast<std::byte*>(const_cast<void*>(address));
        const auto found = block_of(address);
        return found == device_memory.end() ? place : found->second.inside + (place - found->first);
    }

    std::optional<InFile> in_file(const void* address) {
        const auto found = block_of(address);
        if (found == device_memory.end()) {
            return std::nullopt;
        }
        return InFile{.file = found->second.file,
                      .offset = static_cast<const std::byte*>(address) - found->first};
    }

    /// What a wait for the stream returns. Of work that fails nothing is done, nor of what is
    /// behind it.
    cudaError_t drain(CUstream_st& stream) {
        std::vector<CUstream_st::Item> work = std::exchange(stream.waiting, {});
        cudaError_t error = broken;
        for (std::size_t i = 0; i < work.size();) {
            if (!work[i].tried) {
                error = drain_work(stream, work, i, error);
            } else if (error != cudaSuccess || work[i].tried()) {
                ++i;
            } else {
                const auto rest = work.begin() + static_cast<std::ptrdiff_t>(i);
                stream.waiting.assign(rest, work.end());
                return error;
            }
        }
        return error;
    }

    /// Returns when nothing of the stream is left to be tried.
    cudaError_t finish(CUstream_st& stream) {
        cudaError_t error = drain(stream);
        while (error == cudaSuccess && !stream.waiting.empty()) {
            mutex.unlock();
            std::this_thread::sleep_for(between_tries);
            mutex.lock();
            error = drain(stream);
        }
        return error;
    }

    static constexpr std::chrono::microseconds between_tries{100};

  private:
    /// From the i-th on, up to what takes several tries.
    cudaError_t drain_work(CUstream_st& stream,
                           const std::vector<CUstream_st::Item>& work,
                           std::size_t& i,
                           cudaError_t error) {
        const auto come_to_next = [&] {
            if (error == cudaSuccess && work[i].can_fail) {
                error = come_to(Call::Work);
            }
            return error == cudaSuccess;
        };
        while (i < work.size() && !work[i].tried) {
            const auto go_on = [&] {
                for (; i < work.size() && !work[i].tried; ++i) {
                    if (come_to_next()) {
                        work[i].work();
                    }
                }
            };
            if (work[i].needs_memory) {
                work_on(stream.gpu, go_on);
            } else {
                if (come_to_next()) {
                    work[i].work();
                }
                ++i;
            }
        }
        return error;
    }

    static int gpus_of_environment() {
        const char* const text = std::getenv("PIPETWIN_EMULATED_GPUS");
        return text == nullptr ? 1 : std::stoi(text);
    }

    static bool holds(const std::map<std::byte*, Block>& blocks, const void* address) {
        const auto* const place = static_cast<const std::byte*>(address);
        return std::any_of(blocks.begin(), blocks.end(), [place](const auto& block) {
            return place >= block.first && place < block.first + block.second.bytes;
        });
    }

    /// Beside what is open already: one stream may wait for another.
    class Open {
      public:
        Open(Machine& machine, unsigned gpus) : machine_(machine), before_(machine.open_) {
            machine_.set_open(before_ | gpus);
        }
        Open(const Open&) = delete;
        Open& operator=(const Open&) = delete;
        ~Open() { machine_.set_open(before_); }

      private:
        Machine& machine_;
        unsigned before_;
    };

    std::map<std::byte*, Block>::iterator block_of(const void* address) {
        return std::find_if(
            device_memory.begin(), device_memory.end(), [address](const auto& each) {
                return address >= each.first && address < each.first + each.second.bytes;
            });
    }

    unsigned open_ = 0;  ///< a bit for each GPU

    void set_open(unsigned gpus_to_open) {
        open_ = gpus_to_open;
        for (auto& [begin, block] : device_memory) {
            protect(begin, block);
        }
    }

    void protect(std::byte* begin, Block& block) const {
        const bool is_wanted = (open_ & (1U << static_cast<unsigned>(block.gpu))) != 0;
        if (block.is_open != is_wanted) {
            block.is_open = is_wanted;
            ::mprotect(begin, block.bytes, is_wanted ? PROT_READ | PROT_WRITE : PROT_NONE);
        }
    }
};

/// Outlives everything: the GPU works while a program ends.
Machine& machine() {
    static Machine* const the_machine = new Machine;
    return *the_machine;
}

using Lock = std::lock_guard<FairMutex>;

}  // namespace

namespace {

enum class Needs { Memory, Nothing };

cudaError_t submit(cudaStream_t stream, Work work, Call call, Needs needs) {
    const Lock lock(machine().mutex);
    ++machine().counts.calls;
    if (const cudaError_t error = machine().come_to(call); error != cudaSuccess) {
        return error;
    }
    if (stream == nullptr) {
        if (needs == Needs::Memory) {
            machine().work_on(current_gpu, work);
        } else {
            work();
        }
    } else if (stream->capturing != nullptr) {
        stream->capturing->work.push_back(std::move(work));
    } else {
        stream->waiting.push_back(
            {std::move(work), call != Call::EventRecord, needs == Needs::Memory});
    }
    return cudaSuccess;
}

/// Copies between any two of the memories of the host and of GPUs.
void copy(void* to, const void* from, std::size_t bytes) {
    std::memmove(machine().inside(to), machine().inside(from), bytes);
}

}  // namespace

cudaError_t submit(cudaStream_t stream, Work work, Call call) {
    return submit(stream, std::move(work), call, Needs::Memory);
}

namespace {

/// The less often, the longer nothing has come of it: on a busy machine who looks takes the time of
/// who works.
void try_for_ever() {
    constexpr auto longest = 16 * Machine::between_tries;
    std::chrono::microseconds pause = Machine::between_tries;
    while (true) {
        std::this_thread::sleep_for(pause);
        const Lock one(machine().mutex);
        bool any_goes_on = false;
        for (CUstream_st* const each : machine().trying) {
            const std::size_t before = each->waiting.size();
            machine().drain(*each);
            any_goes_on = any_goes_on || each->waiting.size() != before;
        }
        pause = any_goes_on ? Machine::between_tries : std::min(2 * pause, longest);
    }
}

}  // namespace

cudaError_t submit_tries(cudaStream_t stream, std::function<bool()> tried) {
    const Lock lock(machine().mutex);
    ++machine().counts.calls;
    CUstream_st::Item item;
    item.tried = std::move(tried);
    stream->waiting.push_back(std::move(item));
    machine().trying.insert(stream);
    if (!std::exchange(machine().has_tryer, true)) {
        std::thread([] { try_for_ever(); }).detach();
    }
    return machine().broken;
}

std::byte* inside(const void* address) {
    const Lock lock(machine().mutex);
    return machine().inside(address);
}

std::optional<InFile> in_file(const void* address) {
    const Lock lock(machine().mutex);
    return machine().in_file(address);
}

Counts counts() {
    const Lock lock(machine().mutex);
    return machine().counts;
}

void inject(const Injection* injection) {
    const Lock lock(machine().mutex);
    machine().injection.reset();
    machine().injected = {};
    machine().broken = cudaSuccess;
    if (injection != nullptr) {
        machine().injection = *injection;
    }
}

void set_gpus(int count) {
    const Lock lock(machine().mutex);
    machine().gpus = count;
}

Injected injected() {
    const Lock lock(machine().mutex);
    return machine().injected;
}

}  // namespace pipetwin::cuda::emulation

using pipetwin::cuda::emulation::Call;
using pipetwin::cuda::emulation::copy;
using pipetwin::cuda::emulation::current_gpu;
using pipetwin::cuda::emulation::Lock;
using pipetwin::cuda::emulation::machine;
using pipetwin::cuda::emulation::memory_of_device;
using pipetwin::cuda::emulation::most_poisoned;
using pipetwin::cuda::emulation::Needs;
using pipetwin::cuda::emulation::submit;
using pipetwin::cuda::emulation::whole_pages;

const char* cudaGetErrorString(cudaError_t error) {
    switch (error) {
        case cudaSuccess:
            return "no error";
        case cudaErrorMemoryAllocation:
            return "out of memory";
        case cudaErrorNotReady:
            return "device not ready";
        case cudaErrorStreamCaptureUnsupported:
            return "operation not permitted when stream is capturing";
        case cudaErrorInvalidConfiguration:
            return "invalid configuration argument";
        case cudaErrorIllegalAddress:
            return "an illegal memory access was encountered";
        case cudaErrorLaunchOutOfResources:
            return "too many resources requested for launch";
        default:
            return "invalid argument";
    }
}

cudaError_t cudaGetLastError() {
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
    const Lock lock(machine().mutex);
    *count = machine().gpus;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    const Lock lock(machine().mutex);
    if (device < 0 || device >= machine().gpus) {
        return cudaErrorInvalidValue;
    }
    *properties = {};
    std::strcpy(properties->name, "emulated GPU");
    properties->major = 9;
    properties->multiProcessorCount = 132;
    properties->totalGlobalMem = memory_of_device;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    const Lock lock(machine().mutex);
    if (device < 0 || device >= machine().gpus) {
        return cudaErrorInvalidValue;
    }
    current_gpu = device;
    return machine().broken;
}

cudaError_t cudaGetDevice(int* device) {
    *device = current_gpu;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr /*attribute*/, int /*device*/) {
    *value = static_cast<int>(pipetwin::cuda::emulation::most_shared_bytes);
    return cudaSuccess;
}

// The first megabyte has the bytes of a NaN, so that what was never written is seen.
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
    const Lock lock(machine().mutex);
    if (const cudaError_t error = machine().come_to(Call::Allocation); error != cudaSuccess) {
        return error;
    }
    const std::size_t size = whole_pages(bytes);
    if (machine().taken(current_gpu) + size > memory_of_device) {
        return cudaErrorMemoryAllocation;
    }
    const int file = ::memfd_create("memory of a GPU", MFD_CLOEXEC);
    const bool has_room = ::ftruncate(file, static_cast<off_t>(size)) == 0;
    void* const block = ::mmap(nullptr, size, PROT_NONE, MAP_SHARED, file, 0);
    void* const inside = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (!has_room || block == MAP_FAILED || inside == MAP_FAILED) {
        return cudaErrorMemoryAllocation;
    }
    std::memset(inside, 0xFF, std::min(size, most_poisoned));
    machine().device_memory[static_cast<std::byte*>(block)] = {
        .bytes = size, .gpu = current_gpu, .inside = static_cast<std::byte*>(inside), .file = file};
    *memory = block;
    return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
    const Lock lock(machine().mutex);
    const auto found = machine().device_memory.find(static_cast<std::byte*>(memory));
    if (found == machine().device_memory.end()) {
        return memory == nullptr ? machine().broken : cudaErrorInvalidValue;
    }
    ::munmap(found->first, found->second.bytes);
    ::munmap(found->second.inside, found->second.bytes);
    ::close(found->second.file);
    machine().device_memory.erase(found);
    return machine().broken;
}

cudaError_t cudaMemGetInfo(std::size_t* left, std::size_t* total) {
    const Lock lock(machine().mutex);
    if (machine().broken != cudaSuccess) {
        return machine().broken;
    }
    *left = memory_of_device - machine().taken(current_gpu);
    *total = memory_of_device;
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned /*flags*/) {
    const Lock lock(machine().mutex);
    if (const cudaError_t error = machine().come_to(Call::Allocation); error != cudaSuccess) {
        return error;
    }
    *memory = std::malloc(bytes);
    machine().pinned_memory[static_cast<std::byte*>(*memory)] = {bytes, 0};
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
    const Lock lock(machine().mutex);
    machine().pinned_memory.erase(static_cast<std::byte*>(memory));
    std::free(memory);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind /*kind*/) {
    const Lock lock(machine().mutex);
    if (const cudaError_t error = machine().come_to(Call::Copy); error != cudaSuccess) {
        return error;
    }
    copy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
    const Lock lock(machine().mutex);
    if (const cudaError_t error = machine().come_to(Call::Allocation); error != cudaSuccess) {
        return error;
    }
    *stream = new CUstream_st;
    (*stream)->gpu = current_gpu;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    const Lock lock(machine().mutex);
    const cudaError_t error = machine().finish(*stream);
    machine().trying.erase(stream);
    delete stream;
    return error;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    const Lock lock(machine().mutex);
    if (stream->capturing != nullptr) {
        return cudaErrorStreamCaptureUnsupported;
    }
    return machine().finish(*stream);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    *least = 0;
    *greatest = 0;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int /*priority*/) {
    return cudaStreamCreateWithFlags(stream, flags);
}

// None can: whatever goes from GPU to GPU is copied.
cudaError_t cudaDeviceCanAccessPeer(int* can, int /*device*/, int /*peer*/) {
    *can = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int /*peer*/, unsigned /*flags*/) {
    return cudaErrorInvalidValue;
}

// Work of another stream may be asked for by work of this one: that is done first.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
    const Lock lock(machine().mutex);
    if (event->stream == nullptr) {
        return cudaSuccess;  // never recorded
    }
    return submit(
        stream, [event] { machine().drain(*event->stream); }, Call::Launch, Needs::Nothing);
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
    *event = new CUevent_st;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    const Lock lock(machine().mutex);
    const bool capturing = stream->capturing != nullptr;
    if (capturing != (flags == cudaEventRecordExternal)) {
        return cudaErrorInvalidValue;  // in a graph it must be an external one, and only there
    }
    const cudaError_t error = submit(
        stream,
        [event] {
            event->reached = event->recorded;
            event->time = std::chrono::steady_clock::now();
        },
        Call::EventRecord,
        Needs::Nothing);
    if (error == cudaSuccess) {
        event->stream = stream;
        event->recorded += capturing ? 0 : 1;
    }
    return error;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    const Lock lock(machine().mutex);
    if (event->stream == nullptr || event->stream->capturing != nullptr) {
        return cudaErrorInvalidValue;
    }
    if (const cudaError_t error = machine().come_to(Call::EventQuery); error != cudaSuccess) {
        return error;
    }
    if (const cudaError_t error = machine().drain(*event->stream); error != cudaSuccess) {
        return error;
    }
    return event->reached == event->recorded ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
    const Lock lock(machine().mutex);
    if (machine().broken != cudaSuccess) {
        return machine().broken;
    }
    *milliseconds = std::chrono::duration<float, std::milli>(to->time - from->time).count();
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode /*mode*/) {
    const Lock lock(machine().mutex);
    if (const cudaError_t error = machine().come_to(Call::Capture); error != cudaSuccess) {
        return error;
    }
    machine().counts.captures_at_work += stream->waiting.empty() ? 0 : 1;
    stream->capturing = new CUgraph_st;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    const Lock lock(machine().mutex);
    *graph = std::exchange(stream->capturing, nullptr);
    return *graph == nullptr ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    const Lock lock(machine().mutex);
    *status =
        stream->capturing == nullptr ? cudaStreamCaptureStatusNone : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* ready,
                                 cudaGraph_t graph,
                                 unsigned long long /*flags*/) {
    const Lock lock(machine().mutex);
    if (const cudaError_t error = machine().come_to(Call::Instantiation); error != cudaSuccess) {
        return error;
    }
    *ready = new CUgraphExec_st{graph->work};
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
    const Lock lock(machine().mutex);
    ++machine().counts.graph_launches;
    return submit(
        stream,
        [work = graph->work] {
            for (const Work& one : work) {
                one();
            }
        },
        Call::GraphLaunch);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
    return submit(
        stream,
        [=] { std::memset(machine().inside(to), value, bytes); },
        Call::Copy,
        Needs::Nothing);
}

// Pageable memory of the host is read before the call returns, and written before it returns, too.
cudaError_t cudaMemcpyAsync(
    void* to, const void* from, std::size_t bytes, cudaMemcpyKind /*kind*/, cudaStream_t stream) {
    const Lock lock(machine().mutex);
    const auto is_pageable = [](const void* address) {
        return !machine().is_on_device(address) && !machine().is_pinned(address);
    };
    if (stream == nullptr) {
        return submit(
            stream, [=] { copy(to, from, bytes); }, Call::Copy, Needs::Nothing);
    }
    if (stream->capturing != nullptr && (is_pageable(to) || is_pageable(from))) {
        return cudaErrorStreamCaptureUnsupported;
    }
    if (is_pageable(from)) {
        const auto* const begin = static_cast<const std::byte*>(from);
        return submit(
            stream,
            [to, bytes_then = std::vector<std::byte>(begin, begin + bytes)] {
                copy(to, bytes_then.data(), bytes_then.size());
            },
            Call::Copy,
            Needs::Nothing);
    }
    const cudaError_t error = submit(
        stream, [=] { copy(to, from, bytes); }, Call::Copy, Needs::Nothing);
    if (error == cudaSuccess && is_pageable(to)) {
        return machine().drain(*stream);
    }
    return error;
}

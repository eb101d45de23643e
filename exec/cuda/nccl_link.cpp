#include "exec/cuda/nccl_link.h"

#include <cstring>
#include <deque>
#include <utility>

#include "core/error.h"
#include "exec/cuda/check_nccl.h"
#include "exec/cuda/owned.h"

namespace pipetwin::cuda {
namespace {

/// Ends what is under way, too: ncclCommDestroy would wait for it, and the other end may be gone.
using AbortedCommunicator = Owned<ncclComm_t, ncclCommAbort>;
using Event = Owned<cudaEvent_t, cudaEventDestroy>;

/// Of the highest priority: a message is short, and somebody waits for it.
Stream make_urgent_stream() {
    int least = 0;
    int greatest = 0;
    PIPETWIN_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    cudaStream_t stream = nullptr;
    PIPETWIN_CUDA_CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
    return Stream(stream);
}

class NcclLink final : public exec::GpuLink {
  public:
    NcclLink(int device, const ncclUniqueId& id, bool sends) : device_(device), sends_(sends) {
        PIPETWIN_CUDA_CHECK(cudaSetDevice(device_));
        stream_ = make_urgent_stream();
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        config.minCTAs = 1;
        config.maxCTAs = 1;
        config.splitShare = 0;
        ncclComm_t communicator = nullptr;
        constexpr int ends = 2;
        const ncclResult_t result =
            ncclCommInitRankConfig(&communicator, ends, id, sends_ ? 0 : 1, &config);
        communicator_.reset(communicator);
        take("ncclCommInitRankConfig", result);
    }

    NcclLink(const NcclLink&) = delete;
    NcclLink& operator=(const NcclLink&) = delete;
    ~NcclLink() override { static_cast<void>(cudaSetDevice(device_)); }

    void add(void* data, Bytes bytes) override {
        waiting_.push_back({data, static_cast<std::size_t>(bytes.count)});
        go_on();
    }

    bool all_begun() override {
        go_on();
        return waiting_.empty();
    }

    std::int64_t complete() override {
        go_on();
        while (!under_way_.empty()) {
            const cudaError_t error = cudaEventQuery(under_way_.front().get());
            if (error == cudaErrorNotReady) {
                break;
            }
            check_runtime("cudaEventQuery", error);
            spare_.push_back(std::move(under_way_.front()));
            under_way_.pop_front();
            ++complete_;
        }
        return complete_;
    }

  private:
    struct Message {
        void* data;
        std::size_t bytes;
    };

    /// What a call returned that NCCL may go on with by itself.
    void take(const char* call, ncclResult_t result) {
        busy_ = result == ncclInProgress;
        if (!busy_) {
            check_nccl(call, result);
        }
    }

    /// Whether NCCL takes another call. Throws what has gone wrong meanwhile.
    bool is_free() {
        ncclResult_t state = ncclSuccess;
        PIPETWIN_NCCL_CHECK(ncclCommGetAsyncError(communicator_.get(), &state));
        if (busy_ && state == ncclInProgress) {
            return false;
        }
        if (state != ncclInProgress) {
            check_nccl("NCCL, to or from the neighbour", state);
        }
        busy_ = false;
        return true;
    }

    /// Begins what waits, as far as it can.
    void go_on() {
        if (is_free() && !begun_ && waiting_.empty()) {
            return;
        }
        PIPETWIN_CUDA_CHECK(cudaSetDevice(device_));
        while (is_free()) {
            if (begun_) {
                under_way_.push_back(next_event());
                PIPETWIN_CUDA_CHECK(cudaEventRecord(under_way_.back().get(), stream_.get()));
                begun_ = false;
            }
            if (waiting_.empty()) {
                return;
            }
            const Message next = waiting_.front();
            waiting_.pop_front();
            begun_ = true;
            constexpr int other_end_of_sender = 1;
            if (sends_) {
                take("ncclSend",
                     ncclSend(next.data,
                              next.bytes,
                              ncclUint8,
                              other_end_of_sender,
                              communicator_.get(),
                              stream_.get()));
            } else {
                take("ncclRecv",
                     ncclRecv(
                         next.data, next.bytes, ncclUint8, 0, communicator_.get(), stream_.get()));
            }
        }
    }

    Event next_event() {
        if (!spare_.empty()) {
            Event event = std::move(spare_.back());
            spare_.pop_back();
            return event;
        }
        cudaEvent_t event = nullptr;
        PIPETWIN_CUDA_CHECK(cudaEventCreate(&event));
        return Event(event);
    }

    int device_;
    bool sends_;
    std::deque<Event> under_way_;  ///< of messages that the stream has
    std::vector<Event> spare_;
    Stream stream_;
    AbortedCommunicator communicator_;  ///< first to end, then its stream
    std::deque<Message> waiting_;
    bool busy_ = false;   ///< NCCL has not ended its part of the last call
    bool begun_ = false;  ///< the last message, of which no event tells yet
    std::int64_t complete_ = 0;
};

}  // namespace

std::vector<std::byte> make_link_id() {
    ncclUniqueId id{};
    PIPETWIN_NCCL_CHECK(ncclGetUniqueId(&id));
    std::vector<std::byte> bytes(sizeof id);
    std::memcpy(bytes.data(), &id, sizeof id);
    return bytes;
}

std::unique_ptr<exec::GpuLink> make_link(int device, std::span<const std::byte> id, bool sends) {
    ncclUniqueId known{};
    PIPETWIN_EXPECT(id.size() == sizeof known, "an id of NCCL");
    std::memcpy(&known, id.data(), sizeof known);
    return std::make_unique<NcclLink>(device, known, sends);
}

}  // namespace pipetwin::cuda

// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/nccl/nccl_link.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "exec/cuda/nccl/nccl_communicator.h"
#include "exec/device/device_failure.h"

namespace pipetwin::cuda {
namespace {

/// Bytes in the host's memory, where copies from and to the GPU can be under way meanwhile.
Owned<std::byte*, cudaFreeHost> host_bytes(int device, std::size_t bytes) {
    PIPETWIN_CUDA_CHECK(cudaSetDevice(device));
    void* memory = nullptr;
    PIPETWIN_CUDA_CHECK(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault));
    return Owned<std::byte*, cudaFreeHost>(static_cast<std::byte*>(memory));
}

/// Buffers in pinned host memory and on the GPU, through which messages between host memories pass
/// in pieces: NCCL reaches the GPU's memory only. While one piece is on its way the next is filled.
class Slots {
  public:
    static constexpr std::size_t piece = std::size_t{1} << 20;
    static constexpr std::size_t count = 2;

    explicit Slots(int device)
        : host_(host_bytes(device, count * piece)), gpu_(gpu_bytes(device, count * piece)) {}

    std::byte* host(std::size_t slot) { return host_.get() + slot * piece; }
    std::byte* gpu(std::size_t slot) { return gpu_.get() + slot * piece; }

  private:
    Owned<std::byte*, cudaFreeHost> host_;
    GpuBytes gpu_;
};

class NcclLink final : public exec::GpuLink {
  public:
    NcclLink(int device, std::span<const std::byte> id, const LinkEnd& end)
        : sends_(end.sends),
          slots_(end.memory == exec::LinkMemory::Host ? std::make_optional<Slots>(device)
                                                      : std::nullopt),
          hello_(gpu_bytes(device, hello_size)),
          communicator_(device,
                        id,
                        {.rank = end.sends ? sending_end : receiving_end,
                         .ranks = 2,
                         .multiprocessors = end.multiprocessors}) {
        waiting_.push_back(
            {.data = hello_.get(), .bytes = hello_size, .ends_message = false, .is_hello = true});
    }

    void add(void* data, Bytes bytes) override {
        auto* const begin = static_cast<std::byte*>(data);
        const auto all = static_cast<std::size_t>(bytes.count);
        const std::size_t most = slots_ ? Slots::piece : std::max<std::size_t>(all, 1);
        std::size_t done = 0;
        do {
            const std::size_t size = std::min(most, all - done);
            waiting_.push_back(
                {.data = begin + done, .bytes = size, .ends_message = done + size == all});
            done += size;
        } while (done < all);
        go_on();
    }

    bool all_begun() override {
        go_on();
        return waiting_.empty();
    }

    std::int64_t complete() override {
        go_on();
        while (!under_way_.empty() && under_way_.front().done && is_done(under_way_.front().done)) {
            Piece& first = under_way_.front();
            is_connected_ = is_connected_ || first.is_hello;
            if (passes_through(first) && !sends_) {
                std::memcpy(first.data, slots_->host(first.slot), first.bytes);
            }
            complete_ += first.ends_message ? 1 : 0;
            spare_.push_back(std::move(first.done));
            under_way_.pop_front();
        }
        return complete_;
    }

    bool is_connected() override {
        complete();
        return is_connected_;
    }

    void abort() noexcept override { communicator_.abort(); }

  private:
    static constexpr std::size_t hello_size = 16;
    static constexpr int sending_end = 0;
    static constexpr int receiving_end = 1;

    /// A message, or what passes through one slot.
    struct Piece {
        std::byte* data = nullptr;
        std::size_t bytes = 0;
        bool ends_message = true;
        bool is_hello = false;  ///< the first of a link: NCCL connects the ends with it
        std::size_t slot = 0;
        Event done{};  ///< null until NCCL has it
    };

    /// True if the piece passes through a slot: it is in host memory.
    bool passes_through(const Piece& piece) const { return slots_ && !piece.is_hello; }

    /// Receives of a whole step may wait here. A stream that holds hundreds of them is full, and
    /// its next call waits; the others begin when `complete` finds earlier ones done.
    static constexpr std::size_t most_under_way = 8;

    bool has_room() const { return under_way_.size() < (slots_ ? Slots::count : most_under_way); }

    /// Begins what waits, as far as it can.
    void go_on() {
        bool last_has_no_event = !under_way_.empty() && !under_way_.back().done;
        if (communicator_.is_free() && !last_has_no_event && waiting_.empty()) {
            return;
        }
        communicator_.enter();
        while (communicator_.is_free()) {
            if (last_has_no_event) {
                finish_beginning(under_way_.back());
                last_has_no_event = false;
            }
            if (waiting_.empty() || !has_room()) {
                return;
            }
            under_way_.push_back(std::move(waiting_.front()));
            waiting_.pop_front();
            begin(under_way_.back());
            last_has_no_event = true;
        }
    }

    /// What is empty is a message, too: a byte stands for it.
    void begin(Piece& piece) {
        void* memory = piece.data;
        std::size_t bytes = piece.bytes;
        if (passes_through(piece)) {
            piece.slot = next_slot_++ % Slots::count;
            memory = slots_->gpu(piece.slot);
            bytes = std::max<std::size_t>(bytes, 1);
            if (sends_ && piece.bytes > 0) {
                std::memcpy(slots_->host(piece.slot), piece.data, piece.bytes);
                copy(memory, slots_->host(piece.slot), piece.bytes, cudaMemcpyHostToDevice);
            }
        } else if (piece.bytes == 0) {
            memory = hello_.get();
            bytes = 1;
        }
        const int other = sends_ ? receiving_end : sending_end;
        ncclComm_t const communicator = communicator_.get();
        cudaStream_t const stream = communicator_.stream();
        if (sends_) {
            communicator_.take("ncclSend",
                               ncclSend(memory, bytes, ncclUint8, other, communicator, stream));
        } else {
            communicator_.take("ncclRecv",
                               ncclRecv(memory, bytes, ncclUint8, other, communicator, stream));
        }
    }

    /// The stream has NCCL's part of it.
    void finish_beginning(Piece& piece) {
        if (passes_through(piece) && !sends_ && piece.bytes > 0) {
            copy(slots_->host(piece.slot),
                 slots_->gpu(piece.slot),
                 piece.bytes,
                 cudaMemcpyDeviceToHost);
        }
        piece.done = next_event();
        PIPETWIN_CUDA_CHECK(cudaEventRecord(piece.done.get(), communicator_.stream()));
    }

    void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
        PIPETWIN_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, kind, communicator_.stream()));
    }

    Event next_event() {
        if (spare_.empty()) {
            return make_event();
        }
        Event event = std::move(spare_.back());
        spare_.pop_back();
        return event;
    }

    bool sends_;
    std::optional<Slots> slots_;   ///< of messages between host memories
    std::deque<Piece> under_way_;  ///< of those the stream has, but perhaps the last
    std::vector<Event> spare_;
    GpuBytes hello_;
    Communicator communicator_;  ///< first to end, then what it reads and writes
    std::deque<Piece> waiting_;
    bool is_connected_ = false;
    std::size_t next_slot_ = 0;
    std::int64_t complete_ = 0;
};

class NcclGather final : public exec::GpuGather {
  public:
    NcclGather(int device, std::span<const std::byte> id, const exec::GpuMember& member)
        : count_(static_cast<std::size_t>(member.count)),
          host_(host_bytes(device, (count_ + 1) * most)),
          gpu_(gpu_bytes(device, (count_ + 1) * most)),
          done_(make_event()),
          communicator_(device, id, {.rank = member.index, .ranks = member.count}) {}

    void begin(std::span<const std::byte> mine) override {
        if (state_ != State::Done) {  // a process was lost in a round before: the caller says which
            throw exec::DeviceFailure(
                "a round before was given up", "", exec::DeviceFailure::Lasts::Once);
        }
        PIPETWIN_EXPECT(!mine.empty() && mine.size() <= most, "a round has room for it");
        bytes_ = mine.size();
        std::memcpy(host_mine(), mine.data(), bytes_);
        state_ = State::Waits;
        done();
    }

    bool done() override {
        while (state_ != State::Done && state_ != State::UnderWay && communicator_.is_free()) {
            communicator_.enter();
            if (state_ == State::Waits) {
                copy(gpu_mine(), host_mine(), bytes_, cudaMemcpyHostToDevice);
                communicator_.take("ncclAllGather",
                                   ncclAllGather(gpu_mine(),
                                                 gpu_.get(),
                                                 bytes_,
                                                 ncclUint8,
                                                 communicator_.get(),
                                                 communicator_.stream()));
                state_ = State::Begins;
            } else {
                copy(host_.get(), gpu_.get(), count_ * bytes_, cudaMemcpyDeviceToHost);
                PIPETWIN_CUDA_CHECK(cudaEventRecord(done_.get(), communicator_.stream()));
                state_ = State::UnderWay;
            }
        }
        if (state_ == State::UnderWay) {
            static_cast<void>(communicator_.is_free());  // throws where the others have failed
            if (is_done(done_)) {
                state_ = State::Done;
            }
        }
        return state_ == State::Done;
    }

    std::span<const std::byte> all() const override { return {host_.get(), count_ * bytes_}; }

    void finish() noexcept override { communicator_.finish(); }

  private:
    enum class State {
        Waits,     ///< for NCCL to take a call
        Begins,    ///< NCCL has the call
        UnderWay,  ///< the stream has everything
        Done,
    };

    std::byte* host_mine() { return host_.get() + count_ * most; }
    std::byte* gpu_mine() { return gpu_.get() + count_ * most; }

    void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
        PIPETWIN_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, kind, communicator_.stream()));
    }

    std::size_t count_;
    Owned<std::byte*, cudaFreeHost> host_;  ///< of all, then of this one
    GpuBytes gpu_;
    Event done_;
    Communicator communicator_;  ///< first to end, then what it reads and writes
    State state_ = State::Done;
    std::size_t bytes_ = 0;
};

/// Sets a variable of the environment for as long as it lives.
class Variable {
  public:
    Variable(const char* name, const std::string& value) : name_(name) {
        setenv(name_, value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): before training begins
    }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;
    ~Variable() { unsetenv(name_); }  // NOLINT(concurrency-mt-unsafe)

  private:
    const char* name_;
};

/// NCCL names no other communicator so while the variable is there, so it goes as soon as all have
/// come.
class Meeting final : public exec::GpuGather {
  public:
    Meeting(int device, const std::string& place, const exec::GpuMember& member)
        : variable_(std::in_place, "NCCL_COMM_ID", place),
          gather_(device, make_nccl_id(), member) {}

    void begin(std::span<const std::byte> mine) override { gather_.begin(mine); }
    bool done() override {
        const bool done = gather_.done();
        if (done) {
            variable_.reset();
        }
        return done;
    }
    std::span<const std::byte> all() const override { return gather_.all(); }
    void finish() noexcept override { gather_.finish(); }

  private:
    std::optional<Variable> variable_;
    NcclGather gather_;
};

}  // namespace

std::unique_ptr<exec::GpuLink> make_link(int device,
                                         std::span<const std::byte> id,
                                         const LinkEnd& end) {
    return std::make_unique<NcclLink>(device, id, end);
}

void abort_together(std::span<exec::GpuTraffic* const> traffic) noexcept {
    static_cast<void>(ncclGroupStart());
    for (exec::GpuTraffic* const one : traffic) {
        one->abort();
    }
    static_cast<void>(ncclGroupEnd());
}

std::unique_ptr<exec::GpuGather> make_gather(int device,
                                             std::span<const std::byte> id,
                                             const exec::GpuMember& member) {
    return std::make_unique<NcclGather>(device, id, member);
}

std::unique_ptr<exec::GpuGather> meet(int device,
                                      const std::string& place,
                                      const exec::GpuMember& member) {
    return std::make_unique<Meeting>(device, place, member);
}

}  // namespace pipetwin::cuda

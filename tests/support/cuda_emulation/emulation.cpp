// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda_emulation/emulation.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/cuda_emulation/cuda_runtime.h"
#include "tests/support/cuda_emulation/fiber.h"

namespace pipetwin::cuda::emulation {
namespace {

constexpr int warp_size = 32;
constexpr std::byte poison{0xff};  // a NaN in every type of real numbers

std::string text(const uint3& place) {
    return "(" + std::to_string(place.x) + ", " + std::to_string(place.y) + ", " +
           std::to_string(place.z) + ")";
}

std::string text(Place place) {
    return std::string(place.file) + ":" + std::to_string(place.line);
}

/// Of "... [with auto kernel = name; ...]", as GCC and clang ("[kernel = &name, ...]") write it.
std::string name_of(const Launch& launch) {
    std::string whole = launch.function;
    const std::size_t mark = whole.find("kernel = ");
    if (mark == std::string::npos) {
        return whole;
    }
    const std::size_t begin = mark + std::string_view("kernel = ").size();
    return whole.substr(begin, whole.find_first_of(";]", begin) - begin);
}

uint3 place_in(unsigned index, const dim3& shape) {
    if (index < shape.x) {  // nearly always, and two divisions take longer than many a turn
        return {index, 0, 0};
    }
    return {index % shape.x, index / shape.x % shape.y, index / shape.x / shape.y};
}

/// A piece of shared memory: on the heap and of exact size, for the address sanitizer.
class SharedPiece {
  public:
    SharedPiece(const void* tag, std::size_t bytes, std::size_t alignment)
        : tag_(tag),
          bytes_(bytes),
          alignment_(std::align_val_t{alignment}),
          data_(static_cast<std::byte*>(::operator new(bytes, alignment_))) {
        std::fill_n(data_, bytes, poison);
    }
    SharedPiece(SharedPiece&& other) noexcept
        : tag_(other.tag_),
          bytes_(other.bytes_),
          alignment_(other.alignment_),
          data_(std::exchange(other.data_, nullptr)) {}
    SharedPiece(const SharedPiece&) = delete;
    SharedPiece& operator=(const SharedPiece&) = delete;
    SharedPiece& operator=(SharedPiece&&) = delete;
    ~SharedPiece() { ::operator delete(data_, alignment_); }

    const void* tag() const { return tag_; }
    std::size_t bytes() const { return bytes_; }
    std::byte* data() const { return data_; }
    bool holds(const void* address, std::size_t bytes) const {
        const auto* const at = static_cast<const std::byte*>(address);
        return at >= data_ && at + bytes <= data_ + bytes_;
    }

  private:
    const void* tag_;
    std::size_t bytes_;
    std::align_val_t alignment_;
    std::byte* data_;
};

struct AsyncCopy {
    void* to;
    const void* from;
};

enum class State { Ready, AtBarrier, InCollective, Finished };

struct Thread {
    State state = State::Ready;
    Place place;                 ///< where it waits
    const char* operation = "";  ///< for what
    std::vector<AsyncCopy> open_copies;
    std::vector<std::vector<AsyncCopy>> committed_copies;  ///< the oldest first
};

/// A collective operation of the lanes of one mask, over and over.
struct Gathering {
    unsigned mask = 0;
    unsigned arrived = 0;
    const char* operation = "";
    Place place;
    std::array<Lanes, 2> inputs{};  ///< of the operation that lanes come to, and of the one before
    std::size_t coming = 0;         ///< which of the two
};

struct Warp {
    std::deque<Gathering> gatherings;  // stable addresses; one for each mask that occurs
};

struct Settings {
    Order order = Order::Ascending;
    std::uint64_t seed = 0;
    std::map<const void*, int> allowed_dynamic_shared;
};

Settings& settings() {
    static Settings only;
    return only;
}

/// SplitMix64.
std::uint64_t next_random(std::uint64_t& state) {
    state += 0x9e3779b97f4a7c15U;
    std::uint64_t x = state;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
}

/// The numbers below a size in the order that was set.
std::vector<unsigned> turns(std::size_t size, std::uint64_t& random) {
    std::vector<unsigned> numbers(size);
    std::iota(numbers.begin(), numbers.end(), 0U);
    if (settings().order == Order::Descending) {
        std::reverse(numbers.begin(), numbers.end());
    } else if (settings().order == Order::Shuffled) {
        for (std::size_t i = size; i > 1; --i) {
            std::swap(numbers[i - 1], numbers[next_random(random) % i]);
        }
    }
    return numbers;
}

/// The threads that can run. Always the first one of the order goes on, so that threads run as far
/// ahead of the others as barriers let them.
class ReadyThreads {
  public:
    ReadyThreads(std::size_t size, std::uint64_t& random)
        : thread_at_(turns(size, random)), place_of_(size), words_((size + 63) / 64) {
        for (unsigned place = 0; place < size; ++place) {
            place_of_[thread_at_[place]] = place;
        }
        insert_all();
    }

    void insert_all() {
        for (unsigned place = 0; place < place_of_.size(); ++place) {
            words_[place / 64] |= std::uint64_t{1} << place % 64;
        }
    }

    void insert(unsigned thread) {
        const unsigned place = place_of_[thread];
        words_[place / 64] |= std::uint64_t{1} << place % 64;
    }

    std::optional<unsigned> take_first() {
        for (std::size_t word = 0; word < words_.size(); ++word) {
            if (words_[word] != 0) {
                const auto bit = static_cast<std::size_t>(__builtin_ctzll(words_[word]));
                words_[word] &= words_[word] - 1;
                return thread_at_[64 * word + bit];
            }
        }
        return std::nullopt;
    }

  private:
    std::vector<unsigned> thread_at_;
    std::vector<unsigned> place_of_;
    std::vector<std::uint64_t> words_;
};

class Block {
  public:
    Block(const Launch& launch, const std::function<void()>& kernel, std::uint64_t& random)
        : launch_(launch),
          kernel_(kernel),
          threads_(std::size_t{launch.block.x} * launch.block.y * launch.block.z),
          ready_(threads_.size(), random),
          warps_((threads_.size() + warp_size - 1) / warp_size) {
        add_shared(nullptr, launch.dynamic_shared, 128);
    }

    void run() {
        for (unsigned index = 0; index < threads_.size(); ++index) {
            fiber(index).start([this] { run_thread(); });
        }
        while (finished_ < threads_.size()) {
            const std::optional<unsigned> next = ready_.take_first();
            if (!next) {
                fail_stuck();
            }
            resume(*next);
        }
    }

    [[noreturn]] void fail(const std::string& what) const {
        throw Failure(what + " (kernel " + name_of(launch_) + ", block " + text(::blockIdx) +
                      ", thread " + text(place_in(current_, launch_.block)) + ")");
    }

    void synchronize(Place place) {
        Thread& self = threads_[current_];
        self.place = place;
        self.operation = "__syncthreads";
        if (at_barrier_ > 0 && !(place == barrier_)) {
            fail("__syncthreads at " + text(place) + " while other threads wait at " +
                 text(barrier_));
        }
        barrier_ = place;
        self.state = State::AtBarrier;
        ++at_barrier_;
        if (at_barrier_ == threads_.size()) {
            at_barrier_ = 0;
            for (Thread& thread : threads_) {
                thread.state = State::Ready;
            }
            ready_.insert_all();
        }
        // The last one to arrive gives way, too, or the order would not decide who goes on first.
        fiber(current_).pause();
    }

    const Lanes& collect(
        const char* operation, unsigned mask, const void* input, std::size_t bytes, Place place) {
        Gathering& gathering = gathering_of(mask);
        const unsigned bit = 1U << static_cast<unsigned>(lane());
        if ((mask & bit) == 0) {
            fail(std::string(operation) + " at " + text(place) +
                 " by a lane that its mask does not name");
        }
        if (gathering.arrived != 0 && !((gathering.operation == operation ||
                                         std::string_view(gathering.operation) == operation) &&
                                        gathering.place == place)) {
            fail(std::string(operation) + " at " + text(place) +
                 " while lanes of its warp are in " + gathering.operation + " at " +
                 text(gathering.place));
        }
        gathering.operation = operation;
        gathering.place = place;
        gathering.arrived |= bit;
        const Lanes& operands = gathering.inputs[gathering.coming];
        std::memcpy(gathering.inputs[gathering.coming]
                        .inputs[static_cast<std::size_t>(lane())]
                        .bytes.data(),
                    input,
                    bytes);
        Thread& self = threads_[current_];
        self.place = place;
        self.operation = operation;
        self.state = State::InCollective;
        if (gathering.arrived == mask) {
            complete(gathering);
        }
        fiber(current_).pause();
        return operands;
    }

    int lane() const { return static_cast<int>(current_) % warp_size; }

    void* shared(const void* tag, std::size_t bytes, std::size_t alignment) {
        for (const SharedPiece& piece : shared_) {
            if (piece.tag() == tag) {
                return piece.data();
            }
        }
        return add_shared(tag, bytes, alignment);
    }

    bool is_in_shared(const void* address, std::size_t bytes) const {
        return std::any_of(shared_.begin(), shared_.end(), [=](const SharedPiece& piece) {
            return piece.holds(address, bytes);
        });
    }

    void expect_in_shared(const void* address, std::size_t bytes) const {
        if (!is_in_shared(address, bytes)) {
            fail("an address that is not in the block's shared memory");
        }
    }

    Thread& self() { return threads_[current_]; }

  private:
    static Fiber& fiber(unsigned index) {
        static std::vector<std::unique_ptr<Fiber>> fibers;  // their stacks serve all launches
        while (fibers.size() <= index) {
            fibers.push_back(std::make_unique<Fiber>());
        }
        return *fibers[index];
    }

    void resume(unsigned index) {
        current_ = index;
        ::threadIdx = place_in(index, launch_.block);
        fiber(index).resume();
        if (error_) {
            std::rethrow_exception(error_);
        }
    }

    void make_ready(unsigned index) {
        threads_[index].state = State::Ready;
        ready_.insert(index);
    }

    void run_thread() {
        try {
            kernel_();
            if (!self().open_copies.empty() || !self().committed_copies.empty()) {
                fail("asynchronous copies that nobody waits for");
            }
        } catch (...) {
            error_ = std::current_exception();
        }
        self().state = State::Finished;
        ++finished_;
    }

    Gathering& gathering_of(unsigned mask) {
        Warp& warp = warps_[current_ / warp_size];
        for (Gathering& gathering : warp.gatherings) {
            if (gathering.mask == mask) {
                return gathering;
            }
        }
        warp.gatherings.emplace_back();
        warp.gatherings.back().mask = mask;
        return warp.gatherings.back();
    }

    void complete(Gathering& gathering) {
        gathering.arrived = 0;
        gathering.coming = 1 - gathering.coming;
        const unsigned first = current_ / warp_size * warp_size;
        for (unsigned lane = 0; lane < warp_size; ++lane) {
            if ((gathering.mask >> lane & 1U) != 0) {
                make_ready(first + lane);
            }
        }
    }

    void* add_shared(const void* tag, std::size_t bytes, std::size_t alignment) {
        std::size_t fixed = tag == nullptr ? 0 : bytes;
        for (const SharedPiece& piece : shared_) {
            fixed += piece.tag() == nullptr ? 0 : piece.bytes();
        }
        const auto found = settings().allowed_dynamic_shared.find(launch_.address);
        const bool asked = found != settings().allowed_dynamic_shared.end() &&
                           launch_.dynamic_shared <= static_cast<std::size_t>(found->second);
        const std::size_t limit = asked ? most_shared_bytes : usual_shared_bytes;
        if (fixed > usual_shared_bytes || fixed + launch_.dynamic_shared > limit) {
            fail(std::to_string(fixed) + " + " + std::to_string(launch_.dynamic_shared) +
                 " bytes of shared memory, at most " + std::to_string(limit));
        }
        shared_.emplace_back(tag, bytes, alignment);
        return shared_.back().data();
    }

    /// No thread can go on: say who waits, and for whom.
    [[noreturn]] void fail_stuck() {
        std::optional<unsigned> waiting;
        for (unsigned index = 0; index < threads_.size(); ++index) {
            if (threads_[index].state != State::Finished && !waiting) {
                waiting = index;
            }
        }
        current_ = waiting.value_or(0);
        const Thread& thread = threads_[current_];
        std::string others;
        for (unsigned index = 0; index < threads_.size(); ++index) {
            const Thread& other = threads_[index];
            if (other.state != thread.state || !(other.place == thread.place)) {
                others =
                    "; thread " + text(place_in(index, launch_.block)) +
                    (other.state == State::Finished ? " has left the kernel"
                                                    : std::string(" waits in ") + other.operation +
                                                          " at " + text(other.place));
                break;
            }
        }
        fail(std::string(thread.operation) + " at " + text(thread.place) +
             " is never reached by all that it waits for" + others);
    }

    const Launch& launch_;
    const std::function<void()>& kernel_;
    std::vector<Thread> threads_;
    ReadyThreads ready_;
    std::vector<Warp> warps_;
    std::deque<SharedPiece> shared_;
    std::exception_ptr error_;
    Place barrier_;
    std::size_t at_barrier_ = 0;
    std::size_t finished_ = 0;
    unsigned current_ = 0;
};

Block* running = nullptr;

Block& block() {
    if (running == nullptr) {
        throw Failure("device code outside of a kernel");
    }
    return *running;
}

void check_shape(const Launch& launch) {
    const dim3& grid = launch.grid;
    const dim3& block = launch.block;
    const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
    const bool good_block = threads >= 1 && threads <= 1024 && block.z <= 64;
    const bool good_grid = grid.x >= 1 && grid.x <= 0x7fffffffU && grid.y >= 1 && grid.y <= 65535 &&
                           grid.z >= 1 && grid.z <= 65535;
    if (!good_block || !good_grid) {
        throw Failure("a grid of " + text(uint3{grid.x, grid.y, grid.z}) + " blocks of " +
                      text(uint3{block.x, block.y, block.z}) + " threads (kernel " +
                      name_of(launch) + ")");
    }
}

}  // namespace

void set_order(Order order, std::uint64_t seed) {
    settings().order = order;
    settings().seed = seed;
}

void run(const Launch& launch, const std::function<void()>& thread) {
    check_shape(launch);
    ::gridDim = launch.grid;
    ::blockDim = launch.block;
    std::uint64_t random = settings().seed;
    for (const unsigned index :
         turns(std::size_t{launch.grid.x} * launch.grid.y * launch.grid.z, random)) {
        ::blockIdx = place_in(index, launch.grid);
        Block now(launch, thread, random);
        running = &now;
        try {
            now.run();
        } catch (...) {
            running = nullptr;
            throw;
        }
        running = nullptr;
    }
}

void allow_dynamic_shared(const void* kernel, int bytes) {
    if (bytes < 0 || static_cast<std::size_t>(bytes) > most_shared_bytes) {
        throw Failure("a kernel asks for " + std::to_string(bytes) +
                      " bytes of dynamic shared memory, at most " +
                      std::to_string(most_shared_bytes));
    }
    settings().allowed_dynamic_shared[kernel] = bytes;
}

void* shared_memory(const void* tag, std::size_t bytes, std::size_t alignment) {
    return block().shared(tag, bytes, alignment);
}

void* dynamic_shared_memory() {
    return block().shared(nullptr, 0, 1);
}

void synchronize_block(Place place) {
    block().synchronize(place);
}

const Lanes& collect(
    const char* operation, unsigned mask, const void* input, std::size_t bytes, Place place) {
    return block().collect(operation, mask, input, bytes, place);
}

int lane() {
    return block().lane();
}

int checked_source(unsigned mask, int source) {
    if (source < 0 || source >= warp_size || (mask >> static_cast<unsigned>(source) & 1U) == 0) {
        block().fail("a shuffle from lane " + std::to_string(source) +
                     ", which its mask does not name");
    }
    return source;
}

void expect_aligned(const void* address, std::size_t alignment) {
    if (reinterpret_cast<std::uintptr_t>(address) % alignment != 0) {
        block().fail("an address that is no multiple of " + std::to_string(alignment));
    }
}

void expect_in_shared(const void* address, std::size_t bytes) {
    block().expect_in_shared(address, bytes);
}

void expect_outside_shared(const void* address, std::size_t bytes) {
    if (block().is_in_shared(address, bytes)) {
        block().fail("a store to global memory at an address in the block's shared memory");
    }
}

void copy_async_16(void* to_shared, const void* from) {
    expect_aligned(to_shared, 16);
    expect_aligned(from, 16);
    block().expect_in_shared(to_shared, 16);
    std::memset(to_shared, std::to_integer<int>(poison), 16);  // it may arrive at any time
    block().self().open_copies.push_back({to_shared, from});
}

void commit_copies() {
    Thread& self = block().self();
    self.committed_copies.push_back(std::exchange(self.open_copies, {}));
}

void wait_for_copies(int pending) {
    Thread& self = block().self();
    while (self.committed_copies.size() > static_cast<std::size_t>(pending)) {
        for (const AsyncCopy& copy : self.committed_copies.front()) {
            std::memcpy(copy.to, copy.from, 16);
        }
        self.committed_copies.erase(self.committed_copies.begin());
    }
}

}  // namespace pipetwin::cuda::emulation

// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda_emulation/nccl.h"

#include <netdb.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "tests/support/cuda_emulation/emulation.h"

namespace {

using pipetwin::cuda::emulation::in_file;
using pipetwin::cuda::emulation::inside;

/// A socket or another file, closed when it goes.
class Socket {
  public:
    Socket() = default;
    explicit Socket(int file) : file_(file) {}
    Socket(Socket&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
    Socket& operator=(Socket&& other) noexcept {
        std::swap(file_, other.file_);
        return *this;
    }
    ~Socket() {
        if (file_ >= 0) {
            ::close(file_);
        }
    }
    int get() const { return file_; }
    bool open() const { return file_ >= 0; }

  private:
    int file_ = -1;
};

/// Whose packets stay whole.
Socket make_socket() {
    return Socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

/// Where a rank waits for those after it; in the abstract namespace: gone with its socket.
struct Address {
    sockaddr_un address{};
    socklen_t size = 0;
    Address(const ncclUniqueId& id, int rank) {
        const std::string name = std::string(id.internal) + "-" + std::to_string(rank);
        address.sun_family = AF_UNIX;
        std::copy(name.begin(), name.end(), address.sun_path + 1);
        size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    }
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

/// "host:port" as a socket that listens there, as NCCL's first rank does for NCCL_COMM_ID.
Socket listen_at(const std::string& place) {
    const std::size_t colon = place.rfind(':');
    if (colon == std::string::npos) {
        return {};
    }
    std::string host = place.substr(0, colon);
    if (host.size() > 2 && host.front() == '[') {
        host = host.substr(1, host.size() - 2);
    }
    addrinfo* found = nullptr;
    if (::getaddrinfo(host.c_str(), place.c_str() + colon + 1, nullptr, &found) != 0) {
        return {};
    }
    Socket socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const bool ok = ::bind(socket.get(), found->ai_addr, found->ai_addrlen) == 0 &&
                    ::listen(socket.get(), 1) == 0;
    ::freeaddrinfo(found);
    return ok ? std::move(socket) : Socket();
}

/// What a packet says: of a message, which lies in the file that it carries, or a word alone.
struct Words {
    std::uint64_t size = 0;    ///< bytes, or the word
    std::uint64_t offset = 0;  ///< bytes of the file before the message
};

/// A packet that may carry a file beside its bytes.
struct Carrier {
    Words words;
    iovec part{&words, sizeof words};
    alignas(cmsghdr) char beside[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    Carrier() {
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = beside;
        message.msg_controllen = sizeof beside;
    }
};

/// To another rank and from it. Messages go as files in memory.
class Line {
  public:
    struct Message {
        Socket file;
        Words place;
    };

    Line() = default;
    explicit Line(Socket socket) : socket_(std::move(socket)) {}
    bool open() const { return socket_.open(); }

    bool send_file(int file, const Words& place) const {
        Carrier carrier;
        carrier.words = place;
        cmsghdr* const head = CMSG_FIRSTHDR(&carrier.message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof file);
        std::memcpy(CMSG_DATA(head), &file, sizeof file);
        return ::sendmsg(socket_.get(), &carrier.message, MSG_NOSIGNAL) ==
               static_cast<ssize_t>(sizeof carrier.words);
    }
    bool say_taken() const { return say(taken_word); }
    bool say_bye() const { return say(bye_word); }

    /// What has come, in its order; none where nothing has.
    std::optional<Message> next_message() {
        look();
        if (messages_.empty()) {
            return std::nullopt;
        }
        Message message = std::move(messages_.front());
        messages_.pop_front();
        return message;
    }
    /// Whether the other rank has one more of what was sent.
    bool next_is_taken() {
        look();
        return taken_ > 0 && taken_-- > 0;
    }
    bool has_bye() {
        look();
        return bye_ || gone_;
    }
    /// Nothing more comes.
    bool is_gone() const { return gone_; }

  private:
    static constexpr std::uint64_t taken_word = 1;
    static constexpr std::uint64_t bye_word = 2;

    bool say(std::uint64_t word) const {
        const Words words{.size = word};
        return ::send(socket_.get(), &words, sizeof words, MSG_NOSIGNAL) ==
               static_cast<ssize_t>(sizeof words);
    }

    void look() {
        while (!gone_) {
            Carrier carrier;
            const ssize_t got = ::recvmsg(socket_.get(), &carrier.message, MSG_CMSG_CLOEXEC);
            if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
                return;
            }
            if (got != static_cast<ssize_t>(sizeof carrier.words)) {
                gone_ = true;
                return;
            }
            if (const cmsghdr* const head = CMSG_FIRSTHDR(&carrier.message); head != nullptr) {
                int file = -1;
                std::memcpy(&file, CMSG_DATA(head), sizeof file);
                messages_.push_back({Socket(file), carrier.words});
            } else {
                taken_ += carrier.words.size == taken_word ? 1 : 0;
                bye_ = bye_ || carrier.words.size == bye_word;
            }
        }
    }

    Socket socket_;
    std::deque<Message> messages_;
    int taken_ = 0;
    bool bye_ = false;
    bool gone_ = false;
};

/// One message of a communicator, in either direction.
struct Passage {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    int peer = 0;
    bool sends = false;
    bool sent = false;
    bool done = false;
};

/// What a communicator is to its handle, and to what its streams have yet to do. Every rank has a
/// line to every other.
class Ends {
  public:
    Ends(const ncclUniqueId& id, int rank, int ranks, const std::string& place)
        : id_(id), rank_(rank), lines_(static_cast<std::size_t>(ranks)) {
        const Address address(id, rank);
        socket_ = make_socket();
        ok_ = ::bind(socket_.get(), address.get(), address.size) == 0 &&
              ::listen(socket_.get(), ranks) == 0;
        if (rank == 0 && !place.empty()) {
            meeting_ = listen_at(place);
            ok_ = ok_ && meeting_.open();
        }
    }

    ncclResult_t state() {
        const std::lock_guard lock(mutex_);
        if (!ok_) {
            return ncclSystemError;
        }
        if (failed_ != ncclSuccess) {
            return failed_;
        }
        const bool is_busy = looks_while_busy_ > 0;
        looks_while_busy_ -= is_busy ? 1 : 0;
        return !is_busy && connect() && (!finalizes_ || all_finalize()) ? ncclSuccess
                                                                        : ncclInProgress;
    }

    /// A stream takes so many calls; a GPU's takes about a thousand, and then the next call waits.
    static constexpr int most_queued = 16;

    /// A call goes to the stream. What would wait for room there fails instead.
    void enter_queue() {
        const std::lock_guard lock(mutex_);
        if (++queued_ > most_queued) {
            failed_ = ncclInternalError;
        }
    }
    void leave_queue() {
        const std::lock_guard lock(mutex_);
        --queued_;
    }

    /// A thread of NCCL goes on with the last call, and takes no other meanwhile.
    void be_busy() {
        const std::lock_guard lock(mutex_);
        if (looks_while_busy_ > 0) {
            failed_ = ncclInvalidUsage;
        }
        looks_while_busy_ = 2;
    }

    void abort() { aborted_ = true; }

    void finalize() {
        const std::lock_guard lock(mutex_);
        finalizes_ = true;
    }

    /// One try at what is left of messages that go at the same time, those between two ranks in
    /// their order; true: nothing is. A message is there for the sender once the receiver has it:
    /// earlier than that NCCL promises nothing. What has failed stays where it is until it is
    /// aborted.
    bool pass(std::vector<Passage>& passages) {
        const std::lock_guard lock(mutex_);
        if (aborted_) {
            return true;
        }
        if (failed_ != ncclSuccess || !connect()) {
            return false;
        }
        std::set<std::pair<int, bool>> waits;  // of each direction of a line, the first
        bool all = true;
        for (Passage& passage : passages) {
            const std::pair direction(passage.peer, passage.sends);
            if (passage.sends && !passage.sent) {
                send(line_to(passage.peer), passage.data, passage.bytes);
                passage.sent = true;
            }
            if (!passage.done && waits.count(direction) == 0) {
                passage.done = passage.sends ? is_taken(line_to(passage.peer)) : take(passage);
            }
            if (!passage.done) {
                waits.insert(direction);
                all = false;
            }
        }
        return all && failed_ == ncclSuccess;
    }

    struct Gathering {
        std::vector<bool> has_come;  ///< [rank]
        bool sent = false;
    };
    /// The same for what all tell all: rank 0 gets everything and sends it to everyone.
    bool gather(std::byte* mine, std::byte* all, std::size_t bytes, Gathering& state) {
        const std::lock_guard lock(mutex_);
        if (aborted_) {
            return true;
        }
        if (failed_ != ncclSuccess || !connect()) {
            return false;
        }
        const std::size_t whole = bytes * lines_.size();
        if (rank_ != 0) {
            Line& line = lines_.front();
            if (!std::exchange(state.sent, true)) {
                send_copy(line, mine, bytes);
            }
            return fill_from(line, all, whole);
        }
        state.has_come.resize(lines_.size());
        for (std::size_t i = 1; i < lines_.size(); ++i) {
            if (!state.has_come[i]) {
                state.has_come[i] = fill_from(lines_[i], all + i * bytes, bytes);
            }
            if (!state.has_come[i]) {
                return false;
            }
        }
        std::memcpy(inside(all), inside(mine), bytes);
        for (std::size_t i = 1; i < lines_.size(); ++i) {
            send_copy(lines_[i], all, whole);
        }
        return failed_ == ncclSuccess;
    }

  private:
    Line& line_to(int peer) { return lines_.at(static_cast<std::size_t>(peer)); }

    /// Each goes to those before it, and says who it is.
    bool connect() {
        if (connected_) {
            return true;
        }
        for (int peer = 0; peer < rank_; ++peer) {
            if (line_to(peer).open()) {
                continue;
            }
            const Address address(id_, peer);
            Socket socket = make_socket();
            if (::connect(socket.get(), address.get(), address.size) != 0) {
                return false;
            }
            fail_unless(::send(socket.get(), &rank_, sizeof rank_, MSG_NOSIGNAL) == sizeof rank_);
            line_to(peer) = Line(std::move(socket));
        }
        if (!newcomer_.open()) {
            newcomer_ =
                Socket(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        }
        if (newcomer_.open()) {
            pollfd wanted{newcomer_.get(), POLLIN, 0};
            if (::poll(&wanted, 1, 0) > 0) {
                int rank = 0;
                fail_unless(::recv(newcomer_.get(), &rank, sizeof rank, 0) == sizeof rank);
                if (failed_ == ncclSuccess) {
                    line_to(rank) = Line(std::move(newcomer_));
                }
                newcomer_ = {};
            }
        }
        for (int peer = 0; peer < static_cast<int>(lines_.size()); ++peer) {
            if (peer != rank_ && !line_to(peer).open()) {
                return false;
            }
        }
        meeting_ = {};
        return connected_ = true;
    }

    bool all_finalize() {
        for (const Line& line : lines_) {
            if (!said_bye_ && line.open()) {
                static_cast<void>(line.say_bye());
            }
        }
        said_bye_ = true;
        bool all = true;
        for (Line& line : lines_) {
            all = all && (!line.open() || line.has_bye());
        }
        return all;
    }

    void fail_unless(bool ok) {
        if (!ok && failed_ == ncclSuccess) {
            const std::error_code cause(errno, std::generic_category());
            std::fprintf(stderr,
                         "emulated NCCL, rank %d of %zu, %s: %s\n",
                         rank_,
                         lines_.size(),
                         id_.internal,
                         cause.message().c_str());
            failed_ = ncclRemoteError;  // the other end has gone
        }
    }

    /// What a GPU has goes as it is: it stays until the receiver has taken it.
    void send(const Line& line, const std::byte* data, std::size_t bytes) {
        if (const auto place = in_file(data)) {
            fail_unless(line.send_file(
                place->file, {.size = bytes, .offset = static_cast<std::uint64_t>(place->offset)}));
        } else {
            send_copy(line, data, bytes);
        }
    }
    void send_copy(const Line& line, const std::byte* data, std::size_t bytes) {
        fail_unless(line.send_file(file_of(inside(data), bytes).get(), {.size = bytes}));
    }

    bool is_taken(Line& line) {
        if (line.next_is_taken()) {
            return true;
        }
        fail_unless(!line.is_gone());
        return false;
    }

    bool take(const Passage& passage) {
        Line& line = line_to(passage.peer);
        if (!fill_from(line, passage.data, passage.bytes)) {
            return false;
        }
        fail_unless(line.say_taken());
        return failed_ == ncclSuccess;
    }

    Socket file_of(const std::byte* data, std::size_t bytes) {
        Socket file(::memfd_create("message", MFD_CLOEXEC));
        for (std::size_t done = 0; done < bytes && failed_ == ncclSuccess;) {
            const ssize_t put = ::write(file.get(), data + done, bytes - done);
            done += put > 0 ? static_cast<std::size_t>(put) : 0;
            fail_unless(put > 0 || errno == EINTR);
        }
        return file;
    }

    /// Takes the next message, which has that size; false: it is not there.
    bool fill_from(Line& line, std::byte* data, std::size_t bytes) {
        const std::optional<Line::Message> message = line.next_message();
        if (!message) {
            fail_unless(!line.is_gone());
            return false;
        }
        if (failed_ == ncclSuccess && message->place.size != bytes) {
            failed_ = ncclInvalidUsage;
        }
        if (failed_ == ncclSuccess) {
            std::byte* const begin = inside(data);
            for (std::size_t done = 0; done < bytes && failed_ == ncclSuccess;) {
                const ssize_t got = ::pread(message->file.get(),
                                            begin + done,
                                            bytes - done,
                                            static_cast<off_t>(message->place.offset + done));
                done += got > 0 ? static_cast<std::size_t>(got) : 0;
                fail_unless(got > 0 || errno == EINTR);
            }
        }
        return failed_ == ncclSuccess;
    }

    std::mutex mutex_;  ///< the GPU's thread and who asks
    ncclUniqueId id_;
    int rank_;
    bool ok_ = true;
    int looks_while_busy_ = 0;
    int queued_ = 0;
    bool connected_ = false;
    bool finalizes_ = false;
    bool said_bye_ = false;
    std::atomic<bool> aborted_ = false;
    ncclResult_t failed_ = ncclSuccess;
    Socket socket_;            ///< listens
    Socket meeting_;           ///< at NCCL_COMM_ID, until all have come
    Socket newcomer_;          ///< has not said which rank it is
    std::vector<Line> lines_;  ///< [rank], its own closed
};

}  // namespace

struct ncclComm {
    std::shared_ptr<Ends> ends;
};

namespace {

/// What the calling thread has begun to say, and not ended.
struct Group {
    int depth = 0;
    std::vector<Passage> passages;
    ncclComm_t communicator = nullptr;
    cudaStream_t stream = nullptr;
};
thread_local Group group;

void submit(ncclComm_t communicator, cudaStream_t stream, std::vector<Passage> passages) {
    communicator->ends->be_busy();
    communicator->ends->enter_queue();
    pipetwin::cuda::emulation::submit_tries(
        stream,
        [ends = communicator->ends,
         shared = std::make_shared<std::vector<Passage>>(std::move(passages))] {
            const bool done = ends->pass(*shared);
            if (done) {
                ends->leave_queue();
            }
            return done;
        });
}

ncclResult_t pass(const Passage& passage, ncclComm_t communicator, cudaStream_t stream) {
    if (group.depth == 0) {
        submit(communicator, stream, {passage});
        return ncclInProgress;
    }
    if (!group.passages.empty() && (group.communicator != communicator || group.stream != stream)) {
        return ncclInvalidUsage;  // of what is not emulated
    }
    group.communicator = communicator;
    group.stream = stream;
    group.passages.push_back(passage);
    return ncclSuccess;
}

std::string meeting_place() {
    const char* const place = std::getenv("NCCL_COMM_ID");
    return place == nullptr ? "" : place;
}

}  // namespace

const char* ncclGetErrorString(ncclResult_t result) {
    switch (result) {
        case ncclSuccess:
            return "no error";
        case ncclInvalidUsage:
            return "invalid usage (of the emulated NCCL: the two ends mean different sizes)";
        case ncclRemoteError:
            return "remote process exited or there was a network error";
        case ncclInternalError:
            return "internal error (of the emulated NCCL: a stream is full, and the call would "
                   "wait)";
        case ncclInProgress:
            return "NCCL operation in progress";
        default:
            return "unhandled system error";
    }
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    static std::atomic<int> number = 0;
    *id = {};
    const std::string place = meeting_place();
    const std::string name =
        "pipetwin-nccl-" +
        (place.empty() ? std::to_string(::getpid()) + "-" + std::to_string(number++) : place);
    std::copy(name.begin(), name.end(), id->internal);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(
    ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
    if (ranks < 2 || config->blocking != 0) {
        return ncclInvalidArgument;  // of what is not emulated
    }
    *communicator = new ncclComm{std::make_shared<Ends>(id, rank, ranks, meeting_place())};
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* state) {
    *state = communicator->ends->state();
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
    communicator->ends->finalize();
    return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
    return ncclCommAbort(communicator);
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
    communicator->ends->abort();
    delete communicator;
    return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
    ++group.depth;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
    if (--group.depth > 0 || group.passages.empty()) {
        return ncclSuccess;
    }
    submit(group.communicator, group.stream, std::exchange(group.passages, {}));
    return ncclInProgress;
}

ncclResult_t ncclSend(const void* data,
                      std::size_t count,
                      ncclDataType_t /*type*/,
                      int peer,
                      ncclComm_t communicator,
                      cudaStream_t stream) {
    auto* const bytes = static_cast<std::byte*>(const_cast<void*>(data));
    return pass({bytes, count, peer, true}, communicator, stream);
}

ncclResult_t ncclRecv(void* data,
                      std::size_t count,
                      ncclDataType_t /*type*/,
                      int peer,
                      ncclComm_t communicator,
                      cudaStream_t stream) {
    return pass({static_cast<std::byte*>(data), count, peer, false}, communicator, stream);
}

ncclResult_t ncclAllGather(const void* data,
                           void* all,
                           std::size_t count,
                           ncclDataType_t /*type*/,
                           ncclComm_t communicator,
                           cudaStream_t stream) {
    communicator->ends->be_busy();
    pipetwin::cuda::emulation::submit_tries(
        stream,
        [ends = communicator->ends,
         mine = static_cast<std::byte*>(const_cast<void*>(data)),
         all = static_cast<std::byte*>(all),
         count,
         state = std::make_shared<Ends::Gathering>()] {
            return ends->gather(mine, all, count, *state);
        });
    return ncclInProgress;
}

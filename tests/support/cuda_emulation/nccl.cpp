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
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "tests/support/cuda_emulation/emulation.h"

namespace {

using pipetwin::cuda::emulation::with_memory_at;

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

Socket make_socket() {
    return Socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

/// In the abstract namespace: gone with its socket.
struct Address {
    sockaddr_un address{};
    socklen_t size = 0;
    explicit Address(const ncclUniqueId& id) {
        const std::string_view name(id.internal);
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

/// What a communicator is to its handle, and to what its streams have yet to do. Every other rank
/// has a line to rank 0.
class Ends {
  public:
    Ends(const ncclUniqueId& id, int rank, int ranks, const std::string& place)
        : address_(id), rank_(rank), ranks_(ranks) {
        socket_ = make_socket();
        if (rank_ == 0) {
            lines_.resize(static_cast<std::size_t>(ranks) - 1);
            ok_ = ::bind(socket_.get(), address_.get(), address_.size) == 0 &&
                  ::listen(socket_.get(), ranks) == 0;
            if (!place.empty()) {
                meeting_ = listen_at(place);
                ok_ = ok_ && meeting_.open();
            }
        } else {
            lines_.resize(1);
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
        return connect() && (!finalizes_ || all_finalize()) ? ncclSuccess : ncclInProgress;
    }

    void abort() { aborted_ = true; }

    void finalize() {
        const std::lock_guard lock(mutex_);
        finalizes_ = true;
        if (rank_ != 0 && lines_.front().open()) {
            say_bye(lines_.front());
        }
    }

    /// One try at what is left of a message; true: nothing is. It goes as a file in memory, and is
    /// there for the sender once the receiver has it: earlier than that NCCL promises nothing. What
    /// has failed stays where it is until it is aborted.
    bool pass(std::byte* data, std::size_t bytes, bool sends, bool& sent) {
        const std::lock_guard lock(mutex_);
        if (aborted_) {
            return true;
        }
        if (failed_ != ncclSuccess || !connect()) {
            return false;
        }
        const Socket& line = lines_.front();
        if (sends && !sent) {
            send_file(line, file_of(data, bytes).get(), bytes);
            sent = true;
            return false;
        }
        if (!has_something(line)) {
            return false;
        }
        if (sends) {
            char taken = 0;
            fail_unless(::recv(line.get(), &taken, 1, 0) == 1);
            return failed_ == ncclSuccess;
        }
        if (fill_from(line, data, bytes)) {
            const char taken = 1;
            fail_unless(::send(line.get(), &taken, 1, MSG_NOSIGNAL) == 1);
        }
        return failed_ == ncclSuccess;
    }

    struct Gathering {
        std::vector<bool> has_come;  ///< [line]
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
        if (rank_ != 0) {
            const Socket& line = lines_.front();
            if (!state.sent) {
                send_file(line, file_of(mine, bytes).get(), bytes);
                state.sent = true;
            }
            return has_something(line) &&
                   fill_from(line, all, bytes * static_cast<std::size_t>(ranks_));
        }
        state.has_come.resize(lines_.size());
        for (std::size_t i = 0; i < lines_.size(); ++i) {
            if (!state.has_come[i] && has_something(lines_[i])) {
                state.has_come[i] = fill_from(lines_[i], all + (i + 1) * bytes, bytes);
            }
            if (!state.has_come[i]) {
                return false;
            }
        }
        with_memory_at(all, [&] { std::memcpy(all, mine, bytes); });
        const std::size_t whole = bytes * (lines_.size() + 1);
        for (const Socket& line : lines_) {
            send_file(line, file_of(all, whole).get(), whole);
        }
        return failed_ == ncclSuccess;
    }

  private:
    bool connect() {
        if (connected_) {
            return true;
        }
        if (rank_ != 0) {
            if (::connect(socket_.get(), address_.get(), address_.size) != 0) {
                return false;
            }
            lines_.front() = std::move(socket_);
            fail_unless(::send(lines_.front().get(), &rank_, sizeof rank_, MSG_NOSIGNAL) ==
                        sizeof rank_);
            return connected_ = true;
        }
        if (!newcomer_.open()) {
            newcomer_ =
                Socket(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        }
        if (newcomer_.open() && has_something(newcomer_)) {
            int rank = 0;
            fail_unless(::recv(newcomer_.get(), &rank, sizeof rank, 0) == sizeof rank);
            if (failed_ == ncclSuccess) {
                lines_[static_cast<std::size_t>(rank) - 1] = std::move(newcomer_);
            }
            newcomer_ = {};
        }
        connected_ = std::all_of(
            lines_.begin(), lines_.end(), [](const Socket& line) { return line.open(); });
        if (connected_) {
            meeting_ = {};
        }
        return connected_;
    }

    /// Rank 0 answers when all have said so.
    bool all_finalize() {
        if (rank_ != 0) {
            return takes_bye(lines_.front(), 0);
        }
        bool all = true;
        for (std::size_t i = 0; i < lines_.size(); ++i) {
            all = takes_bye(lines_[i], i) && all;
        }
        if (all && !said_bye_) {
            for (const Socket& line : lines_) {
                say_bye(line);
            }
            said_bye_ = true;
        }
        return all;
    }

    static void say_bye(const Socket& line) {
        const char bye = 2;
        static_cast<void>(::send(line.get(), &bye, 1, MSG_NOSIGNAL));
    }

    bool takes_bye(const Socket& line, std::size_t index) {
        byes_.resize(lines_.size());
        char bye = 0;
        if (!byes_[index] && has_something(line)) {
            byes_[index] = ::recv(line.get(), &bye, 1, 0) >= 0;  // or it has gone
        }
        return byes_[index];
    }

    static bool has_something(const Socket& line) {
        pollfd wanted{line.get(), POLLIN, 0};
        return ::poll(&wanted, 1, 0) > 0;
    }

    void fail_unless(bool ok) {
        if (!ok && failed_ == ncclSuccess) {
            const std::error_code cause(errno, std::generic_category());
            std::fprintf(stderr,
                         "emulated NCCL, rank %d of %d, %s: %s\n",
                         rank_,
                         ranks_,
                         address_.address.sun_path + 1,
                         cause.message().c_str());
            failed_ = ncclRemoteError;  // the other end has gone
        }
    }

    Socket file_of(const std::byte* data, std::size_t bytes) {
        Socket file(::memfd_create("message", MFD_CLOEXEC));
        with_memory_at(data, [&] {
            for (std::size_t done = 0; done < bytes && failed_ == ncclSuccess;) {
                const ssize_t put = ::write(file.get(), data + done, bytes - done);
                done += put > 0 ? static_cast<std::size_t>(put) : 0;
                fail_unless(put > 0 || errno == EINTR);
            }
        });
        return file;
    }

    /// A message of a socket that carries a file beside its bytes.
    struct Carrier {
        std::uint64_t size = 0;
        iovec part{&size, sizeof size};
        alignas(cmsghdr) char beside[CMSG_SPACE(sizeof(int))] = {};
        msghdr message{};
        Carrier() {
            message.msg_iov = &part;
            message.msg_iovlen = 1;
            message.msg_control = beside;
            message.msg_controllen = sizeof beside;
        }
    };

    void send_file(const Socket& line, int file, std::size_t bytes) {
        Carrier carrier;
        carrier.size = bytes;
        cmsghdr* const head = CMSG_FIRSTHDR(&carrier.message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof file);
        std::memcpy(CMSG_DATA(head), &file, sizeof file);
        fail_unless(::sendmsg(line.get(), &carrier.message, MSG_NOSIGNAL) == sizeof carrier.size);
    }

    std::pair<Socket, std::size_t> receive_file(const Socket& line) {
        Carrier carrier;
        fail_unless(::recvmsg(line.get(), &carrier.message, MSG_CMSG_CLOEXEC) ==
                    sizeof carrier.size);
        int file = -1;
        if (const cmsghdr* const head = CMSG_FIRSTHDR(&carrier.message); head != nullptr) {
            std::memcpy(&file, CMSG_DATA(head), sizeof file);
        }
        return {Socket(file), carrier.size};
    }

    /// Takes a message of that size.
    bool fill_from(const Socket& line, std::byte* data, std::size_t bytes) {
        const auto [file, size] = receive_file(line);
        if (failed_ == ncclSuccess && size != bytes) {
            failed_ = ncclInvalidUsage;
        }
        if (failed_ == ncclSuccess) {
            with_memory_at(data, [&, descriptor = file.get()] {
                for (std::size_t done = 0; done < bytes && failed_ == ncclSuccess;) {
                    const ssize_t got =
                        ::pread(descriptor, data + done, bytes - done, static_cast<off_t>(done));
                    done += got > 0 ? static_cast<std::size_t>(got) : 0;
                    fail_unless(got > 0 || errno == EINTR);
                }
            });
        }
        return failed_ == ncclSuccess;
    }

    std::mutex mutex_;  ///< the GPU's thread and who asks
    Address address_;
    int rank_;
    int ranks_;
    bool ok_ = true;
    bool connected_ = false;
    bool finalizes_ = false;
    bool said_bye_ = false;
    std::atomic<bool> aborted_ = false;
    ncclResult_t failed_ = ncclSuccess;
    Socket socket_;    ///< rank 0's listens
    Socket meeting_;   ///< at NCCL_COMM_ID, until all have come
    Socket newcomer_;  ///< has not said which rank it is
    std::vector<Socket> lines_;
    std::vector<bool> byes_;
};

}  // namespace

struct ncclComm {
    std::shared_ptr<Ends> ends;
};

namespace {

ncclResult_t pass(
    void* data, std::size_t bytes, bool sends, ncclComm_t communicator, cudaStream_t stream) {
    pipetwin::cuda::emulation::submit_tries(
        stream,
        [ends = communicator->ends,
         data = static_cast<std::byte*>(data),
         bytes,
         sends,
         sent = std::make_shared<bool>(false)] { return ends->pass(data, bytes, sends, *sent); });
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

ncclResult_t ncclSend(const void* data,
                      std::size_t count,
                      ncclDataType_t /*type*/,
                      int /*peer*/,
                      ncclComm_t communicator,
                      cudaStream_t stream) {
    return pass(const_cast<void*>(data), count, true, communicator, stream);
}

ncclResult_t ncclRecv(void* data,
                      std::size_t count,
                      ncclDataType_t /*type*/,
                      int /*peer*/,
                      ncclComm_t communicator,
                      cudaStream_t stream) {
    return pass(data, count, false, communicator, stream);
}

ncclResult_t ncclAllGather(const void* data,
                           void* all,
                           std::size_t count,
                           ncclDataType_t /*type*/,
                           ncclComm_t communicator,
                           cudaStream_t stream) {
    pipetwin::cuda::emulation::submit_tries(
        stream,
        [ends = communicator->ends,
         mine = static_cast<std::byte*>(const_cast<void*>(data)),
         all = static_cast<std::byte*>(all),
         count,
         state = std::make_shared<Ends::Gathering>()] {
            return ends->gather(mine, all, count, *state);
        });
    return ncclSuccess;
}

#include "tests/support/cuda_emulation/nccl.h"

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
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "tests/support/cuda_emulation/emulation.h"

namespace {

using pipetwin::cuda::emulation::with_memory_of;

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

/// What a communicator is to its handle, and to what its streams have yet to do.
class Ends {
  public:
    Ends(const ncclUniqueId& id, bool sends) : address_(id), sends_(sends) {
        socket_ = make_socket();
        if (sends_) {
            ok_ = ::bind(socket_.get(), address_.get(), address_.size) == 0 &&
                  ::listen(socket_.get(), 1) == 0;
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
        return connect() ? ncclSuccess : ncclInProgress;
    }

    void abort() { aborted_ = true; }

    /// One try at what is left of a message; true: nothing is. It goes as a file in memory, and is
    /// there for the sender once the receiver has it: earlier than that NCCL promises nothing. What
    /// has failed stays where it is until it is aborted.
    bool pass(cudaStream_t stream, std::byte* data, std::size_t bytes, bool& sent) {
        const std::lock_guard lock(mutex_);
        if (aborted_) {
            return true;
        }
        if (failed_ != ncclSuccess || !connect()) {
            return false;
        }
        if (sends_ && !sent) {
            const Socket file(::memfd_create("message", MFD_CLOEXEC));
            with_memory_of(stream, [&] {
                if (::write(file.get(), data, bytes) != static_cast<ssize_t>(bytes)) {
                    failed_ = ncclSystemError;
                }
            });
            send_file(file.get(), bytes);
            sent = true;
            return false;
        }
        pollfd line{line_.get(), POLLIN, 0};
        if (::poll(&line, 1, 0) == 0) {
            return false;
        }
        if (sends_) {
            char taken = 0;
            fail_unless(::recv(line_.get(), &taken, 1, 0) == 1);
            return failed_ == ncclSuccess;
        }
        const auto [file, size] = receive_file();
        if (failed_ == ncclSuccess && size != bytes) {
            failed_ = ncclInvalidUsage;
        }
        if (failed_ == ncclSuccess) {
            with_memory_of(stream, [&, descriptor = file.get()] {
                fail_unless(::pread(descriptor, data, bytes, 0) == static_cast<ssize_t>(bytes));
            });
            const char taken = 1;
            fail_unless(::send(line_.get(), &taken, 1, MSG_NOSIGNAL) == 1);
        }
        return failed_ == ncclSuccess;
    }

  private:
    bool connect() {
        if (line_.open()) {
            return true;
        }
        if (sends_) {
            line_ =
                Socket(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        } else if (::connect(socket_.get(), address_.get(), address_.size) == 0) {
            line_ = std::move(socket_);
        }
        return line_.open();
    }

    void fail_unless(bool ok) {
        if (!ok && failed_ == ncclSuccess) {
            failed_ = ncclRemoteError;  // the other end has gone
        }
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

    void send_file(int file, std::size_t bytes) {
        Carrier carrier;
        carrier.size = bytes;
        cmsghdr* const head = CMSG_FIRSTHDR(&carrier.message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof file);
        std::memcpy(CMSG_DATA(head), &file, sizeof file);
        fail_unless(::sendmsg(line_.get(), &carrier.message, MSG_NOSIGNAL) == sizeof carrier.size);
    }

    std::pair<Socket, std::size_t> receive_file() {
        Carrier carrier;
        fail_unless(::recvmsg(line_.get(), &carrier.message, MSG_CMSG_CLOEXEC) ==
                    sizeof carrier.size);
        int file = -1;
        if (const cmsghdr* const head = CMSG_FIRSTHDR(&carrier.message); head != nullptr) {
            std::memcpy(&file, CMSG_DATA(head), sizeof file);
        }
        return {Socket(file), carrier.size};
    }

    std::mutex mutex_;  ///< the GPU's thread and who asks
    Address address_;
    bool sends_;
    bool ok_ = true;
    std::atomic<bool> aborted_ = false;
    ncclResult_t failed_ = ncclSuccess;
    Socket socket_;  ///< the sender's listens
    Socket line_;
};

}  // namespace

struct ncclComm {
    std::shared_ptr<Ends> ends;
};

namespace {

ncclResult_t pass(void* data, std::size_t bytes, ncclComm_t communicator, cudaStream_t stream) {
    pipetwin::cuda::emulation::submit_tries(
        stream,
        [ends = communicator->ends,
         data = static_cast<std::byte*>(data),
         bytes,
         stream,
         sent = std::make_shared<bool>(false)] { return ends->pass(stream, data, bytes, *sent); });
    return ncclSuccess;
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
    const std::string name =
        "pipetwin-nccl-" + std::to_string(::getpid()) + "-" + std::to_string(number++);
    std::copy(name.begin(), name.end(), id->internal);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(
    ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
    if (ranks != 2 || config->blocking != 0) {
        return ncclInvalidArgument;  // of what is not emulated
    }
    *communicator = new ncclComm{std::make_shared<Ends>(id, rank == 0)};
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* state) {
    *state = communicator->ends->state();
    return ncclSuccess;
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
    return pass(const_cast<void*>(data), count, communicator, stream);
}

ncclResult_t ncclRecv(void* data,
                      std::size_t count,
                      ncclDataType_t /*type*/,
                      int /*peer*/,
                      ncclComm_t communicator,
                      cudaStream_t stream) {
    return pass(data, count, communicator, stream);
}

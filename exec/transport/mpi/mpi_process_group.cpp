// SPDX-License-Identifier: Apache-2.0
#include <sys/prctl.h>

#include <array>
#include <cstdint>
#include <cstdlib>

#include "core/base/as_index.h"
#include "exec/transport/mpi/mpi_channel.h"
#include "exec/transport/mpi/mpi_check.h"
#include "exec/transport/mpi_module.h"
#include "exec/transport/process_group.h"
#include "exec/transport/remote_sum.h"

namespace pipetwin::exec::mpi {
namespace {

MPI_Comm copy_of(MPI_Comm comm) {
    MPI_Comm copy = MPI_COMM_NULL;
    PIPETWIN_MPI_CALL(MPI_Comm_dup(comm, &copy));
    PIPETWIN_MPI_CALL(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN));
    return copy;
}

/// MPI is begun before it, and ended by `finalize`.
class MpiProcessGroup final : public ProcessGroup {
  public:
    MpiProcessGroup()
        : control_(copy_of(MPI_COMM_WORLD)),
          norms_(copy_of(MPI_COMM_WORLD)),
          parting_(copy_of(MPI_COMM_WORLD)),
          blobs_(copy_of(MPI_COMM_WORLD)),
          calls_(copy_of(MPI_COMM_WORLD)),
          lines_{.messages = copy_of(MPI_COMM_WORLD), .room = copy_of(MPI_COMM_WORLD)},
          alarm_(copy_of(MPI_COMM_WORLD)) {
        PIPETWIN_MPI_CALL(MPI_Comm_rank(control_, &index_));
        PIPETWIN_MPI_CALL(MPI_Comm_size(control_, &size_));
        outgoing_.resize(as_index(size_));
    }

    int index() const override { return index_; }
    int size() const override { return size_; }

    std::unique_ptr<Channel> open(const RemoteEnd& end) override {
        if (end.sends) {
            return std::make_unique<SendEnd>(lines_, alarm_, end);
        }
        return std::make_unique<ReceiveEnd>(lines_, alarm_, end);
    }

    std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine,
                                                   Lane lane) override {
        const bool may_abort = lane == Lane::Norm;
        return gathered(mine, lane == Lane::Norm ? norms_ : control_, [&](MPI_Request& request) {
            wait_for(request, may_abort);
            return true;
        });
    }

    std::optional<std::vector<std::vector<std::byte>>> final_barrier(
        std::span<const std::byte> last_words, Duration patience) override {
        const auto end = std::chrono::steady_clock::now() + patience;
        bool all_came = true;
        try {
            auto words = gathered(last_words, parting_, [&](MPI_Request& request) {
                alarm_.wait(
                    [&] {
                        all_came = is_done(request);
                        return all_came || std::chrono::steady_clock::now() > end;
                    },
                    false);
                return all_came;
            });
            return all_came ? std::optional(std::move(words)) : std::nullopt;
        } catch (const ProcessLost&) {
            return std::nullopt;
        }
    }

    std::unique_ptr<RemoteSum> open_sum(std::span<const int> /*members*/) override { return {}; }

    void send(int to, std::span<const std::byte> bytes) override {
        const auto size = static_cast<std::int64_t>(bytes.size());
        send_part(to, std::as_bytes(std::span(&size, 1)));
        for (std::size_t begin = 0; begin < bytes.size(); begin += most_at_once) {
            send_part(to, bytes.subspan(begin, std::min(most_at_once, bytes.size() - begin)));
        }
    }

    std::vector<std::byte> receive(int from) override {
        std::int64_t size = 0;
        receive_part(from, std::as_writable_bytes(std::span(&size, 1)));
        std::vector<std::byte> bytes(as_index(size));
        for (std::size_t begin = 0; begin < bytes.size(); begin += most_at_once) {
            receive_part(
                from,
                std::span(bytes).subspan(begin, std::min(most_at_once, bytes.size() - begin)));
        }
        return bytes;
    }

    /// Any call moves whatever is under way.
    void progress() override { static_cast<void>(alarm_.raised()); }

    void throw_if_aborted() override { alarm_.throw_if_aborted(); }

    void abort() noexcept override { alarm_.raise(); }
    void mark_peer_lost() noexcept override { alarm_.mark_peer_lost(); }

    void post_status(std::span<const std::byte> bytes) override {
        for (int other = 0; other < size_; ++other) {
            Outgoing& outgoing = outgoing_[as_index(other)];
            // While the last one has not left, another would only wait behind it.
            if (other != index_ && is_done(outgoing.request)) {
                outgoing.bytes.assign(bytes.begin(), bytes.end());
                PIPETWIN_MPI_CALL(MPI_Isend(outgoing.bytes.data(),
                                            static_cast<int>(outgoing.bytes.size()),
                                            MPI_BYTE,
                                            other,
                                            0,
                                            calls_,
                                            &outgoing.request));
            }
        }
    }

    std::optional<Status> poll_status() override {
        int there = 0;
        MPI_Status envelope;
        MPI_Message message = MPI_MESSAGE_NULL;
        PIPETWIN_MPI_CALL(MPI_Improbe(MPI_ANY_SOURCE, 0, calls_, &there, &message, &envelope));
        if (there == 0) {
            return std::nullopt;
        }
        int size = 0;
        PIPETWIN_MPI_CALL(MPI_Get_count(&envelope, MPI_BYTE, &size));
        Status status{.from = envelope.MPI_SOURCE, .bytes = std::vector<std::byte>(as_index(size))};
        PIPETWIN_MPI_CALL(
            MPI_Mrecv(status.bytes.data(), size, MPI_BYTE, &message, MPI_STATUS_IGNORE));
        return status;
    }

    void finalize() noexcept override { MPI_Finalize(); }

  private:
    static constexpr std::size_t most_at_once = std::size_t{1} << 30;

    static bool is_done(MPI_Request& request) {
        int done = 0;
        PIPETWIN_MPI_CALL(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
        return done != 0;
    }

    void wait_for(MPI_Request& request, bool may_abort) {
        alarm_.wait([&request] { return is_done(request); }, may_abort);
    }

    /// `wait` returns whether what was asked for is done; nothing is gathered if not.
    template <class Wait>
    std::vector<std::vector<std::byte>> gathered(std::span<const std::byte> mine,
                                                 MPI_Comm comm,
                                                 const Wait& wait) const {
        // If it is not done in time, MPI is not called again, so nothing is written any more.
        const auto own = static_cast<std::int64_t>(mine.size());
        std::vector<std::int64_t> sizes(as_index(size_));
        MPI_Request request = MPI_REQUEST_NULL;
        PIPETWIN_MPI_CALL(
            MPI_Iallgather(&own, 1, MPI_INT64_T, sizes.data(), 1, MPI_INT64_T, comm, &request));
        if (!wait(request)) {
            return {};
        }
        std::vector<int> counts(sizes.size());
        std::vector<int> places(sizes.size());
        std::int64_t all = 0;
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            counts[i] = static_cast<int>(sizes[i]);
            places[i] = static_cast<int>(all);
            all += sizes[i];
        }
        PIPETWIN_EXPECT(all <= std::int64_t{INT32_MAX}, "what is gathered has less than 2 GiB");
        std::vector<std::byte> together(as_index(all));
        PIPETWIN_MPI_CALL(MPI_Iallgatherv(mine.data(),
                                          static_cast<int>(own),
                                          MPI_BYTE,
                                          together.data(),
                                          counts.data(),
                                          places.data(),
                                          MPI_BYTE,
                                          comm,
                                          &request));
        if (!wait(request)) {
            return {};
        }
        std::vector<std::vector<std::byte>> parts;
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            const auto begin = together.begin() + places[i];
            parts.emplace_back(begin, begin + counts[i]);
        }
        return parts;
    }

    void send_part(int to, std::span<const std::byte> bytes) {
        MPI_Request request = MPI_REQUEST_NULL;
        PIPETWIN_MPI_CALL(MPI_Isend(
            bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, to, 0, blobs_, &request));
        wait_for(request, true);
    }

    void receive_part(int from, std::span<std::byte> bytes) {
        MPI_Request request = MPI_REQUEST_NULL;
        PIPETWIN_MPI_CALL(MPI_Irecv(
            bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, from, 0, blobs_, &request));
        wait_for(request, true);
    }

    struct Outgoing {
        std::vector<std::byte> bytes;
        MPI_Request request = MPI_REQUEST_NULL;
    };

    int index_ = 0;
    int size_ = 1;
    std::vector<Outgoing> outgoing_;
    MPI_Comm control_;
    MPI_Comm norms_;
    MPI_Comm parting_;
    MPI_Comm blobs_;
    MPI_Comm calls_;
    Lines lines_;
    Alarm alarm_;
};

}  // namespace
}  // namespace pipetwin::exec::mpi

int pipetwin_mpi_interface_version() {
    return pipetwin_mpi_interface;
}

void pipetwin_mpi_join(pipetwin::exec::ProcessGroup** group) {
    // A sleep between two looks for a message is to last as long as it says.
    prctl(PR_SET_TIMERSLACK, 1000UL);
    // Open MPI's 64 KiB: above it a message leaves only once both ends have looked, and its sender
    // is computing by then. Below it the system has it at once. Who has set it knows better.
    constexpr int keep = 0;
    setenv("OMPI_MCA_btl_tcp_eager_limit", "4194304", keep);
    int given = 0;
    PIPETWIN_MPI_CALL(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &given));
    if (given < MPI_THREAD_MULTIPLE) {
        throw pipetwin::Error(pipetwin::ErrorKind::Unavailable,
                              "MPI",
                              "this MPI was built without MPI_THREAD_MULTIPLE",
                              "install Debian's: apt-get install openmpi-bin libopenmpi3");
    }
    *group = new pipetwin::exec::mpi::MpiProcessGroup;
}

const char* pipetwin_mpi_library() {
    static std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    return text.data();
}

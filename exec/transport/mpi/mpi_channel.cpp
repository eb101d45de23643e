// SPDX-License-Identifier: Apache-2.0
#include "exec/transport/mpi/mpi_channel.h"

#include <algorithm>
#include <utility>

#include "exec/transport/mpi/mpi_check.h"

namespace pipetwin::exec::mpi {
namespace {

using Clock = std::chrono::steady_clock;

/// MPI counts in int.
constexpr std::size_t most_at_once = std::size_t{1} << 30;

/// Calls `issue` for each part of a tensor's bytes.
template <class Issue>
void in_parts(Tensor& tensor, std::vector<MPI_Request>& parts, const Issue& issue) {
    auto* const data = static_cast<std::byte*>(tensor.data());
    const auto bytes = static_cast<std::size_t>(tensor.bytes().count);
    parts.clear();
    for (std::size_t begin = 0; begin < bytes || begin == 0; begin += most_at_once) {
        const auto count = static_cast<int>(std::min(most_at_once, bytes - begin));
        issue(
            data == nullptr ? nullptr : data + begin, count, &parts.emplace_back(MPI_REQUEST_NULL));
    }
}

bool all_done(std::vector<MPI_Request>& parts) {
    int done = 0;
    PIPETWIN_MPI_CALL(
        MPI_Testall(static_cast<int>(parts.size()), parts.data(), &done, MPI_STATUSES_IGNORE));
    return done != 0;
}

/// What is posted and will not be taken any more. Nothing can be done about errors.
void give_up(std::vector<MPI_Request>& parts) noexcept {
    for (MPI_Request& request : parts) {
        if (request != MPI_REQUEST_NULL) {
            MPI_Cancel(&request);
            MPI_Request_free(&request);
        }
    }
    parts.clear();
}

}  // namespace

void Alarm::raise() noexcept {
    if (raised_.exchange(true)) {
        return;
    }
    int self = 0;
    int size = 0;
    MPI_Comm_rank(comm_, &self);
    MPI_Comm_size(comm_, &size);
    for (int other = 0; other < size; ++other) {
        if (other != self) {
            MPI_Request request = MPI_REQUEST_NULL;
            MPI_Isend(nullptr, 0, MPI_BYTE, other, 0, comm_, &request);
            MPI_Request_free(&request);
        }
    }
}

bool Alarm::raised() noexcept {
    if (!raised_) {
        int there = 0;
        MPI_Iprobe(MPI_ANY_SOURCE, 0, comm_, &there, MPI_STATUS_IGNORE);
        if (there != 0) {
            raised_ = true;
        }
    }
    return raised_;
}

SendEnd::SendEnd(const Lines& lines, Alarm& alarm, const RemoteEnd& end)
    : lines_(lines), alarm_(alarm), end_(end) {
    if (end_.capacity) {
        PIPETWIN_MPI_CALL(
            MPI_Irecv(nullptr, 0, MPI_BYTE, end_.peer, end_.tag, lines_.room, &answer_));
    }
}

SendEnd::~SendEnd() {
    give_up(parts_);
    if (answer_ != MPI_REQUEST_NULL) {
        MPI_Cancel(&answer_);
        MPI_Request_free(&answer_);
    }
}

void SendEnd::count_taken() {
    int there = 1;
    while (there != 0) {
        PIPETWIN_MPI_CALL(MPI_Test(&answer_, &there, MPI_STATUS_IGNORE));
        if (there != 0) {
            ++taken_;
            PIPETWIN_MPI_CALL(
                MPI_Irecv(nullptr, 0, MPI_BYTE, end_.peer, end_.tag, lines_.room, &answer_));
        }
    }
}

TimePoint SendEnd::send(Message message) {
    if (end_.capacity) {
        const std::int64_t most = std::max(*end_.capacity, 1);
        alarm_.wait([&] {
            count_taken();
            return sent_ - taken_ < most;
        });
    }
    settle();
    on_its_way_ = std::move(message);
    in_parts(on_its_way_.tensor, parts_, [this](void* data, int count, MPI_Request* request) {
        PIPETWIN_MPI_CALL(
            MPI_Isend(data, count, MPI_BYTE, end_.peer, end_.tag, lines_.messages, request));
    });
    ++sent_;
    if (end_.capacity == 0) {
        alarm_.wait([this] {
            count_taken();
            return taken_ == sent_;
        });
    }
    if (all_done(parts_)) {
        on_its_way_ = {};
    }
    return Clock::now();
}

void SendEnd::settle() {
    alarm_.wait([this] { return all_done(parts_); });
    on_its_way_ = {};
}

Channel::Received SendEnd::receive() {
    throw InternalError("this process has the sending end of the channel");
}

void SendEnd::expect(Tensor) {
    throw InternalError("this process has the sending end of the channel");
}

void SendEnd::reopen() {
    throw InternalError("a channel between processes is not opened again");
}

ReceiveEnd::~ReceiveEnd() {
    for (Expected& expected : expected_) {
        give_up(expected.parts);
    }
}

TimePoint ReceiveEnd::send(Message) {
    throw InternalError("this process has the receiving end of the channel");
}

void ReceiveEnd::expect(Tensor place) {
    Expected& expected = expected_.emplace_back();
    expected.place = std::move(place);
    in_parts(expected.place, expected.parts, [this](void* data, int count, MPI_Request* request) {
        PIPETWIN_MPI_CALL(
            MPI_Irecv(data, count, MPI_BYTE, end_.peer, end_.tag, lines_.messages, request));
    });
}

bool ReceiveEnd::has_come() {
    return !expected_.empty() && all_done(expected_.front().parts);
}

Channel::Received ReceiveEnd::receive() {
    PIPETWIN_EXPECT(!expected_.empty(), "what is received was expected");
    Expected& next = expected_.front();
    TimePoint arrived;  // it was there before
    if (!all_done(next.parts)) {
        alarm_.wait([&next] { return all_done(next.parts); });
        arrived = Clock::now();
    }
    Received received{
        .message = {.micro_batch = 0, .tensor = std::move(next.place), .available = {}},
        .arrived = arrived};
    expected_.pop_front();
    if (end_.capacity) {
        MPI_Request request = MPI_REQUEST_NULL;
        PIPETWIN_MPI_CALL(
            MPI_Isend(nullptr, 0, MPI_BYTE, end_.peer, end_.tag, lines_.room, &request));
        PIPETWIN_MPI_CALL(MPI_Request_free(&request));
    }
    return received;
}

void ReceiveEnd::reopen() {
    throw InternalError("a channel between processes is not opened again");
}

}  // namespace pipetwin::exec::mpi

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <deque>
#include <vector>

#include "exec/transport/mpi/alarm.h"
#include "exec/transport/process_group.h"

namespace pipetwin::exec::mpi {

/// What channels share: communicators of their own for messages and for what makes room.
struct Lines {
    MPI_Comm messages = MPI_COMM_NULL;
    MPI_Comm room = MPI_COMM_NULL;
};

/// The sending end. With a capacity the receiver answers each message that it has taken, which
/// makes room for another. At most one message is on its way at a time; its tensor stays until
/// then.
class SendEnd final : public Channel {
  public:
    SendEnd(const Lines& lines, Alarm& alarm, const RemoteEnd& end);
    ~SendEnd() override;

    TimePoint send(Message message) override;
    Received receive() override;
    void expect(Tensor place) override;
    void settle() override;
    void close() override { alarm_.raise(); }
    void reopen() override;
    std::optional<int> capacity() const override { return end_.capacity; }

  private:
    void count_taken();

    Lines lines_;
    Alarm& alarm_;
    RemoteEnd end_;
    Message on_its_way_;
    std::vector<MPI_Request> parts_;  ///< of the message on its way
    MPI_Request answer_ = MPI_REQUEST_NULL;
    std::int64_t sent_ = 0;
    std::int64_t taken_ = 0;
};

/// The receiving end. Messages go straight into the places that they were expected at.
class ReceiveEnd final : public Channel {
  public:
    ReceiveEnd(const Lines& lines, Alarm& alarm, const RemoteEnd& end)
        : lines_(lines), alarm_(alarm), end_(end) {}
    ~ReceiveEnd() override;

    TimePoint send(Message message) override;
    Received receive() override;
    void expect(Tensor place) override;
    bool has_come() override;
    void settle() override {}
    void close() override { alarm_.raise(); }
    void reopen() override;
    std::optional<int> capacity() const override { return end_.capacity; }

  private:
    struct Expected {
        Tensor place;
        std::vector<MPI_Request> parts;
    };
    Lines lines_;
    Alarm& alarm_;
    RemoteEnd end_;
    std::deque<Expected> expected_;
};

}  // namespace pipetwin::exec::mpi

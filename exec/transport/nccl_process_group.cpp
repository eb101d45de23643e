// SPDX-License-Identifier: Apache-2.0
#include "exec/transport/nccl_process_group.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "exec/device/device_failure.h"
#include "exec/transport/byte_message.h"
#include "exec/transport/gpu_channel.h"
#include "exec/transport/heartbeat.h"

namespace pipetwin::exec {
namespace {

using Clock = std::chrono::steady_clock;
using Parts = std::vector<std::vector<std::byte>>;

/// How long processes may take to be started everywhere.
constexpr std::chrono::seconds patience_to_meet{120};

/// What this process sends to another one, beside all channels. It waits for no other process.
class Outbox {
  public:
    Outbox(GpuWaits& waits, std::unique_ptr<GpuLink> link) : waits_(waits), link_(std::move(link)) {
        waits_.add_mail(*link_);
    }
    Outbox(const Outbox&) = delete;
    Outbox& operator=(const Outbox&) = delete;
    ~Outbox() { waits_.remove(*link_); }

    /// The size goes ahead.
    void send(std::span<const std::byte> bytes) {
        const auto size = static_cast<std::int64_t>(bytes.size());
        add(std::as_bytes(std::span(&size, 1)));
        if (!bytes.empty()) {
            add(bytes);
        }
        const auto complete = waits_.explained([this] { return link_->complete(); });
        for (; gone_ < complete; ++gone_) {
            under_way_.pop_front();
        }
    }

  private:
    void add(std::span<const std::byte> bytes) {
        auto& message = under_way_.emplace_back(bytes.begin(), bytes.end());
        waits_.explained([&] { link_->add(message.data(), Bytes{std::ssize(message)}); });
    }

    GpuWaits& waits_;
    std::deque<std::vector<std::byte>> under_way_;
    std::unique_ptr<GpuLink> link_;  ///< first to end, then what it reads
    std::int64_t gone_ = 0;
};

/// The other end.
class Inbox {
  public:
    Inbox(GpuWaits& waits, std::unique_ptr<GpuLink> link) : waits_(waits), link_(std::move(link)) {}

    std::vector<std::byte> receive() {
        std::int64_t size = 0;
        fill(std::as_writable_bytes(std::span(&size, 1)));
        std::vector<std::byte> bytes(as_index(size));
        if (!bytes.empty()) {
            fill(bytes);
        }
        return bytes;
    }

  private:
    void fill(std::span<std::byte> bytes) {
        if (!link_) {
            throw ChannelClosed();
        }
        try {
            waits_.explained([&] { link_->add(bytes.data(), Bytes{std::ssize(bytes)}); });
            ++messages_;
            waits_.wait([this] { return link_->complete() == messages_; });
        } catch (...) {
            link_.reset();  // nothing comes into `bytes` any more
            throw;
        }
    }

    GpuWaits& waits_;
    std::unique_ptr<GpuLink> link_;  ///< null: a wait for it has ended without a message
    std::int64_t messages_ = 0;
};

class NcclProcessGroup final : public ProcessGroup {
  public:
    NcclProcessGroup(GpuLinks links, const std::string& place, const GpuMember& self)
        : self_(self), links_(std::move(links)), waits_(*this) {
        control_ = links_.meet(place, self);
        meet_all(place);
        tell_ids();
    }

    int index() const override { return self_.index; }
    int size() const override { return self_.count; }

    /// Ids are made for the processes that are named, not for all: NCCL keeps a thread and a socket
    /// for an id until both ends of its link have come.
    void introduce(std::span<const int> peers) override {
        ByteWriter mine;
        for (const int peer : peers) {
            if (peer != index() && !mail_ids_.contains({index(), peer})) {
                mine.put(peer).put_all(std::span<const std::byte>(links_.make_id()));
            }
        }
        const Parts all = all_gather(mine.bytes(), Lane::Control);
        for (int process = 0; process < size(); ++process) {
            for (ByteReader theirs(all[as_index(process)]); !theirs.at_end();) {
                const int peer = theirs.get<int>();
                Id id = theirs.get_all<std::byte>();
                if (process == index() || peer == index()) {
                    mail_ids_.emplace(std::pair(process, peer), std::move(id));
                }
            }
        }
    }

    std::unique_ptr<Channel> open(const RemoteEnd& end) override {
        return open_gpu_channel(waits_, links_, end);
    }

    std::unique_ptr<RemoteSum> open_sum(std::span<const int> members) override {
        return open_gpu_sum(waits_, links_, members);
    }
    void await_ends() override { waits_.wait_for_ends(); }
    void abort_traffic() noexcept override { waits_.abort_traffic(links_); }

    Parts all_gather(std::span<const std::byte> mine, Lane lane) override {
        GpuGather& gather = lane == Lane::Norm ? *norms_ : *control_;
        const auto check_lane = [&] {
            if (lost_) {
                throw ProcessLost();
            }
            if (lane == Lane::Norm) {
                throw_if_aborted();
            }
        };
        return waits_.explained([&] { return gathered(mine, gather, check_lane); }, check_lane);
    }

    std::optional<Parts> final_barrier(std::span<const std::byte> last_words,
                                       Duration patience) override {
        const auto end = Clock::now() + patience;
        const auto give_up_late = [&] {
            if (lost_ || Clock::now() > end) {
                throw ProcessLost();
            }
        };
        try {
            return waits_.explained([&] { return gathered(last_words, *parting_, give_up_late); },
                                    give_up_late);
        } catch (const ProcessLost&) {
            heartbeat_->flush();  // who ends first is not taken for the one that was lost
            return std::nullopt;
        }
    }

    void send(int to, std::span<const std::byte> bytes) override {
        std::unique_ptr<Outbox>& box = outboxes_[as_index(to)];
        if (!box) {
            box = std::make_unique<Outbox>(
                waits_, links_.make(mail_id(self_.index, to), true, LinkMemory::Host));
        }
        box->send(bytes);
    }

    std::vector<std::byte> receive(int from) override {
        std::unique_ptr<Inbox>& box = inboxes_[as_index(from)];
        if (!box) {
            box = std::make_unique<Inbox>(
                waits_, links_.make(mail_id(from, self_.index), false, LinkMemory::Host));
        }
        return box->receive();
    }

    void progress() override { waits_.progress(); }

    void throw_if_aborted() override {
        if (lost_) {
            throw ProcessLost();
        }
        if (heartbeat_->aborted()) {
            throw ChannelClosed();
        }
    }

    void abort() noexcept override { heartbeat_->signal_abort(); }
    void mark_peer_lost() noexcept override { lost_ = true; }
    void post_status(std::span<const std::byte> bytes) override { heartbeat_->post_status(bytes); }
    std::optional<Status> poll_status() override { return heartbeat_->poll_status(); }

    void finalize() noexcept override {
        heartbeat_->flush();
        for (GpuGather* const gather : {control_.get(), norms_.get(), parting_.get()}) {
            gather->finish();
        }
    }

  private:
    using Id = std::vector<std::byte>;

    static constexpr int gathers_of_all = 2;    ///< norms, and the parting
    static constexpr int links_with_first = 4;  ///< mail and beats, in both directions

    /// The first round, before which nothing else is made.
    void meet_all(const std::string& place) {
        const auto end = Clock::now() + patience_to_meet;
        gathered({}, *control_, [&] {
            if (Clock::now() > end) {
                throw Error(ErrorKind::Unavailable,
                            place,
                            fmt::format("not all of {} processes have come there", size()),
                            "look whether all were started, and whether that port can be reached");
            }
        });
    }

    const Id& mail_id(int from, int to) const {
        const auto found = mail_ids_.find({from, to});
        PIPETWIN_EXPECT(found != mail_ids_.end(), "who sends messages was introduced");
        return found->second;
    }

    /// Everything else is named by what the processes tell each other first. The first one makes
    /// the ids of what all gather; each other one makes those of its links with the first: mail and
    /// beats, in both directions. So none makes more of them where there are more processes.
    void tell_ids() {
        const bool is_first = self_.index == 0;
        const int own = is_first ? gathers_of_all : links_with_first;
        ByteWriter mine;
        for (int id = 0; id < own; ++id) {
            mine.put_all(std::span<const std::byte>(links_.make_id()));
        }
        const Parts all = gathered(mine.bytes(), *control_, [] {});
        ByteReader of_first(all.front());
        norms_ = links_.make_gather(of_first.get_all<std::byte>(), self_);
        parting_ = links_.make_gather(of_first.get_all<std::byte>(), self_);
        outboxes_.resize(as_index(size()));
        inboxes_.resize(as_index(size()));
        std::vector<Heartbeat::PeerLink> links;
        for (int other = 1; other < size(); ++other) {
            if (!is_first && other != index()) {
                continue;
            }
            ByteReader theirs(all[as_index(other)]);
            mail_ids_.emplace(std::pair(0, other), theirs.get_all<std::byte>());
            mail_ids_.emplace(std::pair(other, 0), theirs.get_all<std::byte>());
            const Id from_first = theirs.get_all<std::byte>();
            const Id to_first = theirs.get_all<std::byte>();
            links.push_back(
                {.peer = is_first ? other : 0,
                 .out = links_.make(is_first ? from_first : to_first, true, LinkMemory::Host),
                 .in = links_.make(is_first ? to_first : from_first, false, LinkMemory::Host)});
        }
        heartbeat_ = std::make_unique<Heartbeat>(self_, std::move(links));
    }

    /// Each wait for the others ends where `check` throws. What is short comes with its length in
    /// one round.
    template <class Check>
    Parts gathered(std::span<const std::byte> mine, GpuGather& gather, const Check& check) {
        constexpr std::size_t head = sizeof(std::size_t);
        constexpr std::size_t short_one = 1024;
        std::vector<std::byte> piece(head + short_one);
        const auto put = [&piece](std::span<const std::byte> bytes, std::size_t place) {
            std::ranges::copy(bytes.first(std::min(bytes.size(), piece.size() - place)),
                              piece.begin() + static_cast<std::ptrdiff_t>(place));
        };
        const std::size_t own = mine.size();
        put(std::as_bytes(std::span(&own, 1)), 0);
        put(mine, head);
        const auto go_round = [&] {
            gather.begin(piece);
            waits_.look_until([&] { return gather.done(); }, check);
        };
        go_round();
        Parts parts(as_index(size()));
        std::vector<std::size_t> sizes(parts.size());
        // Of each the next part of what is missing.
        const auto take = [&](std::size_t place) {
            for (std::size_t process = 0; process < parts.size(); ++process) {
                const auto theirs =
                    gather.all().subspan(process * piece.size(), piece.size()).subspan(place);
                if (place > 0) {
                    std::memcpy(&sizes[process], theirs.data() - head, head);
                }
                const std::size_t missing = sizes[process] - parts[process].size();
                const auto part = theirs.first(std::min(missing, theirs.size()));
                parts[process].insert(parts[process].end(), part.begin(), part.end());
            }
        };
        take(head);
        const std::size_t longest = std::ranges::max(sizes);
        for (std::size_t told = short_one; told < longest; told += piece.size()) {
            piece.assign(std::min(GpuGather::most, longest - told), std::byte{});
            put(mine.subspan(std::min(told, mine.size())), 0);
            go_round();
            take(0);
        }
        return parts;
    }

    GpuMember self_;
    GpuLinks links_;
    GpuWaits waits_;
    std::unique_ptr<GpuGather> control_;
    std::unique_ptr<GpuGather> norms_;
    std::unique_ptr<GpuGather> parting_;
    std::map<std::pair<int, int>, Id> mail_ids_;  ///< (from, to)
    std::vector<std::unique_ptr<Outbox>> outboxes_;
    std::vector<std::unique_ptr<Inbox>> inboxes_;
    std::unique_ptr<Heartbeat> heartbeat_;
    std::atomic<bool> lost_ = false;
};

}  // namespace

std::unique_ptr<ProcessGroup> join_nccl(GpuLinks links,
                                        const std::string& place,
                                        const GpuMember& self) {
    try {
        return std::make_unique<NcclProcessGroup>(std::move(links), place, self);
    } catch (const DeviceFailure& failure) {
        throw Error(ErrorKind::Unavailable,
                    place,
                    failure.text(),
                    "look at what NCCL says with NCCL_DEBUG=INFO; the port must be free");
    }
}

}  // namespace pipetwin::exec

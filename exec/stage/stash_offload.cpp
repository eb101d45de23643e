// SPDX-License-Identifier: Apache-2.0
#include "exec/stage/stash_offload.h"

#include <algorithm>
#include <utility>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/plan/plan.h"

namespace pipetwin::exec {

using Direction = CopyEngine::Direction;

std::unique_ptr<StashOffload> StashOffload::of_rank(const Plan& plan,
                                                    int rank,
                                                    Device& device,
                                                    Arena& arena) {
    if (!plan->host_link) {
        return nullptr;
    }
    std::unique_ptr<CopyEngine> link = device.make_copy_engine(*plan->host_link);
    if (!link) {
        throw Error(ErrorKind::Unavailable,
                    KeyValue{"pipeline.offload", "\"stash\""},
                    "the stashes of a CPU lie in host memory already",
                    "set pipeline.offload = \"none\", or cluster.backend = \"cuda\"");
    }
    std::vector<StashCopy> copies = std::move(stash_copies(plan).at(as_index(rank)));
    return std::unique_ptr<StashOffload>(
        new StashOffload(plan, rank, std::move(copies), std::move(link), arena));
}

StashOffload::StashOffload(const Plan& plan,
                           int rank,
                           std::vector<StashCopy> copies,
                           std::unique_ptr<CopyEngine> link,
                           Arena& arena)
    : row_(plan->schedule.ranks.at(as_index(rank))),
      arena_(arena),
      link_(std::move(link)),
      host_(link_->memory()),
      cells_(row_.size()) {
    for (const StashCopy& copy : copies) {
        cells_[copy.forward].makes = stashes_.size();
        cells_[copy.before].lets_in = stashes_.size();
        cells_[copy.user].needs = stashes_.size();
        stashes_.push_back({.copy = copy});
    }
    arena_.when_short([this] { return wait_for_room(); });
}

StashOffload::~StashOffload() {
    abandon();
    arena_.when_short({});
}

void StashOffload::restart() {
    link_->restart();
    for (Stash& stash : stashes_) {
        stash = {.copy = stash.copy};
    }
    leaving_.clear();
    host_.reset_peak();
}

void StashOffload::retire() {
    std::erase_if(leaving_, [this](std::size_t index) {
        Stash& stash = stashes_[index];
        if (!link_->is_complete(*stash.out)) {
            return false;
        }
        free_on_device(stash);
        return true;
    });
}

/// Whether there is more room than before.
bool StashOffload::wait_for_room() {
    if (leaving_.empty()) {
        return false;
    }
    link_->wait(*stashes_[leaving_.front()].out);
    retire();
    return true;
}

void StashOffload::free_on_device(Stash& stash) {
    stash.out_times = link_->times(*stash.out);
    if (stash.in) {
        return;  // it was wanted before it had left: it comes back to where it is
    }
    for (Part& part : stash.parts) {
        *part.tensor = {};
    }
}

std::optional<TimePoint> StashOffload::wait_for(std::size_t cell) {
    if (!cells_[cell].needs) {
        return {};
    }
    Stash& stash = stashes_[*cells_[cell].needs];
    link_->wait(stash.in.value());
    stash.in_times = link_->times(*stash.in);
    retire();  // its own copy out, if it has not been retired yet
    stash.parts.clear();
    return stash.in_times.end;
}

void StashOffload::let_in(std::size_t cell) {
    if (!cells_[cell].lets_in) {
        return;
    }
    Stash& stash = stashes_[*cells_[cell].lets_in];
    retire();
    std::vector<CopyEngine::Piece> pieces;
    for (Part& part : stash.parts) {
        if (part.tensor->empty()) {
            *part.tensor = arena_.allocate(part.type, part.rows, part.columns, part.kind);
        }
        pieces.push_back({.from = part.host.data(),
                          .to = part.tensor->data(),
                          .bytes = static_cast<std::size_t>(part.host.bytes().count)});
    }
    stash.in = link_->start(Direction::In, pieces, stash.out);
}

void StashOffload::send_out(std::size_t cell, std::vector<Tensor*> tensors) {
    const std::size_t index = cells_[cell].makes.value();
    Stash& stash = stashes_[index];
    std::vector<CopyEngine::Piece> pieces;
    Bytes bytes;
    for (Tensor* const tensor : tensors) {
        Part& part = stash.parts.emplace_back(
            Part{.tensor = tensor,
                 .host = host_.allocate(
                     tensor->dtype(), tensor->rows(), tensor->columns(), MemoryKind::Stash),
                 .type = tensor->dtype(),
                 .rows = tensor->rows(),
                 .columns = tensor->columns(),
                 .kind = tensor->kind()});
        pieces.push_back({.from = tensor->data(),
                          .to = part.host.data(),
                          .bytes = static_cast<std::size_t>(tensor->bytes().count)});
        bytes += tensor->bytes();
    }
    PIPETWIN_EXPECT(bytes == stash.copy.bytes, "a stash has the bytes that the plan copies");
    stash.out = link_->start(Direction::Out, pieces);
    leaving_.push_back(index);
}

void StashOffload::abandon() noexcept {
    for (Stash& stash : stashes_) {
        for (const std::optional<int>& copy : {stash.out, stash.in}) {
            try {
                if (copy) {
                    link_->wait(*copy);
                }
            } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): a lost device
            }                                  // copies no more
        }
        stash = {.copy = stash.copy};
    }
    leaving_.clear();
}

std::vector<std::vector<Span>> StashOffload::spans(TimePoint start) const {
    std::vector<std::vector<Span>> rows(2);
    const auto add = [&](std::vector<Span>& row, std::size_t cell, const CopyEngine::Times& times) {
        row.push_back({.action = row_[cell],
                       .begin = times.begin - start,
                       .ready = times.ready - start,
                       .end = times.end - start});
    };
    for (const Stash& stash : stashes_) {
        add(rows[0], stash.copy.forward, stash.out_times);
        add(rows[1], stash.copy.user, stash.in_times);
    }
    for (std::vector<Span>& row : rows) {
        std::ranges::sort(row, {}, &Span::begin);
    }
    return rows;
}

}  // namespace pipetwin::exec

#include "exec/base/rank_threads.h"

#include <utility>

#include "core/base/error.h"

namespace pipetwin::exec {

RankThreads::RankThreads(std::size_t size) : members_(size) {
    try {
        for (std::size_t index = 0; index < size; ++index) {
            members_[index].thread = std::jthread([this, index] { live(index); });
        }
    } catch (...) {
        const std::lock_guard lock(mutex_);
        ends_ = true;
        called_.notify_all();
        throw;
    }
}

RankThreads::~RankThreads() {
    {
        const std::lock_guard lock(mutex_);
        ends_ = true;
    }
    called_.notify_all();
    members_.clear();  // joined
}

void RankThreads::send(std::function<void(std::size_t)> work) {
    {
        const std::lock_guard lock(mutex_);
        PIPETWIN_EXPECT(is_back(), "a crew does one thing at a time");
        work_ = std::move(work);
        away_ = members_.size();
        for (Member& member : members_) {
            ++member.sent;
        }
    }
    called_.notify_all();
}

bool RankThreads::wait(Duration patience) {
    std::unique_lock lock(mutex_);
    return returned_.wait_for(lock, patience, [this] { return is_back(); });
}

std::vector<std::size_t> RankThreads::away() {
    const std::lock_guard lock(mutex_);
    std::vector<std::size_t> indices;
    for (std::size_t index = 0; index < members_.size(); ++index) {
        if (members_[index].returned < members_[index].sent) {
            indices.push_back(index);
        }
    }
    return indices;
}

void RankThreads::live(std::size_t index) {
    std::unique_lock lock(mutex_);
    Member& member = members_[index];
    while (true) {
        called_.wait(lock, [&] { return ends_ || member.returned < member.sent; });
        if (member.returned == member.sent) {
            return;
        }
        lock.unlock();
        work_(index);
        lock.lock();
        ++member.returned;
        if (--away_ == 0) {
            returned_.notify_all();
        }
    }
}

}  // namespace pipetwin::exec

// SPDX-License-Identifier: Apache-2.0
#include "exec/base/rank_threads.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/number_text.h"

namespace pipetwin::exec {

RankThreads::RankThreads(std::size_t size) : members_(size) {
    try {
        for (std::size_t index = 0; index < size; ++index) {
            members_[index].thread = std::jthread([this, index] { live(index); });
        }
    } catch (const std::system_error& error) {
        end();
        const auto started = std::ranges::count_if(
            members_, [](const Member& member) { return member.thread.joinable(); });
        throw Error(
            ErrorKind::Unavailable,
            "",
            fmt::format("the system gives {} of the {} that the ranks need: {}",
                        started,
                        counted(size, "thread"),
                        error.code().message()),
            "raise the limit ('ulimit -u' shows it, 'ulimit -v' that of memory), or use fewer "
            "stages and replicas");
    } catch (...) {
        end();
        throw;
    }
}

RankThreads::~RankThreads() {
    end();
    members_.clear();  // joined
}

void RankThreads::end() {
    {
        const std::lock_guard lock(mutex_);
        ends_ = true;
    }
    work_or_end_.notify_all();
}

void RankThreads::run(std::function<void(std::size_t)> work) {
    {
        const std::lock_guard lock(mutex_);
        PIPETWIN_EXPECT(is_idle(), "threads run one thing at a time");
        work_ = std::move(work);
        busy_ = members_.size();
        for (Member& member : members_) {
            ++member.started;
        }
    }
    work_or_end_.notify_all();
}

bool RankThreads::wait(Duration patience) {
    std::unique_lock lock(mutex_);
    return idle_.wait_for(lock, patience, [this] { return is_idle(); });
}

std::vector<std::size_t> RankThreads::busy() {
    const std::lock_guard lock(mutex_);
    std::vector<std::size_t> indices;
    for (std::size_t index = 0; index < members_.size(); ++index) {
        if (members_[index].finished < members_[index].started) {
            indices.push_back(index);
        }
    }
    return indices;
}

void RankThreads::live(std::size_t index) {
    std::unique_lock lock(mutex_);
    Member& member = members_[index];
    while (true) {
        work_or_end_.wait(lock, [&] { return ends_ || member.finished < member.started; });
        if (member.finished == member.started) {
            return;
        }
        lock.unlock();
        work_(index);
        lock.lock();
        ++member.finished;
        if (--busy_ == 0) {
            idle_.notify_all();
        }
    }
}

}  // namespace pipetwin::exec

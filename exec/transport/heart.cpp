#include "exec/transport/heart.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "exec/device/device_failure.h"

namespace pipetwin::exec {
namespace {

constexpr std::chrono::milliseconds interval{100};
constexpr std::chrono::milliseconds look{1};
/// Where the first process itself is silent, nothing is known of the others.
constexpr std::chrono::seconds silence{1};

/// Ahead of the news in a beat.
struct Head {
    std::uint64_t raised = 0;
};

}  // namespace

Heart::Heart(const GpuMember& self, std::vector<Line> lines)
    : self_(self),
      news_(static_cast<std::size_t>(self.count)),
      fresh_(static_cast<std::size_t>(self.count)) {
    const std::size_t bytes = sizeof(Head) + news_.size() * sizeof(News);
    const auto now = Clock::now();
    for (Line& line : lines) {
        Beat& beat = beats_.emplace_back();
        beat.line = std::move(line);
        beat.sent.resize(bytes);
        beat.received.resize(bytes);
        beat.due = now;
        beat.last = now;
    }
    thread_ = std::thread([this] { live(); });
}

Heart::~Heart() {
    {
        const std::lock_guard lock(mutex_);
        ends_ = true;
    }
    ends_or_not_.notify_all();
    thread_.join();
}

void Heart::call_out(std::span<const std::byte> bytes) {
    PIPETWIN_EXPECT(bytes.size() <= most_called, "a call is short");
    const std::lock_guard lock(mutex_);
    News& mine = own();
    ++mine.number;
    mine.size = bytes.size();
    std::ranges::copy(bytes, mine.bytes.begin());
    if (!is_first() && Clock::now() - beats_.front().last > silence) {
        for (std::size_t process = 1; process < news_.size(); ++process) {
            fresh_[process] = fresh_[process] || news_[process].number > 0;
        }
    }
}

std::optional<World::Call> Heart::next_call() {
    const std::lock_guard lock(mutex_);
    for (std::size_t process = 0; process < news_.size(); ++process) {
        if (fresh_[process] && std::cmp_not_equal(process, self_.index)) {
            fresh_[process] = false;
            const News& news = news_[process];
            return World::Call{
                .from = static_cast<int>(process),
                .bytes = {news.bytes.begin(),
                          news.bytes.begin() + static_cast<std::ptrdiff_t>(news.size)},
                .is_gone = news.gone != 0};
        }
    }
    return std::nullopt;
}

void Heart::flush() {
    constexpr std::chrono::seconds patience{1};
    const auto end = Clock::now() + patience;
    std::vector<std::int64_t> begun;
    {
        const std::lock_guard lock(mutex_);
        for (const Beat& beat : beats_) {
            begun.push_back(beat.begun);
        }
    }
    const auto all_know = [&] {
        const std::lock_guard lock(mutex_);
        return std::ranges::equal(beats_, begun, [](const Beat& beat, std::int64_t before) {
            return beat.fails || beat.done > before;
        });
    };
    while (!all_know() && Clock::now() < end) {
        std::this_thread::sleep_for(look);
    }
}

void Heart::live() {
    std::unique_lock lock(mutex_);
    while (!ends_) {
        lock.unlock();
        const auto now = Clock::now();
        auto next = now + interval;
        for (Beat& beat : beats_) {
            try {
                next = std::min(next, go_on(beat, now) ? now + look : beat.due);
            } catch (const DeviceFailure&) {
                lose(beat);
            }
        }
        lock.lock();
        ends_or_not_.wait_until(lock, next, [this] { return ends_; });
    }
}

/// Whether a beat is under way.
bool Heart::go_on(Beat& beat, Clock::time_point now) {
    if (beat.fails) {
        beat.due = now + interval;
        return false;
    }
    if (beat.done == beat.begun && now >= beat.due) {
        begin(beat);
    }
    if (beat.done < beat.begun && beat.line.in->complete() == beat.begun &&
        beat.line.out->complete() == beat.begun) {
        take(beat);
    }
    return beat.done < beat.begun;
}

void Heart::begin(Beat& beat) {
    {
        const std::lock_guard lock(mutex_);
        const Head head{.raised = raised_ ? std::uint64_t{1} : 0};
        std::memcpy(beat.sent.data(), &head, sizeof head);
        std::memcpy(beat.sent.data() + sizeof head, news_.data(), news_.size() * sizeof(News));
        ++beat.begun;
    }
    const Bytes bytes{std::ssize(beat.sent)};
    beat.line.in->add(beat.received.data(), bytes);
    beat.line.out->add(beat.sent.data(), bytes);
}

void Heart::take(Beat& beat) {
    Head head;
    std::memcpy(&head, beat.received.data(), sizeof head);
    std::vector<News> theirs(news_.size());
    std::memcpy(theirs.data(), beat.received.data() + sizeof head, theirs.size() * sizeof(News));
    const std::lock_guard lock(mutex_);
    for (std::size_t process = 0; process < news_.size(); ++process) {
        News& known = news_[process];
        const News& told = theirs[process];
        if (told.number > known.number || told.gone > known.gone) {
            known = told;
            fresh_[process] = true;
        }
    }
    if (head.raised != 0) {
        raised_ = true;
    }
    beat.done = beat.begun;
    beat.last = Clock::now();
    beat.due = beat.last + interval;
}

/// A link that fails has lost its other end.
void Heart::lose(Beat& beat) {
    const std::lock_guard lock(mutex_);
    beat.fails = true;
    const std::size_t peer = as_index(beat.line.peer);
    news_[peer].gone = 1;
    fresh_[peer] = true;
}

}  // namespace pipetwin::exec

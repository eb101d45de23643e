// SPDX-License-Identifier: Apache-2.0
#include "gui/run/live_feed.h"

#include <utility>

#include <QtConcurrentRun>

#include "gui/base/workers.h"

namespace pipetwin::gui {

namespace {

constexpr int milliseconds_between_looks = 250;

}  // namespace

LiveFeed::LiveFeed(QObject* parent) : QObject(parent) {
    timer_.setInterval(milliseconds_between_looks);
    connect(&timer_, &QTimer::timeout, this, &LiveFeed::look);
    connect(&looking_, &QFutureWatcher<LiveUpdate>::finished, this, &LiveFeed::take);
}

LiveFeed::~LiveFeed() {
    if (looking_.isRunning()) {  // a future that was taken from is never finished again
        looking_.waitForFinished();
    }
}

void LiveFeed::watch(const std::filesystem::path& folder, bool restarts) {
    follower_ = std::make_shared<LiveFollower>(folder, restarts);
    timer_.start();
    look();
    emit watching_changed();
}

void LiveFeed::stop() {
    timer_.stop();
    if (std::exchange(follower_, nullptr) != nullptr) {
        emit watching_changed();
    }
}

void LiveFeed::look() {
    if (follower_ == nullptr || looking_.isRunning()) {
        return;
    }
    looked_at_ = follower_;
    looking_.setFuture(
        QtConcurrent::run(workers(), [follower = follower_] { return follower->look(); }));
}

void LiveFeed::take() {
    const LiveUpdate update = looking_.result();
    const bool current = looked_at_ == follower_;
    looked_at_.reset();
    if (!current || !update.anything) {
        return;
    }
    if (update.ended) {
        stop();
    }
    emit came(update);
}

}  // namespace pipetwin::gui

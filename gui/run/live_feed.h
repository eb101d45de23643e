// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <QFutureWatcher>
#include <QObject>
#include <QTimer>

#include "gui/view/run/live_follower.h"

namespace pipetwin::gui {

/// Polls the folder of a training a few times a second, on a worker, and announces what came.
class LiveFeed : public QObject {
    Q_OBJECT

  public:
    explicit LiveFeed(QObject* parent = nullptr);
    ~LiveFeed() override;

    /// Begins to poll a folder; `restarts` as for LiveFollower.
    void watch(const std::filesystem::path& folder, bool restarts = false);
    void stop();
    bool is_watching() const { return follower_ != nullptr; }

  signals:
    void came(const pipetwin::gui::LiveUpdate& update);
    void watching_changed();

  private:
    void look();
    void take();

    std::shared_ptr<LiveFollower> follower_;
    QFutureWatcher<LiveUpdate> looking_;
    std::shared_ptr<LiveFollower> looked_at_;  ///< used by the poll that is under way
    QTimer timer_;
};

}  // namespace pipetwin::gui

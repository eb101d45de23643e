// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include <QObject>

#include "gui/timeline/timeline_scene.h"

namespace pipetwin::gui {

/// What is selected. Views listen to its signals; every change of the selection is made here.
class Selection : public QObject {
    Q_OBJECT

  public:
    using QObject::QObject;

    const std::optional<SpanRef>& span() const { return span_; }
    const std::optional<TimeRange>& range() const { return range_; }

    void set_span(const std::optional<SpanRef>& span);
    void set_range(const std::optional<TimeRange>& range);
    void clear();

  signals:
    void span_changed();
    void range_changed();

  private:
    std::optional<SpanRef> span_;
    std::optional<TimeRange> range_;
};

}  // namespace pipetwin::gui

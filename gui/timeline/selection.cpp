// SPDX-License-Identifier: Apache-2.0
#include "gui/timeline/selection.h"

namespace pipetwin::gui {

void Selection::set_span(const std::optional<SpanRef>& span) {
    if (span != span_) {
        span_ = span;
        emit span_changed();
    }
}

void Selection::set_range(const std::optional<TimeRange>& range) {
    if (range != range_) {
        range_ = range;
        emit range_changed();
    }
}

void Selection::clear() {
    set_span(std::nullopt);
    set_range(std::nullopt);
}

}  // namespace pipetwin::gui

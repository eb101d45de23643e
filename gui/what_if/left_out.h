// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <QCoreApplication>
#include <QFontMetrics>
#include <QString>
#include <QStringList>

#include "gui/view/what_if/heat_map.h"

namespace pipetwin::gui {

/// Says which numbers of ranks (K) and micro-batches (M) have no row or column in a heat map, and
/// why. Both maps must outlive it.
class LeftOut {
    Q_DECLARE_TR_FUNCTIONS(LeftOut)

  public:
    /// `whole`: everything that was simulated; `shown`: the part of it on the screen.
    LeftOut(const HeatMap& whole, const HeatMap& shown) : whole_(whole), shown_(shown) {}

    /// "Not shown: K = 3, 5-7 (no room); M = 9-11, 13, 15 and 40 more (infeasible)": a clause for
    /// each reason, with fewer numbers in fewer pixels; "" if the axes have no gaps.
    QString line(const QFontMetrics& letters, int pixels) const;

    /// All numbers of `line`, and `reasons`.
    QString tip() const;

    /// Why the numbers that are left out as infeasible are so, a line each, and why the first
    /// number without costs has none; "" where there is no such number.
    QString reasons() const;

  private:
    QString only_numbers() const;
    QStringList clauses(qsizetype most_runs) const;

    const HeatMap& whole_;
    const HeatMap& shown_;
};

}  // namespace pipetwin::gui

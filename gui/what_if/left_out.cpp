// SPDX-License-Identifier: Apache-2.0
#include "gui/what_if/left_out.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "gui/base/panel_text.h"

namespace pipetwin::gui {

namespace {

constexpr qsizetype all_runs = std::numeric_limits<qsizetype>::max();

/// "3, 5-7". With more than `most` such parts: "3, 5-7, 9 and 40 more", which counts the numbers.
QString runs_text(const std::vector<int>& numbers, qsizetype most) {
    QStringList runs;
    std::size_t first = 0;
    const auto is_last = [&] { return first + 1 == numbers.size(); };
    while (first < numbers.size() && (runs.size() < most || is_last())) {
        std::size_t last = first;
        while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) {
            ++last;
        }
        runs += first == last ? QString::number(numbers[first])
                              : QStringLiteral("%1-%2").arg(numbers[first]).arg(numbers[last]);
        first = last + 1;
    }
    const QString text = runs.join(QStringLiteral(", "));
    const auto others = static_cast<qulonglong>(numbers.size() - first);
    return others == 0 ? text : LeftOut::tr("%1 and %L2 more").arg(text).arg(others);
}

/// Cuts lines that are wider than a screen, at spaces.
QString wrapped(const QString& text) {
    constexpr qsizetype most_letters = 120;
    QStringList lines;
    for (const QString& line : text.split('\n')) {
        QString part;
        for (const QString& word : line.split(' ')) {
            if (!part.isEmpty() && part.size() + 1 + word.size() > most_letters) {
                lines += part;
                part.clear();
            }
            part += part.isEmpty() ? word : ' ' + word;
        }
        lines += part;
    }
    return lines.join('\n');
}

}  // namespace

/// "M = 1: 64 samples are not a multiple of ..." for each number without a row or column; numbers
/// side by side with one reason are named together.
QString LeftOut::reasons() const {
    constexpr qsizetype most_lines = 8;
    QStringList lines;
    const auto add = [&](const QString& axis,
                         const std::vector<int>& numbers,
                         const std::vector<HeatCell>& cells) {
        for (std::size_t first = 0; first < std::min(numbers.size(), cells.size());) {
            std::vector<int> alike;
            std::size_t next = first;
            for (; next < cells.size() && cells[next].reason == cells[first].reason; ++next) {
                alike.push_back(numbers[next]);
            }
            lines += tr("%1 = %2: %3.")
                         .arg(axis, runs_text(alike, all_runs), text_of(cells[first].reason));
            first = next;
        }
    };
    if (!whole_.no_costs.empty()) {
        lines += tr("M = %1: %2.")
                     .arg(QString::number(whole_.micro_batches_without_costs.front()),
                          text_of(whole_.no_costs));
    }
    add(tr("K"), whole_.infeasible_stages, whole_.cells_of_infeasible_stages);
    add(tr("M"), whole_.infeasible_micro_batches, whole_.cells_of_infeasible_micro_batches);
    if (lines.size() > most_lines) {
        lines.resize(most_lines);
        lines += QStringLiteral("...");
    }
    return lines.join('\n');
}

/// "K = 1, M = 3, 5-7 (infeasible)": a clause for each reason, whose lists have `most_runs` parts.
QStringList LeftOut::clauses(qsizetype most_runs) const {
    using Left = std::array<std::vector<int>, 2>;  // K and M
    Left no_costs;
    Left no_memory;
    Left infeasible;
    const auto sort_out =
        [&](std::size_t axis, const std::vector<int>& numbers, const std::vector<HeatCell>& cells) {
            for (std::size_t i = 0; i < numbers.size(); ++i) {
                const HeatCell cell = i < cells.size() ? cells[i] : HeatCell();
                Left& kind = cell.lacks_costs ? no_costs : cell.has_plan() ? no_memory : infeasible;
                kind.at(axis).push_back(numbers[i]);
            }
        };
    sort_out(0, whole_.infeasible_stages, whole_.cells_of_infeasible_stages);
    sort_out(1, whole_.infeasible_micro_batches, whole_.cells_of_infeasible_micro_batches);
    no_costs[1] = whole_.micro_batches_without_costs;
    Left no_room;
    std::ranges::set_difference(whole_.stages, shown_.stages, std::back_inserter(no_room[0]));
    std::ranges::set_difference(
        whole_.micro_batches, shown_.micro_batches, std::back_inserter(no_room[1]));
    const Left not_simulated{numbers_between({whole_.stages, whole_.infeasible_stages}),
                             numbers_between({whole_.micro_batches,
                                              whole_.infeasible_micro_batches,
                                              whole_.micro_batches_without_costs})};
    QStringList clauses;
    for (const auto& [numbers, why] : {std::pair(no_costs, tr("no costs")),
                                       std::pair(no_memory, tr("too little memory")),
                                       std::pair(infeasible, tr("infeasible")),
                                       std::pair(no_room, tr("no room")),
                                       std::pair(not_simulated, tr("not simulated"))}) {
        QStringList axes;
        for (const auto& [list, axis] :
             {std::pair(numbers[0], tr("K")), std::pair(numbers[1], tr("M"))}) {
            if (!list.empty()) {
                axes += QStringLiteral("%1 = %2").arg(axis, runs_text(list, most_runs));
            }
        }
        if (!axes.isEmpty()) {
            clauses += QStringLiteral("%1 (%2)").arg(axes.join(QStringLiteral(", ")), why);
        }
    }
    return clauses;
}

/// The whole line where no other numbers are possible than those shown; "" elsewhere.
QString LeftOut::only_numbers() const {
    return shown_.only_numbers.empty() ? QString()
                                       : tr("Not shown: %1").arg(text_of(shown_.only_numbers));
}

QString LeftOut::line(const QFontMetrics& letters, int pixels) const {
    QString text = only_numbers();
    if (!text.isEmpty()) {
        return text;
    }
    for (qsizetype most_runs = 3; most_runs > 0; --most_runs) {
        const QStringList parts = clauses(most_runs);
        text =
            parts.isEmpty() ? QString() : tr("Not shown: %1").arg(parts.join(QStringLiteral("; ")));
        if (letters.horizontalAdvance(text) <= pixels) {
            break;
        }
    }
    return text;
}

QString LeftOut::tip() const {
    if (const QString only = only_numbers(); !only.isEmpty()) {
        return only;
    }
    QStringList lines = clauses(all_runs);
    if (lines.isEmpty()) {
        return {};
    }
    lines.prepend(tr("Not shown:"));
    if (const QString why = reasons(); !why.isEmpty()) {
        lines += why;
    }
    return wrapped(lines.join('\n'));
}

}  // namespace pipetwin::gui

// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/logged_timers.h"

#include <algorithm>
#include <utility>

#include "core/base/median.h"
#include "core/interop/launch/log_lines.h"

namespace pipetwin {

namespace {

bool is_timer_name(std::string_view text) {
    return !text.empty() && std::ranges::all_of(text, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '/';
    });
}

}  // namespace

bool has_sums_in_pipeline(const std::vector<LoggedTimer>& timers) {
    return std::ranges::none_of(timers, [](const LoggedTimer& timer) {
        return timer.name == "grads-all-reduce" || timer.name == "grads-reduce-scatter" ||
               timer.name == "backward-params-all-reduce";
    });
}

void LoggedTimers::take(std::string_view line, bool has_step, bool is_first) {
    constexpr std::string_view of_one_rank = "time (ms) |";
    if (!has_step) {
        return;
    }
    if (line.find("time across ranks (ms):") != std::string_view::npos ||
        line.find("times across ranks (ms):") != std::string_view::npos) {
        begin(is_first);
    } else if (const std::size_t at = line.find(of_one_rank); at != std::string_view::npos) {
        begin(is_first);
        take_row(line.substr(at + of_one_rank.size()));
        is_open_ = false;
    } else if (is_open_) {
        is_open_ = take_timer(line);
    }
}

std::vector<LoggedTimer> LoggedTimers::found() const {
    std::vector<LoggedTimer> timers;
    for (const auto& [name, all] : reports_) {
        std::vector<double> least;
        std::vector<double> most;
        LoggedTimer timer{.name = name,
                          .of_one_rank = std::ranges::all_of(all, &Report::of_one_rank)};
        const auto is_of_kind = [&timer](const Report& report) {
            return report.of_one_rank == timer.of_one_rank;
        };
        const bool has_others = std::ranges::any_of(
            all, [&](const Report& report) { return is_of_kind(report) && !report.is_first; });
        for (const Report& report : all) {
            if (!is_of_kind(report) || (has_others && report.is_first)) {
                continue;
            }
            most.push_back(report.most);
            if (report.least) {
                least.push_back(*report.least);
            }
        }
        timer.most = median(most);
        timer.reports = static_cast<int>(most.size());
        if (least.size() == most.size()) {
            timer.least = median(least);
        }
        timers.push_back(std::move(timer));
    }
    return timers;
}

void LoggedTimers::begin(bool is_first) {
    is_open_ = true;
    is_first_ = is_first;
    name_.clear();
}

void LoggedTimers::add(std::string_view name, Report report) {
    report.is_first = is_first_;
    reports_[std::string(name)].push_back(report);
}

void LoggedTimers::take_row(std::string_view row) {
    while (!row.empty()) {
        const std::string_view part = trimmed_line(row.substr(0, row.find('|')));
        row.remove_prefix(std::min(row.find('|'), row.size() - 1) + 1);
        const std::size_t colon = part.find(':');
        const std::string_view name = part.substr(0, std::min(colon, part.size()));
        const std::optional<double> time = colon == std::string_view::npos
                                               ? std::nullopt
                                               : number_behind<double>(part.substr(colon), ":");
        if (is_timer_name(name) && is_positive(time)) {
            add(name, {.most = *time / 1000, .of_one_rank = true});
        }
    }
}

bool LoggedTimers::take_timer(std::string_view line) {
    const std::size_t rank = line.rfind(" rank ");
    if (!name_.empty() && rank != std::string_view::npos) {
        const std::string_view rest = line.substr(rank);
        const std::optional<double> time =
            number_behind<double>(rest.substr(std::min(rest.find(':'), rest.size())), ":");
        if (is_positive(time)) {
            if (std::exchange(awaits_ranks_, false)) {
                add(name_, {});
            }
            Report& report = reports_[name_].back();
            report.least = std::min(report.least.value_or(*time / 1000), *time / 1000);
            report.most = std::max(report.most, *time / 1000);
        }
        return true;
    }
    const std::size_t colon = line.rfind(':');
    const bool is_report_of_a_step = line.find('|') != std::string_view::npos;
    if (colon == std::string_view::npos || is_report_of_a_step) {
        return false;
    }
    std::string_view head = line.substr(0, colon);
    head = trimmed_line(head.substr(0, std::min(head.find_last_not_of(". ") + 1, head.size())));
    head.remove_prefix(std::min(head.rfind(' ') + 1, head.size()));
    if (!is_timer_name(head)) {
        return false;
    }
    const std::string_view value = trimmed_line(line.substr(colon + 1));
    if (value.empty()) {
        name_ = head;
        awaits_ranks_ = true;
        return true;
    }
    name_.clear();
    const bool is_pair = value.starts_with('(');
    const std::optional<double> first =
        number_behind<double>(is_pair ? value.substr(1) : value, "");
    const std::optional<double> second = is_pair ? number_behind<double>(value, ",") : std::nullopt;
    if (!first || (is_pair && !second)) {
        return false;
    }
    const double most = second.value_or(*first);
    if (is_positive(most)) {
        add(head,
            {.least = is_pair ? std::optional(*first / 1000) : std::nullopt, .most = most / 1000});
    }
    return true;
}

}  // namespace pipetwin

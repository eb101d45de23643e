// SPDX-License-Identifier: Apache-2.0
#include "cli/base/progress.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cli/base/listener.h"
#include "core/base/as_index.h"

namespace pipetwin::cli {

namespace {

constexpr std::chrono::seconds silence{1};
constexpr std::chrono::milliseconds redraw_interval{100};
constexpr int bar_width = 24;

}  // namespace

Progress::Progress(Console& console, std::string title, Clock::time_point (*now)())
    : console_(console), title_(std::move(title)), now_(now), start_(now()) {}

Progress::~Progress() {
    clear_line();
}

void Progress::update(double share, std::string_view what) {
    if (const Listener* const listener = console_.listener()) {
        if (listener->progress) {
            listener->progress(share, what);
        }
        return;
    }
    const int percent = static_cast<int>(std::lround(100 * std::clamp(share, 0.0, 1.0)));
    const auto time = now_();
    if (console_.quiet() || time - start_ < silence) {
        return;
    }
    if (console_.can_redraw()) {
        if (time - drawn_ >= redraw_interval) {
            drawn_ = time;
            redraw(percent, what);
        }
        return;
    }
    if (percent >= next_percent_) {
        next_percent_ = percent / 10 * 10 + 10;
        console_.note(fmt::format("{}: {} %{}{}", title_, percent, what.empty() ? "" : "  ", what));
    }
}

void Progress::redraw(int percent, std::string_view what) {
    const std::size_t full = as_index(percent * bar_width / 100);
    const std::string bar = std::string(full, '#') + std::string(bar_width - full, '.');
    std::string line = fmt::format("{} [{}] {:3} %  {}", title_, bar, percent, what);
    line.resize(std::min(line.size(), static_cast<std::size_t>(console_.width() - 1)));
    console_.redraw(line);
    line_open_ = true;
}

void Progress::clear_line() {
    if (line_open_) {
        console_.redraw("");
        line_open_ = false;
    }
}

}  // namespace pipetwin::cli

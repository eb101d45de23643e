// SPDX-License-Identifier: Apache-2.0
#include "gui/view/run/live_follower.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <system_error>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/plan/plan.h"
#include "core/text/input_file.h"
#include "core/timeline/compare.h"
#include "sim/explain/breakdown.h"

namespace pipetwin::gui {

namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t most_at_once = 16 << 20;
constexpr std::size_t most_compared = 300'000;  // spans: what takes a moment

/// A line that is not one of ours is left out: the file is read while it is written.
std::optional<StepMetrics> metrics_of(const std::string& line) {
    const auto document = nlohmann::json::parse(line, nullptr, false);
    if (!document.is_object() || !document.contains("step") || !document.contains("loss")) {
        return std::nullopt;
    }
    const auto written = [&](const char* key) -> std::optional<double> {
        const auto found = document.find(key);
        return found != document.end() && found->is_number() ? std::optional(found->get<double>())
                                                             : std::nullopt;
    };
    const auto number = [&](const char* key) { return written(key).value_or(0); };
    return StepMetrics{.step = static_cast<int>(number("step")),
                       // null: a loss that was not finite, or not logged
                       .loss = written("loss").value_or(std::numeric_limits<double>::quiet_NaN()),
                       .step_ms = number("step_ms"),
                       .accuracy = written("accuracy")};
}

std::size_t spans_of(const TimelineSet& set) {
    std::size_t spans = 0;
    for (const Timeline& step : set.steps) {
        for (const auto& row : step.ranks) {
            spans += row.size();
        }
    }
    return spans;
}

}  // namespace

LiveFollower::LiveFollower(fs::path folder, bool restarts) : folder_(std::move(folder)) {
    if (restarts) {
        old_end_ = end();
        for (Tail* const tail : {&metrics_, &live_}) {
            std::error_code failed;
            const std::uintmax_t size = fs::file_size(tail->path, failed);
            tail->read = failed ? 0 : size;
        }
    }
}

/// Time at which the training wrote its measured trace; none while it goes on.
std::optional<fs::file_time_type> LiveFollower::end() const {
    std::error_code failed;
    const fs::file_time_type time = fs::last_write_time(folder_ / "measured.trace.json", failed);
    return failed ? std::nullopt : std::optional(time);
}

std::string LiveFollower::Tail::appended() {
    try {
        InputFile file(path);
        shrunk = file.size() < read;
        if (shrunk) {
            read = 0;
        }
        file.go_to(read);
        std::string text =
            file.read_up_to(std::min<std::uintmax_t>(most_at_once, file.size() - read));
        read += text.size();
        return text;
    } catch (const Error&) {
        shrunk = false;
        return {};  // not there yet, or not any more
    }
}

void LiveFollower::read_metrics(LiveUpdate& update) {
    const std::string text = metrics_.appended();
    if (metrics_.shrunk) {
        update.restarted = true;
        half_line_.clear();
    }
    half_line_ += text;
    std::size_t begin = 0;
    for (std::size_t end = half_line_.find('\n'); end != std::string::npos;
         end = half_line_.find('\n', begin)) {
        if (const auto metrics = metrics_of(half_line_.substr(begin, end - begin))) {
            update.metrics.push_back(*metrics);
        }
        begin = end + 1;
    }
    half_line_.erase(0, begin);
}

void LiveFollower::read_steps(LiveUpdate& update) {
    const std::string text = live_.appended();
    if (live_.shrunk || !reader_) {
        reader_.emplace(live_.path.string());
    }
    if (text.empty()) {
        return;
    }
    try {
        for (LiveStep& step : reader_->feed(text)) {
            steps_.push_back(std::move(step));
        }
    } catch (const std::exception& error) {
        update.problem = error.what();
        return;
    }
    while (steps_.size() > most_steps) {
        steps_.pop_front();
    }
    update.run = drawn();
}

/// The prediction, as far as it is there, above the latest steps.
std::shared_ptr<const RunData> LiveFollower::drawn() {
    if (steps_.empty()) {
        return nullptr;
    }
    if (!base_ || !base_->predicted) {
        base_ = load_run(folder_);
        base_->measured.reset();
        base_->twin.measured.clear();
        base_->comparison.reset();
        base_->problems.clear();
    }
    RunData run = *base_;
    TimelineSet measured;
    for (const LiveStep& step : steps_) {
        measured.steps.push_back(step.timeline);
        measured.numbers.push_back(step.step);
    }
    DrawnSide side = drawn_side(measured);
    run.path = folder_;
    run.schedule_name = reader_->header().schedule_name;
    run.micro_batches = reader_->header().schedule.micro_batches;
    side.data.form = form_of(reader_->header().schedule);
    if (run.predicted) {
        side.data.memory = run.predicted->memory;  // it follows from the rows
        if (run.predicted->dispatch && run.plan() != nullptr) {
            side.data.dispatch = sim::dispatch_in_actions(*run.plan(), steps_.back().timeline);
        }
    }
    if (run.predicted && spans_of(measured) <= most_compared) {
        try {
            TimelineSet predicted;
            predicted.steps.push_back(run.twin.predicted.front().timeline());
            run.comparison = compare(predicted, measured);
        } catch (const std::exception& error) {
            run.problems.emplace_back(error.what());
        }
    }
    run.twin.measured = std::move(side.steps);
    run.measured = std::move(side.data);
    return std::make_shared<const RunData>(std::move(run));
}

LiveUpdate LiveFollower::look() {
    LiveUpdate update;
    read_metrics(update);
    if (update.restarted) {
        steps_.clear();
        base_.reset();
        reader_.reset();
        live_.read = 0;
    }
    read_steps(update);
    const auto ended = end();
    update.ended = ended && ended != old_end_;
    update.anything = !update.metrics.empty() || update.run != nullptr || update.restarted ||
                      update.ended || !update.problem.empty();
    return update;
}

}  // namespace pipetwin::gui

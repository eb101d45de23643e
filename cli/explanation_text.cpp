#include "cli/explanation_text.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cli/text_output.h"

namespace pipetwin::cli {

namespace {

using sim::Cause;
using sim::Explanation;
using sim::Part;
using sim::Reason;
using sim::Wait;
using sim::WaitKind;

/// Writes times in one unit and with as many decimals as the length of the step deserves.
class Times {
  public:
    explicit Times(Duration step) {
        const double ms = to_milliseconds(step);
        if (ms >= 100'000) {
            unit_ = "s";
            per_ms_ = 1e-3;
        } else if (ms < 1e-3) {
            unit_ = "ns";
            per_ms_ = 1e6;
        } else if (ms < 1) {
            unit_ = "us";
            per_ms_ = 1e3;
        }
        const double size = ms * per_ms_;
        decimals_ = size >= 1000 ? 0 : size >= 10 ? 1 : 2;
    }

    /// With two digits that count, where the number is small.
    std::string number(Duration time) const {
        constexpr int most_decimals = 3;
        const double value = to_milliseconds(time) * per_ms_;
        int decimals = decimals_;
        while (decimals < most_decimals && std::abs(value) * std::pow(10, decimals) < 9.5) {
            ++decimals;
        }
        std::string text = fmt::format("{:.{}f}", value, decimals);
        for (; decimals > decimals_ && text.back() == '0'; --decimals) {
            text.pop_back();
        }
        if (text.back() == '.') {
            text.pop_back();
        }
        return text;
    }
    std::string operator()(Duration time) const {
        return fmt::format("{} {}", number(time), unit_);
    }
    /// Whether a time is more than what would be written as 0.
    bool shows(Duration time) const {
        return to_milliseconds(time) * per_ms_ >= 0.5 * std::pow(10, -decimals_);
    }
    bool differ(Duration a, Duration b) const { return shows(a > b ? a - b : b - a); }
    std::string_view unit() const { return unit_; }

  private:
    std::string_view unit_ = "ms";
    double per_ms_ = 1;
    int decimals_ = 1;
};

double share(Duration part, Duration whole) {
    return whole > Duration{}
               ? static_cast<double>(part.count()) / static_cast<double>(whole.count())
               : 0;
}

std::string percent(double share) {
    return fmt::format("{:.1f} %", 100 * share);
}

/// "1F0", or "1F0, 2F0 and 2B0"; of many the first and the last ones.
std::string list_of(std::vector<std::string> items) {
    constexpr std::size_t most = 7;
    if (items.size() > most) {
        const std::string left_out = fmt::format("... ({} more) ...", items.size() - 6);
        items.erase(items.begin() + 3, items.end() - 3);
        items.insert(items.begin() + 3, left_out);
    }
    std::string text = items.front();
    for (std::size_t i = 1; i < items.size(); ++i) {
        text += (i + 1 == items.size() ? " and " : ", ") + items[i];
    }
    return text;
}

/// A number and its unit stay together.
std::size_t end_of_word(std::string_view text, std::size_t begin) {
    std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view rest = text.substr(std::min(end + 1, text.size()));
    const bool number = end > begin && text[end - 1] >= '0' && text[end - 1] <= '9';
    const std::string_view next = rest.substr(0, rest.find_first_of(" .,;)"));
    if (number && (next == "%" || next == "ms" || next == "us" || next == "ns" || next == "s")) {
        end = std::min(text.find(' ', end + 1), text.size());
    }
    return end;
}

class Words {
  public:
    Words(const Plan& plan, const Explanation& what) : plan_(plan), what_(what), time_(what.step) {}

    std::vector<std::string> where_the_time_goes() {
        say_work_and_wait();
        say_bubble();
        say_imbalance();
        say_communication();
        say_back_pressure();
        say_sharing();
        say_recompute();
        say_dispatch();
        say_longest_wait();
        return std::move(lines_);
    }

    std::vector<std::string> what_would_help() const {
        std::vector<std::string> lines;
        for (const auto& best : what_.best_of_kind) {
            const sim::WhatIf& what = best.front();
            if (!time_.differ(what.step, what_.step)) {
                continue;
            }
            const bool others = best.size() > 1 && best[1].step == what.step &&
                                what.target.index != sim::everywhere;
            lines.push_back(fmt::format("{}{} twice as fast: {} -> {} (-{}); infinitely fast: {}",
                                        target_text(what.target),
                                        others ? other_text(what.target.part) : "",
                                        time_.number(what_.step),
                                        time_(what.step),
                                        percent(share(what_.step - what.step, what_.step)),
                                        time_(what.least_step)));
        }
        return lines;
    }

    std::vector<std::string> waits(std::size_t most) const {
        std::vector<std::string> lines;
        for (const auto& [wait, chain, slack] : what_.waits) {
            if (lines.size() == most) {
                break;
            }
            std::string line = fmt::format("rank {}  {} .. {}  {}:",
                                           wait.rank,
                                           time_.number(wait.begin),
                                           time_(wait.end),
                                           before(wait));
            for (const Cause& cause : chain) {
                line += fmt::format("{}{} {} {}",
                                    &cause == &chain.front() ? " " : ", ",
                                    to_string(cause.action),
                                    sim::to_string(cause.reason),
                                    time_.number(cause.end - cause.begin));
            }
            if (slack && time_.shows(*slack)) {
                line += fmt::format("; the step would not notice {} more", time_(*slack));
            }
            lines.push_back(std::move(line));
        }
        return lines;
    }

  private:
    /// For one of several that are as good.
    static std::string_view other_text(Part part) {
        return part == Part::Link   ? " (or another link)"
               : part == Part::Rank ? " (or another rank's)"
                                    : " (or another stage's)";
    }

    template <class... Values>
    void say(fmt::format_string<Values...> format, Values&&... values) {
        lines_.push_back(fmt::format(format, std::forward<Values>(values)...));
    }
    template <class... Values>
    void add(fmt::format_string<Values...> format, Values&&... values) {
        lines_.back() += ' ' + fmt::format(format, std::forward<Values>(values)...);
    }

    void say_work_and_wait() {
        if (!time_.shows(what_.wait)) {
            say("A step takes {}, and {}.",
                time_(what_.step),
                plan_.rank_count() == 1 ? "its one rank works all the time" : "no rank ever waits");
            return;
        }
        say("A step takes {}. On average a rank works for {} of it and waits for {} ({}).",
            time_(what_.step),
            time_(what_.step - what_.wait),
            time_(what_.wait),
            percent(share(what_.wait, what_.step)));
    }

    void say_bubble() {
        if (!time_.shows(what_.bubble)) {
            return;
        }
        say("{} of the wait is the bubble: even with equal stages and free links the pipeline has "
            "to "
            "fill at the start of a step and to drain at its end.",
            time_(what_.bubble));
        say_filling();
        if (what_.more) {
            const double now = share(what_.bubble, what_.step);
            if (what_.more->bubble_share < now - 0.0005) {
                add("More micro-batches make the bubble's share of the step smaller: {} instead "
                    "of {} would bring it from {} to {}{}.",
                    what_.more->micro_batches,
                    plan_.micro_batches(),
                    percent(now),
                    percent(what_.more->bubble_share),
                    what_.more->same_batch
                        ? fmt::format(", and the step to {}", time_(what_.more->step))
                        : "");
            }
        }
    }

    void say_filling() {
        const auto& late = what_.last_to_begin;
        const auto& early = what_.first_to_finish;
        const bool fills = late && time_.shows(late->time);
        const bool drains = early && time_.differ(early->time, what_.step);
        const std::string filling =
            fills ? fmt::format(
                        "Rank {} cannot begin before {}, when the first micro-batch (a "
                        "slice of the batch) has come to it",
                        late->rank,
                        time_(late->time))
                  : "";
        const std::string draining = drains ? fmt::format("done {} before the end of the step",
                                                          time_(what_.step - early->time))
                                            : "";
        if (fills && drains) {
            add("{}, and {}{}.",
                filling,
                late->rank == early->rank ? "it is " : fmt::format("rank {} is ", early->rank),
                draining);
        } else if (fills) {
            add("{}.", filling);
        } else if (drains) {
            add("Rank {} is {}.", early->rank, draining);
        }
    }

    void say_imbalance() {
        if (!time_.shows(what_.imbalance)) {
            return;
        }
        say("{} of the wait is imbalance: the work is not spread evenly.", time_(what_.imbalance));
        const double above = share(what_.busiest->time, what_.mean_compute) - 1;
        if (above >= 0.0005) {
            add("Rank {}{} computes longest: {}, {} more than the mean over the ranks, {}. The "
                "others wait for it.",
                what_.busiest->rank,
                stages_of(what_.busiest->rank),
                time_(what_.busiest->time),
                percent(above),
                time_(what_.mean_compute));
        }
        if (what_.equal_step && *what_.equal_step < what_.step &&
            time_.differ(*what_.equal_step, what_.step)) {
            add("If all stages were equal, the step would take {}.", time_(*what_.equal_step));
        }
    }

    /// ", which holds stage 2,"
    std::string stages_of(int rank) const {
        std::vector<std::string> stages;
        const auto& ranks = plan_->schedule.rank_of_stage;
        for (std::size_t stage = 0; stage < ranks.size(); ++stage) {
            if (ranks[stage] == rank) {
                stages.push_back(std::to_string(stage));
            }
        }
        return stages.empty()
                   ? ""
                   : fmt::format(" (stage{} {})", stages.size() == 1 ? "" : "s", list_of(stages));
    }

    void say_communication() {
        if (!time_.shows(what_.communication)) {
            return;
        }
        if (!what_.slowest_link) {
            say("{} of the wait is for gradients: an update of the weights needs the sum over all "
                "copies of a stage.",
                time_(what_.communication));
            return;
        }
        const Explanation::Link& link = *what_.slowest_link;
        say("{} of the wait is for messages on their way from rank to rank.",
            time_(what_.communication));
        if (link.all_alike) {
            add("Each of them takes {}", time_(link.message));
        } else {
            const auto& ranks = plan_->schedule.rank_of_stage;
            const auto stage = static_cast<std::size_t>(link.boundary);
            add("The slowest link is that between rank {} and rank {}, where a message takes {}",
                ranks[stage],
                ranks[stage + 1],
                time_(link.message));
        }
        if (link.latency == link.message) {
            lines_.back() += ", whatever its size.";
        } else if (time_.shows(link.latency)) {
            lines_.back() +=
                fmt::format(", of which {} would pass even if it were empty.", time_(link.latency));
        } else {
            lines_.back() += '.';
        }
        if (what_.instant_step && time_.differ(*what_.instant_step, what_.step)) {
            add("If messages took no time, the step would take {}.", time_(*what_.instant_step));
        }
    }

    void say_back_pressure() {
        if (!time_.shows(what_.back_pressure)) {
            return;
        }
        const int capacity = plan_->channel_capacity.value_or(0);
        say("{} of the wait is for room: {} With room for every message the step would take {}.",
            time_(what_.back_pressure),
            capacity == 0
                ? std::string("a rank can hand a message over only when the receiver is waiting "
                              "for it.")
                : fmt::format("between two ranks there is room for {} at a time, and a rank that "
                              "has made another waits until the receiver takes {}.",
                              counted(capacity, "message"),
                              capacity == 1 ? "the one before" : "one of them"),
            time_(what_.roomy_step.value_or(what_.step - what_.back_pressure)));
    }

    void say_sharing() {
        if (time_.shows(what_.sharing)) {
            say("{} of the wait comes from sharing: messages on one link, or ranks on one "
                "processor, "
                "slow each other down.",
                time_(what_.sharing));
        }
    }

    void say_recompute() {
        if (time_.shows(what_.recompute)) {
            say("Of the work, {} is recompute: forwards are done a second time, so that their "
                "results need not be kept in memory until the backward.",
                time_(what_.recompute));
            if (what_.step_without_recompute) {
                add("Without it the step would take {}.", time_(*what_.step_without_recompute));
            }
        }
    }

    void say_dispatch() {
        if (time_.shows(what_.dispatch)) {
            say("Of the work, {} is overhead: the time that the host needs to start each action.",
                time_(what_.dispatch));
            if (what_.step_without_dispatch) {
                add("Without it the step would take {}.", time_(*what_.step_without_dispatch));
            }
        }
    }

    void say_longest_wait() {
        if (what_.waits.empty() ||
            !time_.shows(what_.waits.front().wait.end - what_.waits.front().wait.begin)) {
            return;
        }
        const Wait& wait = what_.waits.front().wait;
        const std::vector<Cause>& chain = what_.waits.front().chain;
        say("The longest single wait is that of rank {}: {} {}.",
            wait.rank,
            time_(wait.end - wait.begin),
            before(wait, true));
        std::vector<std::string> ran;
        Duration on_the_way{};
        for (const Cause& cause : chain) {
            if (is_send(cause.action.op)) {
                on_the_way += cause.end - cause.begin;
            } else if (ran.empty() || ran.back() != to_string(cause.action)) {
                ran.push_back(to_string(cause.action));
            }
        }
        if (wait.kind == WaitKind::StepEnd && !ran.empty()) {
            ran.front() = in_full(chain_action(chain));
        }
        if (ran.empty()) {
            add("Meanwhile messages were on their way.");
        } else if (ran.size() == 1) {
            add("It waited for {} to end.", ran.front());
        } else {
            add("It waited for {}, one after the other.", list_of(ran));
        }
        if (!ran.empty() && time_.shows(on_the_way)) {
            add("{} of this time messages were on their way.", time_(on_the_way));
        }
    }

    /// "before 0B3", in full "before 0B3 (the backward of micro-batch 3 on stage 0)"; for a receive
    /// that is the action behind it.
    std::string before(const Wait& wait, bool full = false) const {
        if (wait.kind == WaitKind::StepEnd) {
            return "after its last action, until the end of the step";
        }
        const auto& row = plan_->schedule.ranks[static_cast<std::size_t>(wait.rank)];
        auto cell = static_cast<std::size_t>(wait.cell);
        while (wait.kind == WaitKind::Message && cell + 1 < row.size() &&
               !is_compute(row[cell].op)) {
            ++cell;
        }
        const Action& action = row[cell];
        return "before " + (full ? in_full(action) : to_string(action));
    }

    /// "0B3 (the backward of micro-batch 3 on stage 0)": the first name of an action that a reader
    /// meets.
    static std::string in_full(const Action& action) {
        return has_micro_batch(action.op) ? fmt::format("{} (the {} of micro-batch {} on stage {})",
                                                        to_string(action),
                                                        op_words(action.op),
                                                        action.micro_batch,
                                                        action.stage)
                                          : fmt::format("{} (the {} of stage {})",
                                                        to_string(action),
                                                        op_words(action.op),
                                                        action.stage);
    }

    /// The first that is no message.
    static Action chain_action(const std::vector<Cause>& chain) {
        return std::ranges::find_if(chain,
                                    [](const Cause& cause) { return !is_send(cause.action.op); })
            ->action;
    }

    const Plan& plan_;
    const Explanation& what_;
    Times time_;
    std::vector<std::string> lines_;
};

}  // namespace

std::string target_text(const sim::Target& target) {
    const bool all = target.index == sim::everywhere;
    const auto of_stage = [&](std::string_view part, std::string_view parts) {
        return all ? fmt::format("every {}", parts)
                   : fmt::format("stage {}'s {}", target.index, part);
    };
    switch (target.part) {
        case Part::Forward:
            return of_stage("forward", "forward");
        case Part::Backward:
            return of_stage("backward", "backward");
        case Part::BackwardInput:
            return "the input part of every backward";
        case Part::BackwardWeight:
            return "the weight part of every backward";
        case Part::Recompute:
            return of_stage("recompute", "recompute");
        case Part::Update:
            return "the update of the weights";
        case Part::Reduction:
            return "the summing of gradients";
        case Part::Link:
            return all ? "every link between ranks"
                       : fmt::format(
                             "the link between stages {} and {}", target.index, target.index + 1);
        case Part::Rank:
            return fmt::format("rank {}'s device", target.index);
        case Part::Dispatch:
            return "the host's starting of actions";
    }
    return "";
}

std::vector<Paragraph> explanation_paragraphs(const Plan& plan,
                                              const sim::Explanation& explanation) {
    Words words(plan, explanation);
    std::vector<Paragraph> paragraphs{
        {.heading = "Where the time goes", .lines = words.where_the_time_goes()}};
    std::vector<std::string> help = words.what_would_help();
    if (!help.empty()) {
        paragraphs.push_back({.heading = "What would help most", .lines = std::move(help)});
    }
    return paragraphs;
}

std::vector<std::string> wait_lines(const Plan& plan,
                                    const sim::Explanation& explanation,
                                    std::size_t most) {
    return Words(plan, explanation).waits(most);
}

std::string paragraph_text(const Paragraph& paragraph, int width) {
    const auto limit = static_cast<std::size_t>(std::clamp(width, 40, 120));
    std::string text = fmt::format("{}\n", paragraph.heading);
    for (const std::string& sentence : paragraph.lines) {
        std::string line = " ";
        std::size_t begin = 0;
        while (begin < sentence.size()) {
            const std::size_t end = end_of_word(sentence, begin);
            const std::string word = sentence.substr(begin, end - begin);
            if (line.size() + 1 + word.size() > limit) {
                text += line + '\n';
                line = "   ";
            }
            line += ' ' + word;
            begin = end + 1;
        }
        text += line + '\n';
    }
    return text;
}

}  // namespace pipetwin::cli

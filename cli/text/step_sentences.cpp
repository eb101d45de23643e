// SPDX-License-Identifier: Apache-2.0
#include "cli/text/step_sentences.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "cli/text/sentences.h"
#include "cli/text/text_output.h"
#include "core/base/as_index.h"
#include "core/base/number_text.h"
#include "core/plan/plan.h"
#include "core/schedule/edge.h"

namespace pipetwin::cli {

namespace {

using sim::Cause;
using sim::Explanation;
using sim::Reason;
using sim::Wait;
using sim::WaitKind;

class Words {
  public:
    Words(const Plan& plan, const Explanation& what)
        : plan_(plan),
          what_(what),
          time_(what.step),
          shown_(time_.parts_of(what.wait,
                                {what.fill_and_drain,
                                 what.imbalance,
                                 what.communication,
                                 what.host_copies,
                                 what.back_pressure,
                                 what.sharing})) {}

    std::vector<std::string> all() {
        say_work_and_wait();
        say_bubble();
        say_imbalance();
        say_communication();
        say_host_copies();
        say_back_pressure();
        say_sharing();
        say_messages_in_actions();
        say_recompute();
        say_dispatch();
        say_longest_wait();
        return std::move(lines_);
    }

  private:
    template <class... Values>
    void say(fmt::format_string<Values...> format, Values&&... values) {
        lines_.push_back(fmt::format(format, std::forward<Values>(values)...));
    }
    template <class... Values>
    void add(fmt::format_string<Values...> format, Values&&... values) {
        lines_.back() += ' ' + fmt::format(format, std::forward<Values>(values)...);
    }

    void say_work_and_wait() {
        if (!time_.shows(what_.wait) && (notable_shards() || notable_tensor())) {
            say("A step takes {}. {}",
                time_(what_.step),
                plan_.rank_count() == 1
                    ? "Its one rank is never idle, but it does not compute all the time."
                    : "No rank is ever idle, but ranks do not compute all the time.");
            return;
        }
        if (!time_.shows(what_.wait)) {
            say("A step takes {}, and {}.",
                time_(what_.step),
                plan_.rank_count() == 1 ? "its one rank works all the time" : "no rank ever waits");
            return;
        }
        const double waiting = share(what_.wait, what_.step);
        say("A step takes {}. On average a rank (one device of the pipeline) works for {} of it "
            "and waits for {}{}.",
            time_(what_.step),
            time_(what_.step - what_.wait),
            time_(what_.wait),
            shows_percent(waiting) ? fmt::format(" ({})", rounded_percent(waiting)) : "");
    }

    /// The parts of the wait, rounded so that they add up to it.
    enum class Part { Bubble, Imbalance, Communication, HostCopies, BackPressure, Sharing };

    Duration shown(Part part) const { return shown_[as_index(part)]; }

    void say_bubble() {
        if (shown(Part::Bubble) == Duration{}) {
            return;
        }
        say("{} of the wait is fill and drain: even if all stages (parts of the model, one after "
            "the other) took equally long and messages took no time, the pipeline would have to "
            "fill at the start of a step and to drain at its end.",
            time_(shown(Part::Bubble)));
        say_filling();
        if (what_.more) {
            const double now = share(what_.fill_and_drain, what_.step);
            if (what_.more->bubble_share < now - 0.0005) {
                add("More micro-batches make this share of the step smaller: {} instead of {} "
                    "would bring it from {} to {}{}.",
                    what_.more->micro_batches,
                    plan_.micro_batches(),
                    rounded_percent(now),
                    rounded_percent(what_.more->bubble_share),
                    what_.more->same_batch ? step_of_more() : "");
            }
        }
    }

    /// The step with more micro-batches of the same batch: smaller ones can compute more slowly.
    std::string step_of_more() const {
        const Duration step = what_.more->step;
        return step <= what_.step || !time_.differ(step, what_.step)
                   ? fmt::format(", and the step to {}", time_(step))
                   : fmt::format(", but the step would be longer: {} instead of {}",
                                 time_(step),
                                 time_(what_.step));
    }

    void say_filling() {
        const auto& late = what_.last_to_begin;
        const auto& early = what_.first_to_finish;
        const bool fills = late && time_.shows(late->time);
        const bool drains = early && time_.differ(early->time, what_.step);
        const std::string filling =
            fills ? fmt::format(
                        "Rank {} cannot begin before {}, when the first micro-batch (a "
                        "slice of the batch) reaches it",
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
        if (shown(Part::Imbalance) == Duration{}) {
            return;
        }
        say("{} of the wait is imbalance: the work is not spread evenly.",
            time_(shown(Part::Imbalance)));
        const double above = share(what_.busiest->time, what_.mean_compute) - 1;
        if (shows_percent(above)) {
            add("Rank {}{} computes longest: {}, {} more than the mean of the ranks ({}). The "
                "others wait for it.",
                what_.busiest->rank,
                stages_of(what_.busiest->rank),
                time_(what_.busiest->time),
                rounded_percent(above),
                time_(what_.mean_compute));
        }
        if (what_.equal_step && *what_.equal_step < what_.step &&
            time_.differ(*what_.equal_step, what_.step)) {
            add("If all stages were equal, the step would take {}: ranks that wait now would "
                "compute more.",
                time_(*what_.equal_step));
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
        if (shown(Part::Communication) == Duration{}) {
            return;
        }
        if (!what_.slowest_link) {
            say("{} of the wait is for gradients: the update of the weights needs their sum over "
                "all "
                "copies of a stage.",
                time_(shown(Part::Communication)));
            return;
        }
        const Explanation::Link& link = *what_.slowest_link;
        say("{} of the wait is for messages on their way from rank to rank.",
            time_(shown(Part::Communication)));
        if (link.all_alike) {
            add("Each of them takes {}", time_(link.message));
        } else {
            const auto& ranks = plan_->schedule.rank_of_stage;
            const StagePair stages = stages_of_pair(plan_->schedule, as_index(link.pair));
            add("The slowest link is that between rank {} and rank {}, where a message takes {}",
                ranks[as_index(stages.from)],
                ranks[as_index(stages.to)],
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

    void say_host_copies() {
        if (shown(Part::HostCopies) == Duration{}) {
            return;
        }
        say("{} of the wait is for stashes, which a forward keeps for its backward: they are "
            "copied to host memory, and an action that needs one waits until it is back.",
            time_(shown(Part::HostCopies)));
        if (what_.step_on_device && time_.differ(*what_.step_on_device, what_.step)) {
            add("If they stayed on their devices, the step would take {}.",
                time_(*what_.step_on_device));
        }
    }

    void say_back_pressure() {
        if (shown(Part::BackPressure) == Duration{}) {
            return;
        }
        const int capacity = plan_->channel_capacity.value_or(0);
        say("{} of the wait is for room: {} With room for every message the step would take {}.",
            time_(shown(Part::BackPressure)),
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
        if (shown(Part::Sharing) > Duration{}) {
            say("{} of the wait comes from sharing: messages on one link, or ranks on one "
                "processor, "
                "slow each other down.",
                time_(shown(Part::Sharing)));
            if (what_.busiest_link) {
                add("Of the shared links the {} has most to carry: {} in a step of {}.",
                    what_.busiest_link->name,
                    time_(what_.busiest_link->carries),
                    time_(what_.step));
            }
        }
    }

    bool notable_shards() const {
        return sim::is_notable(what_.messages.busiest_shards, what_.step);
    }
    bool notable_tensor() const {
        return sim::is_notable(what_.messages.busiest_tensor, what_.step);
    }

    void say_messages_in_actions() {
        const sim::MessagesInActions& messages = what_.messages;
        const auto part = [&](Duration time) {
            return fmt::format("Of rank {}'s {} of work, {} ({})",
                               messages.busiest,
                               time_(messages.work),
                               time_(time),
                               rounded_percent(share(time, messages.work)));
        };
        if (notable_shards()) {
            say("{} are waits for weights and gradients of other replicas: no computation hides "
                "these messages.",
                part(messages.busiest_shards));
        }
        if (notable_tensor()) {
            const bool sums_alone = plan_->context_parallel == 1 && plan_->expert_parallel == 1;
            if (sums_alone) {
                say("{} are sums among the {} devices of a rank (tensor parallelism).",
                    part(messages.busiest_tensor),
                    plan_->tensor_parallel);
            } else {
                say("{} are messages of {}.",
                    part(messages.busiest_tensor),
                    inner_parallelism(plan_));
            }
        }
    }

    void say_recompute() {
        if (time_.shows(what_.recompute)) {
            say("{} of the work is recompute: forwards are computed a second time, so that their "
                "results need not stay in memory until the backward.",
                time_(what_.recompute));
            if (what_.step_without_recompute) {
                add("Without it the step would take {}.", time_(*what_.step_without_recompute));
            }
        }
    }

    void say_dispatch() {
        if (time_.shows(what_.dispatch)) {
            say("{} of the work is overhead: the time that the host needs to start each action.",
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
            place_of(plan_, wait, true));
        std::vector<std::string> ran;
        Duration on_the_way{};
        Duration copied{};
        for (const Cause& cause : chain) {
            if (cause.reason == Reason::HostCopy) {
                copied += cause.end - cause.begin;
            } else if (is_send(cause.action.op)) {
                on_the_way += cause.end - cause.begin;
            } else if (ran.empty() || ran.back() != to_string(cause.action)) {
                ran.push_back(to_string(cause.action));
            }
        }
        if (wait.kind == WaitKind::StepEnd && !ran.empty()) {
            ran.front() = in_full(chain_action(chain));
        }
        if (wait.kind == WaitKind::Stash) {
            add("It waits for its stash, which the forward kept for it, to come back from host "
                "memory.");
        }
        if (ran.empty()) {
            if (on_the_way > Duration{}) {
                add("Meanwhile messages were on their way.");
            }
        } else if (ran.size() == 1) {
            add("It waited for {} to end.", ran.front());
        } else {
            add("It waited for {}, one after the other.", list_of(ran));
        }
        if (!ran.empty() && time_.shows(on_the_way)) {
            add("For {} of this time messages were on their way.", time_(on_the_way));
        }
        if (wait.kind != WaitKind::Stash && time_.shows(copied)) {
            add("For {} of this time stashes were on their way to host memory or back.",
                time_(copied));
        }
    }

    /// The first that is no message and no copy.
    static Action chain_action(const std::vector<Cause>& chain) {
        return std::ranges::find_if(chain,
                                    [](const Cause& cause) {
                                        return !is_send(cause.action.op) &&
                                               cause.reason != Reason::HostCopy;
                                    })
            ->action;
    }

    const Plan& plan_;
    const Explanation& what_;
    Times time_;
    std::vector<Duration> shown_;  ///< [part]
    std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> where_the_time_goes(const Plan& plan, const Explanation& what) {
    return Words(plan, what).all();
}

std::string place_of(const Plan& plan, const sim::Wait& wait, bool full) {
    if (wait.kind == WaitKind::StepEnd) {
        return "after its last action, until the end of the step";
    }
    const auto& row = plan->schedule.ranks[as_index(wait.rank)];
    auto cell = static_cast<std::size_t>(wait.cell);
    while (wait.kind == WaitKind::Message && cell + 1 < row.size() && !is_compute(row[cell].op)) {
        ++cell;
    }
    const Action& action = row[cell];
    return "before " + (full ? in_full(action) : to_string(action));
}

}  // namespace pipetwin::cli

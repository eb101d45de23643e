// SPDX-License-Identifier: Apache-2.0
#include "sim/explain/plan_of_step.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/schedule/edge.h"
#include "core/schedule/lower.h"

namespace pipetwin::sim {

namespace {

/// Links of this rate carry a byte in a nanosecond: a message has as many bytes as it takes time.
constexpr double byte_per_nanosecond = 1e9;

/// Times of a step by what they belong to.
class StepTimesByPart {
  public:
    StepTimesByPart(const Timeline& step, const Schedule& form)
        : form_(form),
          costs_(as_index(form.micro_batches), std::vector<StageCost>(stages())),
          states_(stages()),
          all_reduce_(stages()),
          on_link_(as_index(form.micro_batches), std::vector<Duration>(edge_count(form))),
          latency_(pair_count(form)),
          hand_over_(stages()) {
        for (const auto& row : step.ranks) {
            for (const Span& span : row) {
                take(span);
            }
        }
        take_links(step);
        take_latencies(step);
        take_hand_overs(step);
    }

    PlanParts parts() &&;

  private:
    /// The arrival of a message that its receiver waited for, and its send.
    struct Message {
        const Span* send = nullptr;
        const Span* receive = nullptr;
        Duration off_link{};
    };

    std::size_t stages() const { return form_.rank_of_stage.size(); }
    void take(const Span& span);
    void take_links(const Timeline& step);
    void take_latencies(const Timeline& step);
    void take_hand_overs(const Timeline& step);
    std::vector<int> merge_classes();

    const Schedule& form_;
    std::vector<std::vector<StageCost>> costs_;  ///< [micro-batch][stage]
    std::vector<StageState> states_;
    std::vector<Duration> all_reduce_;
    std::vector<std::vector<Duration>> on_link_;  ///< [micro-batch][edge]
    std::vector<Duration> latency_;               ///< [pair]
    std::vector<Duration> hand_over_;             ///< [stage]
    bool sums_ = false;
    bool blocks_ = false;
};

void StepTimesByPart::take(const Span& span) {
    const Action& action = span.action;
    const Duration time = span.end - span.ready;
    const std::size_t stage = as_index(action.stage);
    const auto cost = [&]() -> StageCost& {
        return costs_.at(as_index(action.micro_batch)).at(stage);
    };
    switch (action.op) {
        case Op::Forward:
            cost().forward = time;
            break;
        case Op::Recompute:
            cost().recompute = time;
            break;
        case Op::Backward:
            cost().backward = time;
            break;
        case Op::BackwardInput:
            cost().backward_input = time;
            break;
        case Op::BackwardWeight:
            cost().backward_weight = time;
            break;
        case Op::ReduceGradient:
            all_reduce_.at(stage) = time;
            sums_ = sums_ || time > Duration{};
            break;
        case Op::GradientNorm:
            states_.at(stage).norm = time;
            break;
        case Op::Optimizer:
            states_.at(stage).optimizer = time;
            break;
        default:
            blocks_ = blocks_ || (is_send(action.op) && time > Duration{});
    }
}

void StepTimesByPart::take_links(const Timeline& step) {
    for (std::size_t edge = 0; edge < step.links.size(); ++edge) {
        for (const Span& span : step.links[edge]) {
            on_link_.at(as_index(span.action.micro_batch)).at(edge) = span.end - span.begin;
        }
    }
}

/// A receive that waited says when its message arrived.
void StepTimesByPart::take_latencies(const Timeline& step) {
    std::vector<std::map<int, Message>> messages(edge_count(form_));  // by micro-batch
    const auto message_of = [&](const Action& action) -> Message& {
        return messages.at(as_index(edge_of(form_, action)))[action.micro_batch];
    };
    for (const auto& row : step.ranks) {
        for (const Span& span : row) {
            if (is_message(span.action.op)) {
                Message& message = message_of(span.action);
                (is_send(span.action.op) ? message.send : message.receive) = &span;
            }
        }
    }
    for (const auto& link : step.links) {
        for (const Span& span : link) {
            message_of(span.action).off_link = span.end;
        }
    }
    std::vector<std::optional<Duration>> shortest(latency_.size());
    for (std::size_t edge = 0; edge < messages.size(); ++edge) {
        for (const auto& [micro_batch, message] : messages[edge]) {
            if (message.send == nullptr || message.receive == nullptr ||
                message.receive->ready <= message.receive->begin) {
                continue;
            }
            const Duration gone = step.links.empty() ? message.send->ready : message.off_link;
            const Duration time = std::max(Duration{}, message.receive->ready - gone);
            std::optional<Duration>& least = shortest[edge / 2];
            least = least ? std::min(*least, time) : time;
        }
    }
    for (std::size_t pair = 0; pair < latency_.size(); ++pair) {
        latency_[pair] = shortest[pair].value_or(Duration{});
    }
}

/// A norm or an update that waited for the gradients of another stage says how long they took.
void StepTimesByPart::take_hand_overs(const Timeline& step) {
    std::vector<const Span*> reduced(stages(), nullptr);
    std::vector<const Span*> used(stages(), nullptr);  // the first that uses the gradients
    for (const auto& row : step.ranks) {
        for (const Span& span : row) {
            const std::size_t stage = as_index(span.action.stage);
            if (span.action.op == Op::ReduceGradient) {
                reduced.at(stage) = &span;
            } else if (uses_gradients(span.action.op) && used.at(stage) == nullptr) {
                used.at(stage) = &span;
            }
        }
    }
    for (std::size_t stage = 0; stage < stages(); ++stage) {
        const auto source = gradient_source(form_, static_cast<int>(stage));
        const Span* const sent = source ? reduced[as_index(*source)] : nullptr;
        if (sent != nullptr && used[stage] != nullptr && used[stage]->ready > used[stage]->begin) {
            hand_over_[as_index(*source)] = std::max(Duration{}, used[stage]->ready - sent->begin);
        }
    }
}

/// Micro-batches that cost the same everywhere share a class. Returns the class of each.
std::vector<int> StepTimesByPart::merge_classes() {
    std::map<std::vector<Duration>, int> known;
    std::vector<int> classes;
    std::vector<std::vector<StageCost>> costs;
    std::vector<std::vector<Duration>> on_link;
    for (std::size_t micro_batch = 0; micro_batch < costs_.size(); ++micro_batch) {
        std::vector<Duration> times = on_link_[micro_batch];
        for (const StageCost& cost : costs_[micro_batch]) {
            times.insert(times.end(),
                         {cost.forward,
                          cost.recompute,
                          cost.backward,
                          cost.backward_input,
                          cost.backward_weight});
        }
        const auto [found, is_new] =
            known.emplace(std::move(times), static_cast<int>(costs.size()));
        if (is_new) {
            costs.push_back(std::move(costs_[micro_batch]));
            on_link.push_back(std::move(on_link_[micro_batch]));
        }
        classes.push_back(found->second);
    }
    costs_ = std::move(costs);
    on_link_ = std::move(on_link);
    return classes;
}

PlanParts StepTimesByPart::parts() && {
    PlanParts parts;
    parts.cost_class = merge_classes();
    const auto bytes_of = [](Duration time) { return Bytes{time.count()}; };
    const bool has_skips = !form_.skips.empty();
    for (std::size_t number = 0; number < costs_.size(); ++number) {
        std::vector<Bytes> of_pairs;
        for (std::size_t pair = 0; pair < latency_.size(); ++pair) {
            const Duration there = on_link_[number][2 * pair];
            const Duration back = on_link_[number][2 * pair + 1];
            of_pairs.push_back(bytes_of(std::max(there, back)));
            if (pair < boundary_count(form_)) {
                costs_[number][pair].output = bytes_of(there);
                costs_[number][pair + 1].input = bytes_of(back);
            }
        }
        if (has_skips) {
            parts.message_bytes.push_back(std::move(of_pairs));
        }
    }
    for (const Duration latency : latency_) {
        parts.links.push_back({.latency = latency, .bytes_per_second = byte_per_nanosecond});
    }
    if (gradient_source(form_, 0)) {
        for (const Duration latency : hand_over_) {
            parts.reductions.push_back({.latency = latency});
        }
    }
    parts.all_reduce = sums_ ? std::move(all_reduce_) : std::vector<Duration>{};
    parts.transfer = blocks_ ? TransferMode::Blocking : TransferMode::Asynchronous;
    parts.costs = std::move(costs_);
    parts.states = std::move(states_);
    return parts;
}

}  // namespace

Plan plan_of_step(const Timeline& step, Schedule form, std::optional<int> channel_capacity) {
    form.ranks.clear();
    for (const auto& row : step.ranks) {
        auto& actions = form.ranks.emplace_back();
        for (const Span& span : row) {
            actions.push_back(span.action);
        }
    }
    PlanParts parts = StepTimesByPart(step, form).parts();
    const auto recompute = recompute_of(form);
    if (!recompute) {
        throw Error(ErrorKind::Infeasible,
                    "",
                    "some micro-batches of a stage are recomputed and others are not",
                    "recompute all of a stage's, all but the last, or none");
    }
    parts.recompute = *recompute;
    parts.schedule = std::move(form);
    parts.schedule_name = "the step's own order";
    parts.channel_capacity = channel_capacity;
    return Plan::make(std::move(parts));
}

}  // namespace pipetwin::sim

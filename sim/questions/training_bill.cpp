// SPDX-License-Identifier: Apache-2.0
#include "sim/questions/training_bill.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "sim/variation/goodput.h"

namespace pipetwin::sim {

TrainingBill training_bill(const BillQuestion& question) {
    TrainingBill bill;
    if (question.tokens) {
        constexpr double seconds_of_a_day = 86'400;
        constexpr double seconds_of_an_hour = 3600;
        const double seconds = *question.tokens / question.tokens_per_second;
        bill.days = seconds / seconds_of_a_day;
        bill.device_hours = seconds / seconds_of_an_hour * question.devices;
        if (question.price) {
            bill.cost = *bill.device_hours * *question.price;
        }
    }
    return bill;
}

BillWithFailures bill_with_failures(const BillQuestion& question,
                                    const FailureAssumptions& assumptions) {
    const Goodput goodput = best_goodput({.mtbf_hours = assumptions.mtbf_hours,
                                          .devices = question.devices,
                                          .step = question.step,
                                          .checkpoint = assumptions.checkpoint,
                                          .restart = assumptions.restart});
    const TrainingBill plain = training_bill(question);
    BillWithFailures bill{.share = goodput.share, .checkpoint_every = goodput.checkpoint_every};
    if (plain.days) {
        bill.days = *plain.days / goodput.share;
        bill.more_days = *bill.days - *plain.days;
        bill.device_hours = *plain.device_hours / goodput.share;
        bill.failures = *bill.device_hours / assumptions.mtbf_hours;
    }
    if (plain.cost) {
        bill.cost = *plain.cost / goodput.share;
        bill.more_cost = *bill.cost - *plain.cost;
    }
    return bill;
}

std::vector<std::size_t> time_cost_front(const std::vector<TimeAndCost>& choices) {
    std::vector<std::size_t> order(choices.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&choices](std::size_t i) {
        return std::tuple(choices[i].days, choices[i].cost);
    });
    std::vector<std::size_t> front;
    for (const std::size_t i : order) {
        if (front.empty() || choices[i].cost < choices[front.back()].cost) {
            front.push_back(i);
        }
    }
    return front;
}

std::optional<std::size_t> cheapest_in_time(const std::vector<TimeAndCost>& choices, double days) {
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < choices.size(); ++i) {
        const auto key = [&choices](std::size_t at) {
            return std::tuple(choices[at].cost, choices[at].days);
        };
        if (choices[i].days <= days && (!best || key(i) < key(*best))) {
            best = i;
        }
    }
    return best;
}

}  // namespace pipetwin::sim

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include "core/base/units.h"

/// What a whole training takes in the units in which clusters are bought: days, device hours, cost,
/// and what failures add.
namespace pipetwin::sim {

/// What stops a training and what is done against it, as `Failures` of each device.
struct FailureAssumptions {
    /// Mean time between failures of one device, in hours. 419 unexpected interruptions of 16,384
    /// H100 in 54 days are one in 50,676 hours: "The Llama 3 Herd of Models", 2024, section 3.3.4.
    double mtbf_hours = 50'000;
    Duration checkpoint = std::chrono::minutes(1);  ///< time in which no step is made
    Duration restart = std::chrono::minutes(20);    ///< to find, replace and load

    bool operator==(const FailureAssumptions&) const = default;
};

/// A plan of which the bill is asked.
struct BillQuestion {
    Duration step{};
    double tokens_per_second = 0;
    int devices = 1;                 ///< of the plan; others are not paid
    std::optional<double> tokens{};  ///< of the whole training; none: its length is not known
    std::optional<double> price{};   ///< of one device for an hour, in any currency
};

/// Days, device hours and cost of a training in which nothing fails; none where the question lacks
/// what they follow from.
struct TrainingBill {
    std::optional<double> days{};
    std::optional<double> device_hours{};
    std::optional<double> cost{};
};

TrainingBill training_bill(const BillQuestion& question);

/// What failures add to the training, with the best number of steps between checkpoints.
struct BillWithFailures {
    double share = 1;                   ///< of the time that goes into steps which are kept
    int checkpoint_every = 1;           ///< steps
    std::optional<double> failures{};   ///< mean number of them over the training
    std::optional<double> more_days{};  ///< beside those of TrainingBill
    std::optional<double> days{};       ///< in all, as device hours and cost
    std::optional<double> device_hours{};
    std::optional<double> more_cost{};
    std::optional<double> cost{};
};

/// Throws Error(BadInput) as `check_failures`.
BillWithFailures bill_with_failures(const BillQuestion& question,
                                    const FailureAssumptions& assumptions);

/// How long a choice takes, and what it costs; in any units.
struct TimeAndCost {
    double days = 0;
    double cost = 0;
};

/// Indices of the choices that no other one beats in one of the two without losing in the other,
/// from the shortest time up.
std::vector<std::size_t> time_cost_front(const std::vector<TimeAndCost>& choices);

/// The choice of the least cost that takes at most so many days, of equal costs the shorter one;
/// none where each takes longer.
std::optional<std::size_t> cheapest_in_time(const std::vector<TimeAndCost>& choices, double days);

}  // namespace pipetwin::sim

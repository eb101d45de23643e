// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "exec/executor/flight_recorder.h"
#include "exec/transport/monitor.h"
#include "exec/transport/process_group.h"

namespace pipetwin {

class Plan;

}  // namespace pipetwin

namespace pipetwin::exec {

/// Where a process stands in a training: the group that it trains in, and what of its machine it
/// may use. As it is by default, the process trains alone and may use all that the program may.
///
/// The group either is this process alone, which has all ranks of all replicas, or has a process
/// for each device of each rank of each replica, in that order: the devices of a rank are
/// neighbours. What the pointers lead to outlives the
/// place; none is null.
struct ProcessPlace {
    ProcessGroup* group = &local_process_group();
    Monitor* monitor = &Monitor::of_no_peers();              ///< knows where the others are
    FlightRecorder* flight = &FlightRecorder::of_nothing();  ///< notes every action
    /// Processors to bind the workers to, one each; empty: those that the program may use.
    std::vector<int> cores{};
    bool shares_cores = false;  ///< with other workers: none is bound to one, and none spins
    int gpu = 0;                ///< with several processes: the one that the rank of this one has
};

/// The place of a device among all of a plan.
struct DeviceOfPlan {
    int replica = 0;
    int rank = 0;
    int device = 0;  ///< of the rank
};
/// The index of the process in the group that has a device.
int process_of(const ProcessGroup& group, const Plan& plan, const DeviceOfPlan& of);
/// The device that a process of several has.
DeviceOfPlan place_of_process(const Plan& plan, int process);

/// The first of the replicas, or devices of a rank, that the process of this place has ranks of,
/// and how many follow it without a gap, itself counted.
struct ReplicasHere {
    int first = 0;
    int count = 1;
};
/// The replicas that this process has ranks of, for a plan whose ranks are shared out to the group.
ReplicasHere replicas_here(const ProcessGroup& group, const Plan& plan);

/// The devices of a rank that this process has: all, or one.
ReplicasHere devices_here(const ProcessGroup& group, const Plan& plan);

/// The ranks of a replica of which this process has a device, ascending.
std::vector<int> ranks_here(const ProcessGroup& group, const Plan& plan, int replica, int device);

}  // namespace pipetwin::exec

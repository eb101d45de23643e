// SPDX-License-Identifier: Apache-2.0
#include "exec/device/group.h"

#include <exception>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace pipetwin::exec {

std::string_view to_string(GroupCall call) {
    switch (call) {
        case GroupCall::AllReduce:
            return "all-reduce";
        case GroupCall::ReduceScatter:
            return "reduce-scatter";
        case GroupCall::AllGather:
            return "all-gather";
        case GroupCall::AllToAll:
            return "all-to-all";
    }
    return "";
}

std::string group_text(GroupKind kind, int member, int size, int replicas) {
    if (kind == GroupKind::Devices) {
        return fmt::format("devices 0-{} of the rank", size - 1);
    }
    const int first = member / size * size;
    if (kind == GroupKind::Neighbours) {
        return fmt::format("devices {}-{} of the rank", first, first + size - 1);
    }
    if (kind == GroupKind::Replicas) {
        return fmt::format("replicas {}-{}", first, first + size - 1);
    }
    const int step = replicas / size;
    std::vector<int> members;
    for (int replica = member % step; replica < replicas; replica += step) {
        members.push_back(replica);
    }
    return fmt::format("replicas {}", fmt::join(members, ", "));
}

std::optional<GroupWait> Group::waits_for() const {
    const GroupWait wait = wait_;
    return wait == no_wait ? std::nullopt : std::optional(wait);
}

Group::Waiting::Waiting(Group& group, const GroupWait& wait)
    : group_(group), wait_(wait), exceptions_(std::uncaught_exceptions()) {
    group_.wait_ = wait;
}

Group::Waiting::~Waiting() {
    if (std::uncaught_exceptions() > exceptions_) {
        group_.broken_wait_ = wait_;
    }
    group_.wait_ = no_wait;
}

namespace {

class IdleGroup final : public Group {
  public:
    int size() const override { return 1; }
    int index() const override { return 0; }
    void all_reduce(View /*numbers*/, ConstView /*skip*/) override {}
    void all_reduce_of_neighbours(View /*numbers*/, int /*count*/) override {}
    void reduce_scatter(View /*numbers*/,
                        ConstView /*skip*/,
                        View /*own*/,
                        std::span<const ElementRange> /*parts*/) override {}
    void all_gather_on_host(std::span<const double> /*own*/, std::span<double> /*all*/) override {}
    void all_to_all(std::span<const ConstView> /*to*/, std::span<const View> /*from*/) override {}
    void begin_gather(ConstView /*own*/, View /*all*/) override {}
    void finish_gather() override {}
    void settle_gathers() override {}
    void abandon() override {}
    void close() override {}
};

}  // namespace

Group& idle_group() {
    static IdleGroup group;
    return group;
}

}  // namespace pipetwin::exec

// SPDX-License-Identifier: Apache-2.0
#include "core/costs/contention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "core/base/error.h"

namespace pipetwin {

std::string_view to_string(SharedLinkKind kind) {
    switch (kind) {
        case SharedLinkKind::Switch:
            return "switch";
        case SharedLinkKind::Host:
            return "host";
        case SharedLinkKind::Socket:
            return "socket";
        case SharedLinkKind::Memory:
            return "memory";
        case SharedLinkKind::Uplink:
            return "uplink";
    }
    PIPETWIN_EXPECT(false, "kind of a shared link out of range");
}

NodeLinks::NodeLinks(std::span<const NodeLink> links,
                     double inside,
                     double between,
                     const NodeLevels& levels)
    : links_(links), inside_(inside), between_(between), levels_(levels) {}

bool NodeLinks::has(std::size_t index, const DevicePlace& device) const {
    return std::ranges::binary_search(links_[index].devices, device.device);
}

void NodeLinks::pass(int node, std::size_t index, Way way, Passes& passes) {
    const Link link{.node = node, .index = index, .way = way};
    const auto [known, is_new] = number_of_.emplace(link, static_cast<int>(numbered_.size()));
    if (is_new) {
        numbered_.push_back(link);
    }
    ++passes[known->second];
}

void NodeLinks::add_message(const DevicePlace& from, const DevicePlace& to, Passes& passes) {
    if (from == to) {
        return;
    }
    const bool one_node = from.node == to.node;
    if (!one_node && levels_.domain_of(from.node) == levels_.domain_of(to.node)) {
        return;
    }
    for (std::size_t index = 0; index < links_.size(); ++index) {
        const SharedLinkKind kind = links_[index].kind;
        const bool leaves = has(index, from);
        const bool enters = has(index, to);
        const bool within = one_node && leaves && enters;
        const bool passes_it = kind == SharedLinkKind::Uplink   ? !one_node
                               : kind == SharedLinkKind::Socket ? one_node && !within
                               : kind == SharedLinkKind::Switch ? !within
                                                                : true;
        const bool one_rate = kind == SharedLinkKind::Memory;
        if (passes_it && leaves) {
            pass(from.node, index, one_rate ? Way::Both : Way::Out, passes);
        }
        if (passes_it && enters) {
            pass(to.node, index, one_rate ? Way::Both : Way::In, passes);
        }
    }
}

void NodeLinks::add_copy(const DevicePlace& device, bool back, Passes& passes) {
    for (std::size_t index = 0; index < links_.size(); ++index) {
        const SharedLinkKind kind = links_[index].kind;
        if (has(index, device) && kind != SharedLinkKind::Socket &&
            kind != SharedLinkKind::Uplink) {
            pass(device.node,
                 index,
                 kind == SharedLinkKind::Memory ? Way::Both
                 : back                         ? Way::In
                                                : Way::Out,
                 passes);
        }
    }
}

/// 0 stands for infinitely fast.
double NodeLinks::rate(int number) const {
    const NodeLink& link = links_[numbered_[as_index(number)].index];
    const double factor = link.kind == SharedLinkKind::Uplink ? between_ : inside_;
    return std::isinf(factor) ? 0 : link.bytes_per_second * factor;
}

/// "switch link out of devices 0 to 3 of node 1"
std::string NodeLinks::name(int number) const {
    const Link& link = numbered_[as_index(number)];
    const NodeLink& shared = links_[link.index];
    const std::vector<int>& devices = shared.devices;
    const bool in_a_row =
        devices.size() > 2 && devices.back() - devices.front() == std::ssize(devices) - 1;
    constexpr std::array<std::string_view, 3> ways{"out of", "into", "of"};
    std::string text = fmt::format(
        "{} {} device{} {}",
        shared.kind == SharedLinkKind::Uplink ? "uplink"
                                              : fmt::format("{} link", to_string(shared.kind)),
        ways[as_index(link.way)],
        devices.size() == 1 ? "" : "s",
        in_a_row ? fmt::format("{} to {}", devices.front(), devices.back())
                 : fmt::format("{}", fmt::join(devices, ", ")));
    const bool many_nodes = std::ranges::any_of(
        numbered_, [&](const Link& other) { return other.node != numbered_.front().node; });
    if (many_nodes) {
        text += fmt::format(" of node {}", link.node);
    }
    return text;
}

double NodeLinks::share(const Passes& passes, const Passes& all) const {
    double least = 0;
    for (const auto& [number, times] : passes) {
        const double each = rate(number) / all.at(number);
        if (each > 0 && (least == 0 || each < least)) {
            least = each;
        }
    }
    return least;
}

void NodeLinks::put_into(Contention& contention,
                         const std::vector<Passes>& edges,
                         const std::vector<Passes>& copies,
                         const std::vector<double>& most) const {
    std::vector<const Passes*> ways;
    for (const std::vector<Passes>* group : {&edges, &copies}) {
        std::ranges::transform(
            *group, std::back_inserter(ways), [](const Passes& passes) { return &passes; });
    }
    std::vector<std::vector<int>> columns(numbered_.size(), std::vector<int>(ways.size(), 0));
    for (std::size_t way = 0; way < ways.size(); ++way) {
        for (const auto& [number, times] : *ways[way]) {
            columns[as_index(number)][way] = times;
        }
    }
    contention.way_of_edge.resize(edges.size());
    contention.way_of_copies.resize(copies.size());
    std::map<std::pair<double, std::vector<int>>, int> kept;
    for (std::size_t number = 0; number < columns.size(); ++number) {
        std::vector<int>& times = columns[number];
        const int common = std::accumulate(
            times.begin(), times.end(), 0, [](int a, int b) { return std::gcd(a, b); });
        const double whole = rate(static_cast<int>(number));
        if (common == 0 || whole == 0) {
            continue;
        }
        double wanted = 0;
        for (std::size_t way = 0; way < ways.size(); ++way) {
            const bool at_once = times[way] > 0 && most[way] == 0;
            wanted =
                at_once ? std::numeric_limits<double>::infinity() : wanted + times[way] * most[way];
        }
        if (contention.sharing == LinkSharing::Fair && wanted <= whole) {
            continue;
        }
        for (int& count : times) {
            count /= common;
        }
        const double capacity = whole / common;
        const auto [known, is_new] = kept.emplace(std::pair(capacity, times),
                                                  static_cast<int>(contention.shared_links.size()));
        if (!is_new) {
            continue;
        }
        contention.shared_links.push_back(capacity);
        contention.link_names.push_back(name(static_cast<int>(number)));
        for (std::size_t way = 0; way < ways.size(); ++way) {
            auto& of = way < edges.size() ? contention.way_of_edge[way]
                                          : contention.way_of_copies[way - edges.size()];
            of.insert(of.end(), as_index(times[way]), known->second);
        }
    }
}

}  // namespace pipetwin

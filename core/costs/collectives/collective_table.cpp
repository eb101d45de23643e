// SPDX-License-Identifier: Apache-2.0
#include "core/costs/collectives/collective_table.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/costs/collectives/link_cost.h"

namespace pipetwin {

namespace {

using Curve = std::vector<Duration>;
using Curves = std::map<int, Curve>;

std::size_t row_of(Collective kind) {
    return static_cast<std::size_t>(kind == Collective::AllToAllDeduplicated ? Collective::AllToAll
                                                                             : kind);
}

/// (n - 1) / n, the share of the bytes that leaves a device.
double leaving_share(int members) {
    return (members - 1.0) / members;
}

double at_size(const std::vector<Bytes>& sizes, const Curve& curve, double bytes) {
    const auto size = [&](std::size_t i) { return static_cast<double>(sizes[i].count); };
    const auto above = std::ranges::lower_bound(
        sizes, bytes, {}, [](Bytes of) { return static_cast<double>(of.count); });
    const std::size_t last = sizes.size() - 1;
    if (above == sizes.end()) {
        const double per_byte =
            (ns_of(curve[last]) - ns_of(curve[last - 1])) / (size(last) - size(last - 1));
        return ns_of(curve[last]) + per_byte * (bytes - size(last));
    }
    const auto found = static_cast<std::size_t>(std::distance(sizes.begin(), above));
    if (size(found) == bytes) {
        return ns_of(curve[found]);
    }
    const std::size_t to = std::max<std::size_t>(found, 1);
    const double part = std::log(bytes / size(to - 1)) / std::log(size(to) / size(to - 1));
    return ns_of(curve[to - 1]) * std::pow(ns_of(curve[to]) / ns_of(curve[to - 1]), part);
}

/// What each member beyond the measured ones adds.
double per_member(const Curves& curves) {
    const auto last = std::prev(curves.end());
    if (last == curves.begin()) {
        return 0;
    }
    const auto before = std::prev(last);
    const double longer = ns_of(last->second.front()) - ns_of(before->second.front());
    return std::max(0.0, longer / (last->first - before->first));
}

}  // namespace

bool CollectiveTable::has(Collective kind) const {
    return !times[row_of(kind)].empty();
}

double CollectiveTable::nanoseconds(Collective kind, int members, double bytes) const {
    PIPETWIN_EXPECT(has(kind), "a measured collective");
    if (members <= 1 || bytes <= 0) {
        return 0;
    }
    const Curves& curves = times[row_of(kind)];
    const auto time = [&](const Curves::const_iterator& of) {
        return at_size(sizes, of->second, bytes);
    };
    const auto more = curves.lower_bound(members);
    if (more == curves.end()) {
        const auto last = std::prev(more);
        return time(last) * leaving_share(members) / leaving_share(last->first) +
               per_member(curves) * (members - last->first);
    }
    if (more->first == members) {
        return time(more);
    }
    if (more == curves.begin()) {
        return time(more) * leaving_share(members) / leaving_share(more->first);
    }
    const auto fewer = std::prev(more);
    const double part = (leaving_share(members) - leaving_share(fewer->first)) /
                        (leaving_share(more->first) - leaving_share(fewer->first));
    return std::lerp(time(fewer), time(more), part);
}

}  // namespace pipetwin

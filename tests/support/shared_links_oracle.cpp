// SPDX-License-Identifier: Apache-2.0
#include "tests/support/shared_links_oracle.h"

#include <algorithm>
#include <limits>

#include "core/base/as_index.h"

namespace pipetwin::testing {

namespace {

constexpr double infinitely = std::numeric_limits<double>::infinity();

/// A transfer on its way.
struct Flow {
    std::size_t transfer = 0;
    std::vector<int> passes{};
    double left = 0;
    double rate = 0;
};

void find_rates(std::vector<Flow>& flows,
                std::vector<double> left,
                const std::vector<Transfer>& transfers) {
    std::vector<bool> has_rate(flows.size(), false);
    for (std::size_t without = flows.size(); without > 0;) {
        double least = infinitely;
        std::size_t narrowest = left.size();  // or the own link of a flow
        for (std::size_t link = 0; link < left.size(); ++link) {
            double wanted = 0;
            for (std::size_t i = 0; i < flows.size(); ++i) {
                wanted += has_rate[i] ? 0 : flows[i].passes[link];
            }
            if (wanted > 0 && left[link] / wanted < least) {
                least = left[link] / wanted;
                narrowest = link;
            }
        }
        for (std::size_t i = 0; i < flows.size(); ++i) {
            const double own = transfers[flows[i].transfer].bytes_per_second;
            if (!has_rate[i] && own > 0 && own < least) {
                least = own;
                narrowest = left.size() + i;
            }
        }
        for (std::size_t i = 0; i < flows.size(); ++i) {
            const bool held = narrowest < left.size() ? flows[i].passes[narrowest] > 0
                                                      : narrowest == left.size() + i;
            if (has_rate[i] || !(held || least == infinitely)) {
                continue;
            }
            has_rate[i] = true;
            flows[i].rate = least;
            --without;
            for (std::size_t link = 0; link < left.size(); ++link) {
                left[link] -= flows[i].passes[link] * (least == infinitely ? 0 : least);
            }
        }
    }
}

}  // namespace

std::vector<int> passes(const std::vector<NodeLink>& links, const Transfer& transfer) {
    std::vector<int> result(2 * links.size(), 0);
    const bool to_host = transfer.to == Transfer::host;
    const bool from_host = transfer.from == Transfer::host;
    for (std::size_t i = 0; i < links.size(); ++i) {
        const auto below = [&](int device) {
            return std::ranges::count(links[i].devices, device) > 0;
        };
        const bool starts_below = below(transfer.from);
        const bool ends_below = below(transfer.to);
        int& up = result[2 * i];
        int& down = result[2 * i + 1];
        switch (links[i].kind) {
            case SharedLinkKind::Switch:
                up = starts_below && !ends_below ? 1 : 0;
                down = ends_below && !starts_below ? 1 : 0;
                break;
            case SharedLinkKind::Host:
                up = starts_below ? 1 : 0;
                down = ends_below ? 1 : 0;
                break;
            case SharedLinkKind::Socket:
                if (!to_host && !from_host && starts_below != ends_below) {
                    (starts_below ? up : down) = 1;
                }
                break;
            case SharedLinkKind::Memory:
                up = (starts_below ? 1 : 0) + (ends_below ? 1 : 0);
                break;
            case SharedLinkKind::Uplink:
                break;
        }
    }
    return result;
}

std::vector<double> fair_ends(const std::vector<NodeLink>& links,
                              const std::vector<Transfer>& transfers) {
    std::vector<double> rates;
    for (const NodeLink& link : links) {
        rates.insert(rates.end(), 2, link.bytes_per_second);
    }
    std::vector<std::size_t> to_come(transfers.size());
    for (std::size_t i = 0; i < to_come.size(); ++i) {
        to_come[i] = i;
    }
    std::ranges::stable_sort(
        to_come, std::ranges::greater{}, [&](std::size_t i) { return transfers[i].begin; });
    std::vector<double> ends(transfers.size(), 0);
    std::vector<Flow> flows;
    double now = 0;
    while (!to_come.empty() || !flows.empty()) {
        find_rates(flows, rates, transfers);
        double next = to_come.empty()
                          ? infinitely
                          : static_cast<double>(transfers[to_come.back()].begin.count());
        for (const Flow& flow : flows) {
            next = std::min(next, now + (flow.left > 0 ? 1e9 * flow.left / flow.rate : 0));
        }
        for (Flow& flow : flows) {
            flow.left -= flow.rate == infinitely ? flow.left : flow.rate * (next - now) / 1e9;
        }
        now = next;
        std::erase_if(flows, [&](const Flow& flow) {
            // A millionth of a byte is what rounding leaves.
            const bool done = flow.left <= 1e-6;
            if (done) {
                ends[flow.transfer] = now;
            }
            return done;
        });
        while (!to_come.empty() &&
               static_cast<double>(transfers[to_come.back()].begin.count()) <= now) {
            const std::size_t transfer = to_come.back();
            to_come.pop_back();
            flows.push_back({.transfer = transfer,
                             .passes = passes(links, transfers[transfer]),
                             .left = transfers[transfer].bytes});
        }
    }
    return ends;
}

}  // namespace pipetwin::testing

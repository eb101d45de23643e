// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/grid/group_spread.h"

namespace pipetwin {

/// Way in which messages share a link that they need at the same time.
enum class LinkSharing {
    Fifo,  ///< one after the other, in the order in which they came
    Fair,  ///< at once, each at its max-min fair rate
};

/// Way in which a rank hands a message to its link.
enum class TransferMode {
    Asynchronous,  ///< the rank goes on at once, while the link carries the message
    Blocking,      ///< the rank goes on when the link has carried all of it
    HandOver,      ///< within one memory: no bytes move; the message is there after the latency
};

/// Shared resources (cores, links) for which ranks and messages compete, so that a time depends on
/// what else runs. A plan's rows do not contain it, so only the event engine models it.
struct Contention {
    int cores = 0;  ///< processors that all ranks share in equal parts; 0: each rank has its own

    /// [rank][other]: how much longer a rank's actions last while the other computes, as a share of
    /// them (0.05: a twentieth). Empty: not at all.
    std::vector<std::vector<double>> interference;

    LinkSharing sharing = LinkSharing::Fifo;
    std::vector<double> shared_links;  ///< bytes per second of each
    /// [shared link]: what a user calls it; empty: they have no names.
    std::vector<std::string> link_names{};
    /// [edge]: the shared links that its messages pass; one that they pass n times, n times.
    std::vector<std::vector<int>> way_of_edge;
    /// [2 * rank]: the same of its stashes on their way to host memory; [2 * rank + 1]: on their
    /// way back. Empty: they share nothing.
    std::vector<std::vector<int>> way_of_copies{};

    bool any() const { return cores > 0 || !interference.empty() || !shared_links.empty(); }
};

/// Which messages pass a link that some devices of a node share, `node` in the picture. A message
/// between nodes comes from outside, or goes there.
///
///     | node    ( d0  d1 )====  d2 |      ( ) the devices, = the link
///
///                 d0 to d1       d0 to d2   d0 to another node   a stash of d0 to host memory
///     Switch      no             out        out                  out
///     Host        out and in     out        out                  out
///     Socket      no             out        no                   no
///     Memory      twice          once       once                 once
///     Uplink      no             no         out                  no
enum class SharedLinkKind {
    Switch,  ///< the way up from a switch below which devices reach each other directly
    Host,    ///< the same, where all that goes from device to device goes through host memory
    Socket,  ///< between this processor and the others of the node
    Memory,  ///< of the host: one rate for all that is written to it and read from it
    Uplink,  ///< the adapter by which these devices reach other nodes
};

/// The kind's word in scenarios.
std::string_view to_string(SharedLinkKind kind);

/// A link that some devices of every node share.
struct NodeLink {
    std::vector<int> devices{};   ///< of a node, from 0, ascending
    double bytes_per_second = 0;  ///< each way; of Memory both ways together
    SharedLinkKind kind{};

    bool operator==(const NodeLink&) const = default;
};

/// A device: its node, and its number among the devices of the node.
struct DevicePlace {
    int node = 0;
    int device = 0;

    auto operator<=>(const DevicePlace&) const = default;
};

/// Finds what passes the shared links of all nodes of a cluster.
class NodeLinks {
  public:
    /// How many times something passes each link, by the link's number.
    using Passes = std::map<int, int>;

    /// `links` are those of every node, with rates multiplied by `inside` the node, and by
    /// `between` for those that lead to other nodes; infinity: they take no time. What goes from
    /// node to node inside a domain of fast links passes none of them.
    NodeLinks(std::span<const NodeLink> links,
              double inside,
              double between,
              const NodeLevels& levels = {});

    /// Adds what a message from device to device passes.
    void add_message(const DevicePlace& from, const DevicePlace& to, Passes& passes);
    /// Adds what a stash passes on its way to host memory, or back.
    void add_copy(const DevicePlace& device, bool back, Passes& passes);

    bool none() const { return links_.empty(); }
    /// Bytes per second that each gets of all that goes on at once: the least, over the links that
    /// `passes` has, of the link's rate over what `all` says passes it. 0: there is no such link.
    double share(const Passes& passes, const Passes& all) const;

    /// Puts the links into `contention`, with the ways of its edges and of its stashes. Links that
    /// are passed alike are one, and with fair sharing those are left out that carry all that can
    /// be under way at the same time at full speed. `most`: bytes per second of each edge, and then
    /// of each way of the stashes; 0: no time.
    void put_into(Contention& contention,
                  const std::vector<Passes>& edges,
                  const std::vector<Passes>& copies,
                  const std::vector<double>& most) const;

  private:
    enum class Way { Out, In, Both };

    struct Link {
        int node = 0;
        std::size_t index = 0;  ///< of the links of a node
        Way way{};

        auto operator<=>(const Link&) const = default;
    };

    bool has(std::size_t index, const DevicePlace& device) const;
    void pass(int node, std::size_t index, Way way, Passes& passes);
    double rate(int number) const;
    std::string name(int number) const;

    std::span<const NodeLink> links_;
    double inside_;
    double between_;
    NodeLevels levels_;
    std::vector<Link> numbered_{};  ///< those that anything passes
    std::map<Link, int> number_of_{};
};

}  // namespace pipetwin

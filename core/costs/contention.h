#pragma once

#include <vector>

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
    std::vector<double> shared_links;           ///< bytes per second of each
    std::vector<std::vector<int>> way_of_edge;  ///< [edge]: the shared links that its messages pass

    bool any() const { return cores > 0 || !interference.empty() || !shared_links.empty(); }
};

}  // namespace pipetwin

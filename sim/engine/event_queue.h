// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "core/base/units.h"

namespace pipetwin::sim {

/// The next event of a source.
struct Event {
    Duration time{};
    std::size_t source = 0;

    bool operator==(const Event&) const = default;
};

/// A queue of events in which each of a fixed number of sources has at most one event to come: a
/// rank that will be free, a message that will be there. Equal times go to the lower source, so
/// that a run is the same on every machine.
///
/// A tournament tree: the leaves are the sources' events, each inner node the earlier of its two
/// children, the root the next of all. An announcement plays the games from one leaf to the root,
/// whatever their outcome: no branch to guess wrong, where a heap has one at each level. Source:
/// Knuth, The Art of Computer Programming, volume 3, section 5.4.1 (replacement selection).
class EventQueue {
  public:
    explicit EventQueue(std::size_t sources)
        : sources_(std::max<std::size_t>(sources, 1)), nodes_(2 * sources_, never) {}

    /// Announces the source's next event, in place of an earlier one. O(log sources).
    void announce(std::size_t source, Duration time) {
        if (source == taken_) {
            taken_ = nobody;
        }
        play(source, key_of(time, source));
    }

    /// Removes and returns the next event; none if none is announced.
    std::optional<Event> take_next() {
        // The source of the last event often announces its next one: until then its old one stays,
        // and its games are played once, not twice.
        if (taken_ != nobody) {
            play(taken_, never);
            taken_ = nobody;
        }
        const Key next = nodes_[root];
        if (next == never) {
            return std::nullopt;
        }
        taken_ = static_cast<std::size_t>(static_cast<std::uint64_t>(next));
        return Event{Duration{static_cast<std::int64_t>(next >> 64U)}, taken_};
    }

  private:
    /// The time, and then the source, in one number.
    __extension__ using Key = unsigned __int128;

    static Key key_of(Duration time, std::size_t source) {
        return Key{static_cast<std::uint64_t>(time.count())} << 64U | source;
    }

    void play(std::size_t source, Key key) {
        std::size_t node = sources_ + source;
        nodes_[node] = key;
        while (node > root) {
            key = std::min(key, nodes_[node ^ 1U]);
            node /= 2;
            nodes_[node] = key;
        }
    }

    static constexpr Key never = std::numeric_limits<Key>::max();
    static constexpr std::size_t nobody = std::numeric_limits<std::size_t>::max();
    static constexpr std::size_t root = 1;

    std::size_t sources_;
    std::vector<Key> nodes_;  ///< [1] the root, the children of i are 2i and 2i + 1, leaves last
    std::size_t taken_ = nobody;
};

}  // namespace pipetwin::sim

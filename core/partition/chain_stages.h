#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/as_index.h"
#include "core/partition/chain.h"
#include "core/partition/range_largest.h"
#include "core/partition/split_table.h"

/// A ChainProblem in the form of core/partition/split_table.h. Not for use outside this folder.
namespace pipetwin {

/// Sums of what stages hold, against their limits.
class ChainBytes {
  public:
    ChainBytes(const ChainMemory& memory, int layers, int stages);

    /// Bytes of a stage that begins with layer `first`, less its limit, by its end; negative where
    /// there is room left.
    class Row {
      public:
        Row(const ChainBytes& bytes, int stage, int first)
            : bytes_(bytes),
              first_(as_index(first)),
              in_flight_(bytes.memory_.in_flight[as_index(stage)]),
              fewest_saved_(bytes.memory_.keep == Keep::Everything ? in_flight_ : 1),
              floor_(-bytes.states_[first_] - bytes.memory_.limit[as_index(stage)].count),
              base_(floor_ + bytes.received_[first_]),
              older_inputs_((in_flight_ - 1) * bytes.input_[first_]) {}

        std::int64_t keeping_everything(int end) const {
            return inner(end) + in_flight_ * saved(end);
        }
        std::int64_t keeping_input(int end) const {
            return inner(end) + older_inputs_ + saved(end);
        }
        /// The less of what the stage may choose from.
        std::int64_t excess(int end) const;
        /// At most `excess`; never falls when the stage grows.
        std::int64_t least(int end) const {
            return floor_ + bytes_.states_[as_index(end)] + fewest_saved_ * saved(end);
        }

      private:
        std::int64_t saved(int end) const {
            return bytes_.saved_[as_index(end)] - bytes_.saved_[first_];
        }
        std::int64_t inner(int end) const {
            const std::size_t to = as_index(end);
            return base_ + bytes_.states_[to] + bytes_.sent_[to] + bytes_.workspace_(first_, to);
        }

        const ChainBytes& bytes_;
        std::size_t first_;
        std::int64_t in_flight_;
        std::int64_t fewest_saved_;
        std::int64_t floor_;
        std::int64_t base_;
        std::int64_t older_inputs_;
    };

    /// Bytes of a stage that begins with layer `first`, by its end.
    Row row(int stage, int first) const { return {*this, stage, first}; }
    Keep keep() const { return memory_.keep; }
    std::int64_t most() const { return most_; }

  private:
    std::int64_t largest_use() const;

    const ChainMemory& memory_;
    std::vector<std::int64_t> states_;
    std::vector<std::int64_t> saved_;
    std::vector<std::int64_t> input_;
    std::vector<std::int64_t> received_;
    std::vector<std::int64_t> sent_;
    RangeLargest workspace_;
    std::int64_t most_;
};

/// Bytes by which stages are above their limits, as costs of a SplitTable.
class ChainExcess {
  public:
    ChainExcess(const ChainBytes& bytes, int layers, int stages)
        : bytes_(bytes), layers_(layers), stages_(stages) {}

    /// Excess bytes of a stage that begins with one layer, by its end; negative where there is room
    /// left.
    struct Row : ChainBytes::Row {
        /// Bytes above the limit of the stage that ends before layer `end`.
        std::int64_t cost(int end) const { return excess(end); }
    };

    int layers() const { return layers_; }
    int stages() const { return stages_; }
    std::int64_t most() const { return bytes_.most(); }
    /// Excess bytes of a stage that begins with layer `first`.
    Row row(int stage, int first) const { return {bytes_.row(stage, first)}; }

  private:
    const ChainBytes& bytes_;
    int layers_;
    int stages_;
};

/// Times of the stages, as costs of a SplitTable; `never` where a stage does not fit.
class ChainTimes {
  public:
    /// Throws as `smallest_largest_stage`. The problem must outlive it.
    explicit ChainTimes(const ChainProblem& problem);

    /// Times of a stage that begins with one layer, by its end; in nanoseconds.
    class Row {
      public:
        Row(const ChainTimes& times, int stage, int first);

        /// At most `cost`; never falls when the stage grows.
        std::int64_t least(int end) const {
            if (memory_ && memory_->least(end) > 0) {
                return never;
            }
            return least_ends_[end] - latest_start_;
        }
        /// Time of the stage that ends before layer `end`; `never` if it does not fit.
        std::int64_t cost(int end) const {
            const std::int64_t time = ends_[end] - start_;
            return memory_ ? fitting(*memory_, end, time) : time;
        }
        /// Whether a stage that fits keeps its input only.
        bool recomputes(int end) const;

      private:
        std::int64_t fitting(const ChainBytes::Row& memory, int end, std::int64_t time) const;

        const std::int64_t* ends_;
        const std::int64_t* least_ends_;
        const std::int64_t* recompute_;  ///< where it is a choice
        std::int64_t start_;
        std::int64_t latest_start_;
        std::int64_t first_recompute_;
        Keep keep_;
        std::optional<ChainBytes::Row> memory_;
    };

    int layers() const { return layers_; }
    int stages() const { return stages_; }
    std::int64_t most() const { return most_; }
    /// Times of a stage that begins with layer `first`.
    Row row(int stage, int first) const { return {*this, stage, first}; }
    const std::optional<ChainBytes>& bytes() const { return bytes_; }

    /// No split has a smaller sum: all layers where they are fastest, and the cheapest boundaries.
    std::int64_t least_sum() const;

  private:
    struct Device {
        std::vector<std::int64_t> work;       ///< [0 .. layers] sums, with recompute if it must be
        std::vector<std::int64_t> recompute;  ///< [0 .. layers] sums
    };
    struct Link {
        std::vector<std::int64_t> sender;  ///< [0 .. layers], 0 at both ends
        std::vector<std::int64_t> receiver;
    };
    /// A device and a link, or none at an end of the chain. The time of a stage is the difference
    /// of two terms, since work is a difference of sums:
    ///
    ///     cost(i, j)  = (work before j + sender(j)) - (work before i - receiver(i))
    ///                 = end(j) - start(i)
    ///     least(i, j) = smallest end from j on - largest start up to i
    ///
    /// which never falls when the stage grows.
    struct Side {
        std::vector<std::int64_t> starts;        ///< [0 .. layers]
        std::vector<std::int64_t> ends;          ///< [0 .. layers]
        std::vector<std::int64_t> latest_start;  ///< [0 .. layers] the largest up to here
        std::vector<std::int64_t> least_ends;    ///< [0 .. layers] the smallest from here on
    };

    Device device_of(const DeviceWork& work, Keep keep) const;
    Link link_of(const CutCost& cut) const;
    static Side side_of(const Device& device, const Link& link);
    /// The terms of a stage's time that come from its device and the link behind it, or in front of
    /// it.
    const Side& side(int stage, bool behind) const;
    std::int64_t largest_cost() const;

    int layers_;
    int stages_;
    const ChainProblem& problem_;
    std::optional<ChainBytes> bytes_;
    std::vector<Device> devices_;
    std::vector<Link> links_;  ///< the last one costs nothing
    std::vector<Side> sides_;  ///< [device][link]
    std::int64_t most_ = 0;
};

}  // namespace pipetwin

#include "core/partition/unequal_partition.h"

#include <algorithm>
#include <cstdint>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/partition/partition_search.h"

namespace pipetwin {

namespace {

using Sums = std::vector<std::int64_t>;

/// Which splits keep a limit, worked out from the last stage to the first.
class Splits {
  public:
    explicit Splits(const UnequalCosts& costs)
        : layers_(costs.of_layer.front().size()), kind_of_stage_(costs.kind_of_stage) {
        for (const std::vector<Duration>& of_layer : costs.of_layer) {
            PIPETWIN_EXPECT(of_layer.size() == layers_, "one cost per layer and kind");
            prefixes_.push_back(prefix_sums(of_layer));
        }
        fits_.assign(stages() + 1, std::vector<bool>(layers_ + 1, false));
        fits_.back().back() = true;
    }

    /// Whether all layers fit. A stage needs to look at the nearest boundary only from which the
    /// rest fits: any other makes it longer.
    bool keep(std::int64_t limit) {
        for (std::size_t stage = stages(); stage-- > 0;) {
            const Sums& prefix = prefix_of(stage);
            std::size_t next = layers_ + 1;  // none yet
            for (std::size_t first = layers_ + 1; first-- > 0;) {
                fits_[stage][first] = next <= layers_ && prefix[next] - prefix[first] <= limit;
                next = fits_[stage + 1][first] ? first : next;
            }
        }
        return fits_.front().front();
    }

    /// Stage sizes for the limit of the last successful `keep`, with each stage as short as
    /// possible.
    std::vector<int> earliest() const {
        std::vector<int> sizes;
        std::size_t first = 0;
        for (std::size_t stage = 0; stage < stages(); ++stage) {
            std::size_t next = first + 1;
            while (!fits_[stage + 1][next]) {
                ++next;
            }
            sizes.push_back(static_cast<int>(next - first));
            first = next;
        }
        return sizes;
    }

    /// No stage is ever longer.
    std::int64_t largest_limit() const {
        std::int64_t largest = 0;
        for (const Sums& prefix : prefixes_) {
            largest = std::max(largest, prefix.back());
        }
        return largest;
    }

  private:
    std::size_t stages() const { return kind_of_stage_.size(); }
    const Sums& prefix_of(std::size_t stage) const {
        return prefixes_.at(as_index(kind_of_stage_[stage]));
    }

    std::size_t layers_;
    const std::vector<int>& kind_of_stage_;
    std::vector<Sums> prefixes_;           ///< [kind]
    std::vector<std::vector<bool>> fits_;  ///< [stage][layer]: the rest, from this layer on
};

}  // namespace

Partition unequal_partition(const UnequalCosts& costs) {
    PIPETWIN_EXPECT(!costs.of_layer.empty(), "at least one kind of device");
    const auto layers = static_cast<int>(costs.of_layer.front().size());
    check_stage_count(static_cast<int>(costs.kind_of_stage.size()), layers);
    Splits splits(costs);
    const auto keep = [&splits](std::int64_t limit) { return splits.keep(limit); };
    keep(smallest_limit(splits.largest_limit(), keep));
    return {splits.earliest(), layers};
}

}  // namespace pipetwin

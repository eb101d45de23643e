// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/rows_hash.h"

#include <cstdint>

#include <fmt/format.h>

namespace pipetwin {

namespace {

/// FNV-1a, 64 bits: http://www.isthe.com/chongo/tech/comp/fnv/
class Fnv1a {
  public:
    void add(int number) {
        auto rest = static_cast<std::uint32_t>(number);
        for (int byte = 0; byte < 4; ++byte) {
            hash_ = (hash_ ^ (rest & 0xffU)) * 0x100000001b3ULL;
            rest >>= 8U;
        }
    }
    std::uint64_t value() const { return hash_; }

  private:
    std::uint64_t hash_ = 0xcbf29ce484222325ULL;
};

}  // namespace

std::string rows_hash(const Schedule& schedule) {
    Fnv1a hash;
    for (const auto& row : schedule.ranks) {
        hash.add(static_cast<int>(row.size()));
        for (const Action& action : row) {
            hash.add(static_cast<int>(action.op));
            hash.add(action.stage);
            hash.add(action.micro_batch);
            hash.add((action.with_next ? 1 : 0) + 2 * action.hop);
        }
    }
    return fmt::format("{:016x}", hash.value());
}

}  // namespace pipetwin

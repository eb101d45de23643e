// SPDX-License-Identifier: Apache-2.0
#include "exec/device/memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/units.h"
#include "exec/base/divided_work.h"

namespace pipetwin::exec {
namespace {

constexpr std::size_t cache_line = 64;
constexpr std::size_t huge_page = std::size_t{2} << 20U;
constexpr std::int64_t touched_at_once = 2 * huge_page;

class HostMemory final : public Memory {
  public:
    void* take(std::size_t bytes) override {
        // Large blocks on huge pages: matrix products walk through memory column-wise, too.
        const bool large = bytes >= huge_page;
        void* block = nullptr;
        if (::posix_memalign(&block, large ? huge_page : cache_line, bytes) != 0) {
            throw Error(ErrorKind::Infeasible,
                        "memory",
                        fmt::format("the system has no {} left",
                                    format_bytes({static_cast<std::int64_t>(bytes)})),
                        "a smaller micro-batch, or recompute = \"always\", needs less")
                .because(ErrorReason::Memory);
        }
        if (large) {
            ::madvise(block, bytes / huge_page * huge_page, MADV_HUGEPAGE);
        }
        in_pieces(
            static_cast<std::int64_t>(bytes), touched_at_once, [&](const ElementRange& piece) {
                std::memset(static_cast<std::byte*>(block) + piece.begin, 0, as_index(piece.size));
            });
        return block;
    }

    void give_back(void* block, std::size_t /*bytes*/) noexcept override { std::free(block); }
};

}  // namespace

Memory& host_memory() {
    static HostMemory memory;
    return memory;
}

}  // namespace pipetwin::exec

// SPDX-License-Identifier: Apache-2.0
#include "exec/stage/stage_moments.h"

#include <utility>

#include "core/base/as_index.h"
#include "core/base/error.h"

namespace pipetwin::exec {
namespace {

std::size_t numbers_of(const BatchMoments& norm) {
    return 1 + as_index(norm.values.size());
}

}  // namespace

StageMoments::StageMoments(std::vector<BatchMoments*> norms) : norms_(std::move(norms)) {
    for (const BatchMoments* const norm : norms_) {
        size_ += numbers_of(*norm);
    }
}

void StageMoments::read(const Kernels& kernels, std::span<double> to) const {
    PIPETWIN_EXPECT(to.size() == size_, "room for all moments of a stage");
    for (const BatchMoments* const norm : norms_) {
        to.front() = static_cast<double>(norm->rows);
        kernels.download(norm->values,
                         std::as_writable_bytes(to.subspan(1, numbers_of(*norm) - 1)));
        to = to.subspan(numbers_of(*norm));
    }
}

void StageMoments::write(const Kernels& kernels, std::span<const double> from) const {
    PIPETWIN_EXPECT(from.size() == size_, "all moments of a stage");
    for (BatchMoments* const norm : norms_) {
        norm->rows = static_cast<std::int64_t>(from.front());
        kernels.upload(std::as_bytes(from.subspan(1, numbers_of(*norm) - 1)), norm->values);
        from = from.subspan(numbers_of(*norm));
    }
}

void StageMoments::add(std::span<const double> more, std::span<double> sums) const {
    PIPETWIN_EXPECT(more.size() == size_ && sums.size() == size_, "all moments of a stage");
    for (const BatchMoments* const norm : norms_) {
        const std::int64_t columns = norm->values.columns();
        const Moments added{.rows = static_cast<std::int64_t>(more.front()),
                            .values = ConstView(more.data() + 1, DType::F64, 2, columns)};
        if (added.rows > 0) {
            cpu_column_kernels().add_moments(added,
                                             static_cast<std::int64_t>(sums.front()),
                                             View(sums.data() + 1, DType::F64, 2, columns));
            sums.front() += more.front();
        }
        more = more.subspan(numbers_of(*norm));
        sums = sums.subspan(numbers_of(*norm));
    }
}

}  // namespace pipetwin::exec

// SPDX-License-Identifier: Apache-2.0
#include "exec/data/random_batch.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/base/as_index.h"
#include "core/model/model.h"
#include "exec/base/random.h"
#include "exec/data/sources.h"

namespace pipetwin::exec {
namespace {

/// `count` numbers from 0 to `below` - 1.
std::vector<std::int32_t> draw(const RandomStream& stream, std::int64_t count, int below) {
    std::vector<std::int32_t> numbers;
    for (std::int64_t index = 0; index < count; ++index) {
        numbers.push_back(static_cast<std::int32_t>(
            stream.below(static_cast<std::uint64_t>(index), static_cast<std::uint64_t>(below))));
    }
    return numbers;
}

/// Leaves 1 to all of the positions of each source, and of each target.
void pad(Batch& batch, int source_positions, const RandomStream& stream) {
    batch.lengths = draw(stream.of(0), batch.samples, source_positions);
    for (std::int32_t& length : batch.lengths) {
        ++length;
    }
    const std::vector<std::int32_t> last =
        draw(stream.of(1), batch.samples, batch.target_positions);
    for (int sample = 0; sample < batch.samples; ++sample) {
        const auto begin = batch.targets.begin() + std::ptrdiff_t{sample} * batch.target_positions;
        std::fill(begin + last[as_index(sample)] + 1, begin + batch.target_positions, -1);
    }
}

}  // namespace

Batch random_batch(const Model& model, int samples, std::uint64_t seed) {
    const Layer& first = model.layer(0);
    Batch batch{.samples = samples,
                .positions = first.input.positions,
                .width = first.input.token_ids ? 0 : first.input.width,
                .target_positions = target_positions_of(model),
                .tokens = {},
                .values = {},
                .targets = {}};
    const RandomStream stream(seed);
    const std::int64_t inputs = std::int64_t{samples} * batch.positions;
    if (first.input.token_ids) {
        batch.tokens = draw(stream.of(0), inputs, vocabulary_of(model));
    }
    for (std::int64_t index = 0; index < inputs * batch.width; ++index) {
        const double value = stream.of(1).uniform(static_cast<std::uint64_t>(index));
        batch.values.push_back(static_cast<float>(2 * value - 1));
    }
    batch.targets =
        draw(stream.of(2), std::int64_t{samples} * batch.target_positions, classes_of(model));
    if (const int source = source_positions_of(model); source > 0) {
        pad(batch, source, stream.of(3));
    }
    return batch;
}

}  // namespace pipetwin::exec

#include "exec/data/random_batch.h"

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
    return batch;
}

}  // namespace pipetwin::exec

#include "exec/data/batch.h"

#include <fmt/format.h>

#include "core/error.h"
#include "exec/data/sources.h"

namespace pipetwin::exec {
namespace {

/// `values` are those of one slice, `per_sample` of them for each sample.
void check_range(std::span<const std::int32_t> values,
                 int first_sample,
                 int per_sample,
                 int limit,
                 const char* what) {
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (values[i] < 0 || values[i] >= limit) {
            const int index = static_cast<int>(i);
            throw Error(ErrorKind::BadInput,
                        fmt::format("sample {}, position {}",
                                    first_sample + index / per_sample,
                                    index % per_sample),
                        fmt::format("{} {}, expected 0 to {}", what, values[i], limit - 1));
        }
    }
}

std::span<const std::int32_t> slice_of(const std::vector<std::int32_t>& all,
                                       const MicroBatch& slice,
                                       int per_sample) {
    const auto width = static_cast<std::size_t>(per_sample);
    return std::span(all).subspan(static_cast<std::size_t>(slice.first_sample) * width,
                                  static_cast<std::size_t>(slice.samples) * width);
}

}  // namespace

std::vector<MicroBatch> split(const Batch& batch, const std::vector<int>& sizes) {
    std::vector<MicroBatch> slices;
    int first = 0;
    for (const int size : sizes) {
        slices.push_back({.batch = &batch, .first_sample = first, .samples = size});
        first += size;
    }
    PIPETWIN_EXPECT(first == batch.samples, "the micro-batches cover the mini-batch");
    return slices;
}

void check_tokens(const MicroBatch& slice, int vocabulary) {
    const int positions = slice.batch->positions;
    check_range(slice_of(slice.batch->tokens, slice, positions),
                slice.first_sample,
                positions,
                vocabulary,
                "token");
}

std::span<const std::int32_t> targets_of(const MicroBatch& slice, int positions, int classes) {
    if (slice.batch->target_positions != positions) {
        throw Error(
            ErrorKind::BadInput,
            "targets",
            fmt::format("{} per sample, expected {}", slice.batch->target_positions, positions));
    }
    const std::span<const std::int32_t> targets = slice_of(slice.batch->targets, slice, positions);
    check_range(targets, slice.first_sample, positions, classes, "target");
    return targets;
}

std::unique_ptr<DataSource> open_data(const Scenario& scenario, const Model& model) {
    switch (scenario.data.kind) {
        case DataKind::Text:
            return open_text(scenario, model);
        case DataKind::Mnist:
            return open_mnist(scenario, model);
        case DataKind::Synthetic:
            return make_synthetic(scenario, model);
    }
    throw InternalError("a kind of data");
}

}  // namespace pipetwin::exec

// SPDX-License-Identifier: Apache-2.0
#include "exec/data/batch.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/model/inner_layers.h"
#include "core/model/model.h"
#include "exec/data/image_batches.h"
#include "exec/data/sources.h"

namespace pipetwin::exec {
namespace {

/// `values` are those of one slice, `per_sample` of them for each sample.
void check_range(std::span<const std::int32_t> values,
                 int first_sample,
                 int per_sample,
                 int limit,
                 const char* what,
                 int least = 0) {
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (values[i] < least || values[i] >= limit) {
            const int index = static_cast<int>(i);
            throw Error(ErrorKind::BadInput,
                        fmt::format("sample {}, position {}",
                                    first_sample + index / per_sample,
                                    index % per_sample),
                        fmt::format("{} {}, expected {} to {}", what, values[i], least, limit - 1));
        }
    }
}

std::span<const std::int32_t> slice_of(const std::vector<std::int32_t>& all,
                                       const MicroBatch& slice,
                                       int per_sample) {
    const std::size_t width = as_index(per_sample);
    return std::span(all).subspan(as_index(slice.first_sample) * width,
                                  as_index(slice.samples) * width);
}

/// The innermost first layer: a unit of partition may hold several.
const LayerSpec& first_of(const LayerSpec& spec) {
    return spec.inner.empty() ? spec : first_of(spec.inner.front());
}

bool is_loss(LayerType type) {
    return type == LayerType::CrossEntropy || type == LayerType::BinaryCrossEntropy;
}

/// What the loss of a model reads.
struct LossInput {
    LayerType type = LayerType::Opaque;
    SampleShape shape;
};

/// What the loss of a unit reads; Opaque if it does not end with a loss. `inputs`: what the unit
/// reads.
LossInput loss_of(const LayerSpec& spec, const std::vector<SampleShape>& inputs) {
    if (is_loss(spec.type)) {
        return {.type = spec.type, .shape = inputs.front()};
    }
    if (spec.type != LayerType::Sequence || spec.inner.empty()) {
        return {};
    }
    if (takes_several(spec, inputs.size())) {
        const InnerLayer last = inner_layers(spec, inputs).back();
        return loss_of(last.spec, last.inputs);
    }
    if (spec.inner.size() == 1) {
        return loss_of(spec.inner.back(), inputs);
    }
    LayerSpec before = spec;
    before.inner.pop_back();
    return loss_of(spec.inner.back(), {output_shape(before, inputs.front())});
}

LossInput loss_of(const Model& model) {
    const Layer& last = model.layer(model.layer_count() - 1);
    if (!ends_with_loss(last.spec)) {
        throw Error(ErrorKind::BadInput,
                    fmt::format("layer \"{}\"", last.spec.name),
                    "is the last layer and no loss, so there is nothing to train",
                    "end the model with type = \"cross_entropy\"");
    }
    return loss_of(last.spec, last.inputs);
}

}  // namespace

std::size_t DataRange::begin_in(std::size_t count) const {
    return as_index(std::floor(begin * static_cast<double>(count)));
}

std::size_t DataRange::end_in(std::size_t count) const {
    return end == 1 ? count : as_index(std::floor(end * static_cast<double>(count)));
}

DataRange data_range(const ScenarioParts& scenario, DataUse use) {
    const Scenario::DataPart& data = scenario.data;
    const std::filesystem::path folder = scenario.file.parent_path();
    const double held_out = 1 - data.validation_share;
    // An absolute path stays what it is.
    if (use == DataUse::Training) {
        return {.path = folder / data.path, .begin = 0, .end = held_out};
    }
    return data.validation_path.empty()
               ? DataRange{.path = folder / data.path, .begin = held_out, .end = 1}
               : DataRange{.path = folder / data.validation_path, .begin = 0, .end = 1};
}

int token_positions(const Model& model, std::string_view kind) {
    const SampleShape& input = model.layer(0).input;
    if (!input.token_ids) {
        throw Error(
            ErrorKind::BadInput,
            KeyValue{"data.kind"},
            fmt::format("\"{}\" gives token ids, but the model reads {}", kind, to_string(input)),
            "use kind = \"mnist\" or \"synthetic\", or a model that begins with an embedding");
    }
    return input.positions;
}

int vocabulary_of(const Model& model) {
    return first_of(model.layer(0).spec).vocabulary;
}

int source_positions_of(const Model& model) {
    return first_of(model.layer(0).spec).source_positions;
}

int classes_of(const Model& model) {
    const LossInput loss = loss_of(model);
    return loss.type == LayerType::BinaryCrossEntropy ? 2 : loss.shape.width;
}

int target_positions_of(const Model& model) {
    return loss_of(model).shape.positions;
}

ImageSize image_size_of(const Model& model, std::string_view kind) {
    const SampleShape& input = model.layer(0).input;
    if (!input.is_image()) {
        throw Error(
            ErrorKind::BadInput,
            KeyValue{"data.kind"},
            fmt::format("\"{}\" gives images, but the model reads {}", kind, to_string(input)),
            "let the model read an image, as in image = [32, 32, 3]");
    }
    return {.height = input.image.height, .width = input.image.width, .channels = input.width};
}

void expect_targets(const Model& model, bool per_pixel, std::string_view kind) {
    const SampleShape& input = model.layer(0).input;
    const int expected = per_pixel ? input.positions : 1;
    if (const int found = target_positions_of(model); found != expected) {
        throw Error(ErrorKind::BadInput,
                    KeyValue{"data.kind"},
                    fmt::format("\"{}\" gives {} for {}, but the model's loss reads {}",
                                kind,
                                per_pixel ? "a class" : "one class",
                                per_pixel ? "each pixel" : "an image",
                                counted(found, "position")),
                    per_pixel ? "let the model end with as many pixels as it begins with"
                              : "let the model end with one position, as behind a global_avg_pool");
    }
}

bool reads_test_files(const ScenarioParts& scenario, DataUse use) {
    const Scenario::DataPart& data = scenario.data;
    return use == DataUse::Validation && has_test_files(data.kind) &&
           data.validation_path.empty() && data.validation_share == 0;
}

std::int64_t Batch::counted_targets() const {
    return std::ssize(targets) - std::ranges::count(targets, -1);
}

std::vector<MicroBatch> split(const Batch& batch,
                              const std::vector<int>& sizes,
                              const BatchPart& part) {
    std::vector<MicroBatch> slices;
    split(batch, sizes, part, slices);
    return slices;
}

void split(const Batch& batch,
           const std::vector<int>& sizes,
           const BatchPart& part,
           std::vector<MicroBatch>& slices) {
    slices.clear();
    const std::int64_t counted = batch.counted_targets();
    const int samples = batch.samples / part.count;
    int first = part.index * samples;
    for (const int size : sizes) {
        slices.push_back(
            {.batch = &batch, .first_sample = first, .samples = size, .counted_targets = counted});
        first += size;
    }
    PIPETWIN_EXPECT(first == (part.index + 1) * samples && samples * part.count == batch.samples,
                    "the micro-batches cover the mini-batch");
}

void check_tokens(const MicroBatch& slice, int vocabulary) {
    const int positions = slice.batch->positions;
    check_range(slice_of(slice.batch->tokens, slice, positions),
                slice.first_sample,
                positions,
                vocabulary,
                "token");
}

std::span<const std::int32_t> targets_of(const MicroBatch& slice,
                                         int positions,
                                         int classes,
                                         int least) {
    if (slice.batch->target_positions != positions) {
        throw Error(
            ErrorKind::BadInput,
            "targets",
            fmt::format("{} per sample, expected {}", slice.batch->target_positions, positions));
    }
    const std::span<const std::int32_t> targets = slice_of(slice.batch->targets, slice, positions);
    check_range(targets, slice.first_sample, positions, classes, "target", least);
    return targets;
}

std::vector<std::int32_t> lengths_of(const MicroBatch& slice, int positions) {
    if (slice.batch->lengths.empty()) {
        return std::vector<std::int32_t>(as_index(slice.samples), positions);
    }
    const std::span<const std::int32_t> lengths = slice_of(slice.batch->lengths, slice, 1);
    for (std::size_t sample = 0; sample < lengths.size(); ++sample) {
        if (lengths[sample] < 1 || lengths[sample] > positions) {
            throw Error(ErrorKind::BadInput,
                        fmt::format("sample {}", slice.first_sample + static_cast<int>(sample)),
                        fmt::format("{} positions that are no padding, expected 1 to {}",
                                    lengths[sample],
                                    positions));
        }
    }
    return {lengths.begin(), lengths.end()};
}

std::unique_ptr<DataSource> open_data(const ScenarioParts& scenario,
                                      const Model& model,
                                      DataUse use) {
    switch (scenario.data.kind) {
        case DataKind::Text:
            return open_text(scenario, model, use);
        case DataKind::Tokens:
            return open_tokens(scenario, model, use);
        case DataKind::Mnist:
            return open_mnist(scenario, model, use);
        case DataKind::Synthetic:
            return make_synthetic(scenario, model, use);
        case DataKind::Cifar10:
            return open_cifar10(scenario, model, use);
        case DataKind::Images:
            return open_images(scenario, model, use);
        case DataKind::Segmentation:
            return open_segmentation(scenario, model, use);
        case DataKind::Silhouettes:
            return open_silhouettes(scenario, model, use);
        case DataKind::Gettext:
        case DataKind::Pairs:
            return open_pairs(scenario, model, use);
    }
    throw InternalError("a kind of data");
}

}  // namespace pipetwin::exec

// SPDX-License-Identifier: Apache-2.0
#include "exec/data/image_batches.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "exec/base/random.h"
#include "exec/data/shuffle.h"
#include "exec/data/sources.h"

namespace pipetwin::exec {
namespace {

/// What is drawn for images, beneath the stream of the seed.
enum class ImageDraw : std::uint64_t { Order, Changes, HeldOutOrder, HeldOutChanges };

/// A stream that no other data draw from.
RandomStream image_stream(std::uint64_t seed, ImageDraw draw) {
    constexpr std::uint64_t images = 0x696d61676573;  // "images": no step has this number
    return RandomStream(seed).of(images).of(static_cast<std::uint64_t>(draw));
}

/// What a byte means to the model, channel by channel.
class PixelValues {
  public:
    PixelValues(const Scenario::ImageChanges& changes, int channels) : noise_(changes.noise) {
        for (std::size_t channel = 0; channel < as_index(channels); ++channel) {
            means_.push_back(changes.mean.empty() ? 0.0F
                                                  : static_cast<float>(changes.mean[channel]));
            deviations_.push_back(
                changes.deviation.empty() ? 1.0F : static_cast<float>(changes.deviation[channel]));
            for (std::size_t byte = 0; byte < table_size; ++byte) {
                table_.push_back(normalised(static_cast<float>(byte) / 255.0F, channel));
            }
        }
    }

    /// Adds the values of an image to those of a batch; `noise` is the stream of its noise.
    void append(std::span<const unsigned char> pixels,
                const RandomStream& noise,
                std::vector<float>& values) const {
        const std::size_t channels = means_.size();
        std::size_t channel = 0;
        for (std::size_t i = 0; i < pixels.size(); ++i) {
            values.push_back(noise_ == 0 ? table_[channel * table_size + pixels[i]]
                                         : noisy(pixels[i], channel, noise.normal(i)));
            channel = channel + 1 == channels ? 0 : channel + 1;
        }
    }

  private:
    float normalised(float value, std::size_t channel) const {
        return (value - means_[channel]) / deviations_[channel];
    }
    float noisy(unsigned char byte, std::size_t channel, double normal) const {
        return normalised(static_cast<float>(byte) / 255.0F + static_cast<float>(noise_ * normal),
                          channel);
    }

    static constexpr std::size_t table_size = 256;
    double noise_;
    std::vector<float> means_;
    std::vector<float> deviations_;
    std::vector<float> table_;  ///< [channel][byte]
};

/// Where each pixel of a changed image comes from.
struct Window {
    int top = 0;  ///< row of the image that becomes the first one; may lie outside
    int left = 0;
    bool mirrored = false;
};

/// Moves an image of `channels` numbers for each pixel; what lies outside of it becomes 0.
template <class Number>
void move_into(const Window& window,
               const ImageSize& size,
               std::span<const Number> image,
               std::span<Number> moved) {
    const std::size_t channels = as_index(size.channels);
    std::ranges::fill(moved, Number{0});
    for (int row = 0; row < size.height; ++row) {
        const int from_row = row + window.top;
        if (from_row < 0 || from_row >= size.height) {
            continue;
        }
        for (int column = 0; column < size.width; ++column) {
            const int from_column =
                (window.mirrored ? size.width - 1 - column : column) + window.left;
            if (from_column < 0 || from_column >= size.width) {
                continue;
            }
            const std::size_t from = as_index(from_row * size.width + from_column) * channels;
            const std::size_t to = as_index(row * size.width + column) * channels;
            std::ranges::copy(image.subspan(from, channels), moved.subspan(to, channels).begin());
        }
    }
}

class ImageSource final : public DataSource {
  public:
    ImageSource(std::unique_ptr<const ImageSet> images, const ImageBatches& settings)
        : images_(std::move(images)),
          settings_(settings),
          values_(settings.changes, settings.size.channels),
          targets_per_sample_(settings.target_per_pixel ? settings.size.pixels() : 1),
          order_(settings.with_replacement
                     ? RandomStream(settings.seed)
                     : image_stream(settings.seed,
                                    is_training() ? ImageDraw::Order : ImageDraw::HeldOutOrder)),
          changes_(image_stream(settings.seed,
                                is_training() ? ImageDraw::Changes : ImageDraw::HeldOutChanges)) {}

    Batch batch(int step, int samples) const override {
        const ImageSize& size = settings_.size;
        Batch batch{.samples = samples,
                    .positions = settings_.flat ? 1 : size.height * size.width,
                    .width = settings_.flat ? static_cast<int>(size.numbers()) : size.channels,
                    .target_positions = static_cast<int>(targets_per_sample_),
                    .tokens = {},
                    .values = {},
                    .targets = {}};
        batch.values.reserve(as_index(samples) * size.numbers());
        batch.targets.reserve(as_index(samples) * targets_per_sample_);
        Room room(*this);
        for (int sample = 0; sample < samples; ++sample) {
            append(step, sample, samples, room, batch);
        }
        return batch;
    }

    std::string description() const override {
        std::string text = images_->description();
        const Scenario::ImageChanges& changes = settings_.changes;
        const auto add = [&text](const std::string& more) { text += ", " + more; };
        if (is_training() && changes.pad_and_crop > 0) {
            add(fmt::format("cropped behind a margin of {}", changes.pad_and_crop));
        }
        if (is_training() && changes.mirror) {
            add("mirrored");
        }
        if (changes.noise > 0) {
            add(fmt::format("noise of {}", changes.noise));
        }
        if (!changes.mean.empty()) {
            add(fmt::format("less {}", fmt::join(changes.mean, " and ")));
        }
        if (!changes.deviation.empty()) {
            add(fmt::format("in units of {}", fmt::join(changes.deviation, " and ")));
        }
        return text;
    }

    void add_content(ContentHash& hash) const override { images_->add_content(hash); }

    std::size_t unchecked_bytes() const override { return images_->unchecked_bytes(); }

    void check(const std::function<bool()>& goes_on) const override {
        Room room(*this);
        for (std::size_t image = 0; image < images_->count() && goes_on(); ++image) {
            images_->read(image, room.pixels, room.targets);
        }
    }

  private:
    /// An image as it is stored and as it is changed, used again for each sample.
    struct Room {
        explicit Room(const ImageSource& source)
            : pixels(source.settings_.size.numbers()),
              targets(source.targets_per_sample_),
              moved_pixels(pixels.size()),
              moved_targets(targets.size()) {}

        std::vector<unsigned char> pixels;
        std::vector<std::int32_t> targets;
        std::vector<unsigned char> moved_pixels;
        std::vector<std::int32_t> moved_targets;
    };

    bool is_training() const { return settings_.use == DataUse::Training; }

    std::size_t image_of(int step, int sample, int samples) const {
        const std::uint64_t count = images_->count();
        if (settings_.with_replacement) {
            return order_.of(static_cast<std::uint64_t>(step))
                .below(static_cast<std::uint64_t>(sample), count);
        }
        const std::uint64_t number =
            static_cast<std::uint64_t>(step) * static_cast<std::uint64_t>(samples) +
            static_cast<std::uint64_t>(sample);
        return Shuffle(order_.of(number / count), count).at(number % count);
    }

    Window window_of(const RandomStream& random) const {
        const Scenario::ImageChanges& changes = settings_.changes;
        const auto places = static_cast<std::uint64_t>(2 * changes.pad_and_crop + 1);
        return {.top = static_cast<int>(random.below(0, places)) - changes.pad_and_crop,
                .left = static_cast<int>(random.below(1, places)) - changes.pad_and_crop,
                .mirrored = changes.mirror && random.below(2, 2) == 1};
    }

    /// Adds a sample to a batch.
    void append(int step, int sample, int samples, Room& room, Batch& batch) const {
        images_->read(image_of(step, sample, samples), room.pixels, room.targets);
        const RandomStream random =
            changes_.of(static_cast<std::uint64_t>(step)).of(static_cast<std::uint64_t>(sample));
        const Scenario::ImageChanges& changes = settings_.changes;
        std::span<const unsigned char> pixels = room.pixels;
        std::span<const std::int32_t> targets = room.targets;
        if (is_training() && (changes.pad_and_crop > 0 || changes.mirror)) {
            const Window window = window_of(random.of(0));
            move_into<unsigned char>(window, settings_.size, pixels, room.moved_pixels);
            pixels = room.moved_pixels;
            if (settings_.target_per_pixel) {
                const ImageSize size{settings_.size.height, settings_.size.width, 1};
                move_into<std::int32_t>(window, size, targets, room.moved_targets);
                targets = room.moved_targets;
            }
        }
        values_.append(pixels, random.of(1), batch.values);
        batch.targets.insert(batch.targets.end(), targets.begin(), targets.end());
    }

    std::unique_ptr<const ImageSet> images_;
    ImageBatches settings_;
    PixelValues values_;
    std::size_t targets_per_sample_;
    RandomStream order_;
    RandomStream changes_;
};

void expect_one_per_channel(std::string_view key, std::size_t numbers, int channels) {
    if (numbers != 0 && numbers != as_index(channels)) {
        throw Error(
            ErrorKind::BadInput,
            KeyValue{fmt::format("data.{}", key)},
            fmt::format(
                "{}, expected {}: one for each channel", counted(numbers, "number"), channels));
    }
}

}  // namespace

std::unique_ptr<DataSource> image_batches(std::unique_ptr<const ImageSet> images,
                                          const ImageBatches& settings) {
    expect_one_per_channel("mean", settings.changes.mean.size(), settings.size.channels);
    expect_one_per_channel("deviation", settings.changes.deviation.size(), settings.size.channels);
    return std::make_unique<ImageSource>(std::move(images), settings);
}

}  // namespace pipetwin::exec

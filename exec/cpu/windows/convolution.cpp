// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/windows/convolution.h"

#include <algorithm>
#include <cstring>

#include "exec/cpu/products/product_scratch.h"
#include "exec/cpu/products/products.h"
#include "exec/cpu/windows/window_loops.h"

namespace pipetwin::exec {
namespace {

using Index = std::int64_t;

/// Numbers that windows read, at a time: they fit into the last cache.
constexpr Index numbers_at_once = Index{1} << 19U;
constexpr Index fewest_rows = 32;

/// `view` from a number of its first row on.
const void* at(ConstView view, Index row, Index column) {
    return static_cast<const std::byte*>(view.data) +
           as_index(row * view.columns + column) * size_of(view.dtype);
}
void* at(View view, Index row, Index column) {
    return const_cast<void*>(at(ConstView(view), row, column));
}
const void* at_or_null(ConstView view, Index row, Index column) {
    return view.empty() ? nullptr : at(view, row, column);
}

/// Places [begin, end) of the window, and the channels of one group.
struct WindowPart {
    Places places;
    int group = 0;
};

/// Writes what the windows of output rows [begin, begin + rows) read of x into the rows of a
/// matrix: place by place, channel by channel.
class WindowReader {
  public:
    WindowReader(const WindowShape& shape, ConstView x)
        : shape_(shape),
          rows_(rows_axis(shape)),
          columns_(columns_axis(shape)),
          x_(x),
          pixel_bytes_(as_index(x.columns) * size_of(x.dtype)),
          part_bytes_(as_index(shape.group_channels()) * size_of(x.dtype)),
          together_(shape.groups == 1 && shape.dilation.width == 1) {}

    void read(const WindowPart& part, Index begin, Index rows, std::byte* to) const {
        const Index out_pixels = shape_.out_rows(1);
        for (Index r = begin; r < begin + rows; ++r) {
            const Index sample = r / out_pixels;
            const std::byte* const image = static_cast<const std::byte*>(x_.data) +
                                           as_index(sample * shape_.in_rows(1)) * pixel_bytes_ +
                                           as_index(part.group) * part_bytes_;
            const int oy = static_cast<int>(r % out_pixels / columns_.out);
            const int ox = static_cast<int>(r % columns_.out);
            to = read_window(image, oy, ox, part.places, to);
        }
    }

  private:
    std::byte* read_window(
        const std::byte* image, int oy, int ox, const Places& places, std::byte* to) const {
        const int width = columns_.kernel;
        for (int place = places.begin; place < places.end;) {
            const int ky = place / width;
            const int kx = place % width;
            const int count = std::min(width - kx, places.end - place);
            const int iy = rows_.first(oy) + ky * rows_.dilation;
            if (iy < 0 || iy >= rows_.size) {
                std::memset(to, 0, as_index(count) * part_bytes_);
            } else {
                read_row(image + as_index(Index{iy} * columns_.size) * pixel_bytes_,
                         columns_.first(ox) + kx * columns_.dilation,
                         count,
                         to);
            }
            to += as_index(count) * part_bytes_;
            place += count;
        }
        return to;
    }

    /// `count` places beside each other, of which the first lies on pixel `ix` of the row.
    void read_row(const std::byte* row, int ix, int count, std::byte* to) const {
        if (together_) {
            const int begin = std::clamp(-ix, 0, count);
            const int end = std::clamp(columns_.size - ix, begin, count);
            std::memset(to, 0, as_index(begin) * part_bytes_);
            if (end > begin) {
                std::memcpy(to + as_index(begin) * part_bytes_,
                            row + as_index(ix + begin) * pixel_bytes_,
                            as_index(end - begin) * part_bytes_);
            }
            std::memset(to + as_index(end) * part_bytes_, 0, as_index(count - end) * part_bytes_);
            return;
        }
        for (int k = 0; k < count; ++k, ix += columns_.dilation, to += part_bytes_) {
            if (ix < 0 || ix >= columns_.size) {
                std::memset(to, 0, part_bytes_);
            } else {
                std::memcpy(to, row + as_index(ix) * pixel_bytes_, part_bytes_);
            }
        }
    }

    const WindowShape& shape_;
    WindowAxis rows_;
    WindowAxis columns_;
    ConstView x_;
    std::size_t pixel_bytes_;
    std::size_t part_bytes_;  ///< of a pixel's channels of one group
    bool together_;           ///< places beside each other lie beside each other in x
};

std::byte* window_scratch(Index numbers, DType type) {
    return static_cast<std::byte*>(
        product_scratch(ScratchUse::Windows, as_index(numbers) * size_of(type)));
}

/// Input pixels that the same places of a window lie on: every stride-th of both directions.
class Phase {
  public:
    Phase(const WindowShape& shape, int top, int left)
        : shape_(shape),
          rows_(rows_axis(shape)),
          columns_(columns_axis(shape)),
          top_(top),
          left_(left),
          height_(count(shape.in.height, top, shape.stride.height)),
          width_(count(shape.in.width, left, shape.stride.width)) {}

    Index pixels(int samples) const { return std::int64_t{samples} * height_ * width_; }

    /// Row of x of the n-th of these pixels.
    Index row(Index n) const {
        const auto [sample, y, x] = place(n);
        return shape_.in_rows(sample) + Index{y} * shape_.in.width + x;
    }

    bool has(int ky, int kx) const { return on(rows_, top_, ky) && on(columns_, left_, kx); }

    /// Copies the rows of dy whose windows have place (ky, kx) on pixels [begin, begin + rows), of
    /// a group's columns; zeros where there is no such window.
    void gather(
        ConstView dy, int group, int ky, int kx, Index begin, Index rows, std::byte* to) const {
        const std::size_t bytes = as_index(shape_.group_outputs()) * size_of(dy.dtype);
        for (Index n = begin; n < begin + rows; ++n, to += bytes) {
            const auto [sample, y, x] = place(n);
            const int oy = rows_.output_of(y, ky);
            const int ox = columns_.output_of(x, kx);
            if (oy < 0 || ox < 0) {
                std::memset(to, 0, bytes);
            } else {
                const Index row = shape_.out_rows(sample) + Index{oy} * columns_.out + ox;
                std::memcpy(to, at(dy, row, Index{group} * shape_.group_outputs()), bytes);
            }
        }
    }

  private:
    struct Place {
        int sample;
        int y;
        int x;
    };
    static int count(int size, int begin, int stride) {
        return begin < size ? (size - begin + stride - 1) / stride : 0;
    }
    static bool on(const WindowAxis& axis, int i, int k) {
        return (i + axis.before - k * axis.dilation) % axis.stride == 0;
    }
    Place place(Index n) const {
        const Index in_sample = n % (Index{height_} * width_);
        return {.sample = static_cast<int>(n / (Index{height_} * width_)),
                .y = top_ + static_cast<int>(in_sample / width_) * shape_.stride.height,
                .x = left_ + static_cast<int>(in_sample % width_) * shape_.stride.width};
    }

    const WindowShape& shape_;
    WindowAxis rows_;
    WindowAxis columns_;
    int top_;
    int left_;
    int height_;
    int width_;
};

/// The gradient by x of a block of pixels.
template <class T>
class InputGradient {
  public:
    InputGradient(const WindowShape& shape, ConstView dy, ConstView w, ConstView skip, View dx)
        : shape_(shape), dy_(dy), w_(w), skip_(skip), dx_(dx) {}

    void add_phase(const Phase& phase, int samples) {
        const Index wide = std::max(shape_.group_channels(), shape_.group_outputs());
        const Index at_once = std::max(numbers_at_once / wide, fewest_rows);
        const Index pixels = phase.pixels(samples);
        for (int group = 0; group < shape_.groups; ++group) {
            for (Index begin = 0; begin < pixels; begin += at_once) {
                block(phase, group, begin, std::min(at_once, pixels - begin));
            }
        }
    }

  private:
    using C = Computed<T>;

    void block(const Phase& phase, int group, Index begin, Index rows) {
        const Index channels = shape_.group_channels();
        const Index outputs = shape_.group_outputs();
        std::byte* const gathered = window_scratch(rows * outputs, dy_.dtype);
        auto* const sums = static_cast<C*>(
            product_scratch(ScratchUse::WindowSums, as_index(rows * channels) * sizeof(C)));
        bool any = false;
        for (int place = 0; place < shape_.places(); ++place) {
            const int ky = place / shape_.kernel.width;
            const int kx = place % shape_.kernel.width;
            if (!phase.has(ky, kx)) {
                continue;
            }
            phase.gather(dy_, group, ky, kx, begin, rows, gathered);
            compute({.m = rows,
                     .n = channels,
                     .k = outputs,
                     .a = {.data = gathered, .type = dy_.dtype, .stride = outputs},
                     .b = {.data = at(w_, place * channels, group * outputs),
                           .type = w_.dtype,
                           .stride = w_.columns,
                           .transposed = Transposed::Yes},
                     .c = sums,
                     .c_type = dtype_of<C>,
                     .c_stride = channels,
                     .skip = any ? sums : nullptr});
            any = true;
        }
        store_rows(phase, group, begin, rows, any ? sums : nullptr);
    }

    /// dx = skip + sums for pixels [begin, begin + rows) of the phase; sums may be null: zero.
    void store_rows(const Phase& phase, int group, Index begin, Index rows, const C* sums) {
        const auto channels = as_index(shape_.group_channels());
        for (Index n = begin; n < begin + rows; ++n) {
            const Index row = phase.row(n);
            const Index column = Index{group} * shape_.group_channels();
            const auto* const skip = static_cast<const T*>(at_or_null(skip_, row, column));
            auto* const to = static_cast<T*>(at(dx_, row, column));
            if (sums != nullptr) {
                store_sums(sums, skip, to, channels);
                sums += channels;
            } else if (skip == nullptr) {
                std::fill_n(to, channels, T{});
            } else if (skip != to) {
                std::copy_n(skip, channels, to);
            }
        }
    }

    const WindowShape& shape_;
    ConstView dy_;
    ConstView w_;
    ConstView skip_;
    View dx_;
};

template <class T>
void add_input_gradient(
    const WindowShape& shape, ConstView dy, ConstView w, ConstView skip, View dx) {
    const int samples = static_cast<int>(dx.rows / shape.in_rows(1));
    InputGradient<T> gradient(shape, dy, w, skip, dx);
    for (int top = 0; top < shape.stride.height; ++top) {
        for (int left = 0; left < shape.stride.width; ++left) {
            gradient.add_phase(Phase(shape, top, left), samples);
        }
    }
}

}  // namespace

// y = skip + x * w + b
void convolve(
    const WindowShape& shape, ConstView x, ConstView w, ConstView b, ConstView skip, View y) {
    const WindowReader reader(shape, x);
    const Index depth = shape.depth();
    const Index outputs = shape.group_outputs();
    const Index at_once = std::max(numbers_at_once / depth, fewest_rows);
    for (int group = 0; group < shape.groups; ++group) {
        const Index column = group * outputs;
        for (Index begin = 0; begin < y.rows; begin += at_once) {
            const Index rows = std::min(at_once, y.rows - begin);
            std::byte* const read = window_scratch(rows * depth, x.dtype);
            reader.read(
                {.places = {.begin = 0, .end = shape.places()}, .group = group}, begin, rows, read);
            compute({.m = rows,
                     .n = outputs,
                     .k = depth,
                     .a = {.data = read, .type = x.dtype, .stride = depth},
                     .b = {.data = at(w, 0, column), .type = w.dtype, .stride = w.columns},
                     .c = at(y, begin, column),
                     .c_type = y.dtype,
                     .c_stride = y.columns,
                     .skip = at_or_null(skip, begin, column),
                     .bias = at_or_null(b, 0, column)});
        }
    }
}

// dx = skip + for each place of the window, dy of the window that has it there, times w^T
void convolve_backward_input(
    const WindowShape& shape, ConstView dy, ConstView w, ConstView skip, View dx) {
    switch (dx.dtype) {
        case DType::F64:
            return add_input_gradient<double>(shape, dy, w, skip, dx);
        case DType::BF16:
            return add_input_gradient<BFloat16>(shape, dy, w, skip, dx);
        default:
            return add_input_gradient<float>(shape, dy, w, skip, dx);
    }
}

// dw += x^T dy, with what the windows read as x. Blocks of rows are whole blocks of the product's
// depth, so the sums are those of a product over all rows.
void convolve_backward_weight(const WindowShape& shape, ConstView x, ConstView dy, View dw) {
    const WindowReader reader(shape, x);
    const Index channels = shape.group_channels();
    const Index outputs = shape.group_outputs();
    const auto places_at_once = static_cast<int>(
        std::clamp<Index>(numbers_at_once / (block_depth * channels), 1, shape.places()));
    const Index blocks =
        std::max<Index>(numbers_at_once / (block_depth * channels * places_at_once), 1);
    const Index at_once = blocks * block_depth;
    for (Index begin = 0; begin < dy.rows; begin += at_once) {
        const Index rows = std::min(at_once, dy.rows - begin);
        for (int group = 0; group < shape.groups; ++group) {
            const Index column = group * outputs;
            for (int place = 0; place < shape.places(); place += places_at_once) {
                const Places places{.begin = place,
                                    .end = std::min(place + places_at_once, shape.places())};
                const Index depth = places.count() * channels;
                std::byte* const read = window_scratch(rows * depth, x.dtype);
                reader.read({.places = places, .group = group}, begin, rows, read);
                void* const sums = at(dw, place * channels, column);
                compute(
                    {.m = depth,
                     .n = outputs,
                     .k = rows,
                     .a = {.data = read,
                           .type = x.dtype,
                           .stride = depth,
                           .transposed = Transposed::Yes},
                     .b = {.data = at(dy, begin, column), .type = dy.dtype, .stride = dy.columns},
                     .c = sums,
                     .c_type = dw.dtype,
                     .c_stride = dw.columns,
                     .skip = sums});
            }
        }
    }
}

}  // namespace pipetwin::exec

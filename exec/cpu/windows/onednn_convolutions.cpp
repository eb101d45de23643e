// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/windows/onednn_convolutions.h"

#include "core/base/as_index.h"
#include "core/base/error.h"

#if defined(PIPETWIN_ONEDNN)

#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/model/pixels.h"
#include "exec/cpu/products/onednn_products.h"
#include "exec/cpu/products/product_scratch.h"

// A function of OpenMP, which Debian's oneDNN runs on; its header comes with a compiler, not with
// the library.
extern "C" void omp_set_num_threads(int);

namespace pipetwin::exec {
namespace {

using dnnl::memory;

const dnnl::engine& engine() {
    static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
    return cpu;
}

memory::data_type type_of(DType type) {
    return type == DType::BF16 ? memory::data_type::bf16 : memory::data_type::f32;
}

enum class Direction { Forward, BackwardInput, BackwardWeight };

/// Everything that decides which code oneDNN makes for a convolution.
struct Case {
    Direction direction = Direction::Forward;
    WindowShape shape{};
    DType type = DType::F32;
    int samples = 0;
    bool has_bias = false;
    bool has_skip = false;

    using Key = std::array<int, 22>;
    Key key() const {
        const WindowShape& s = shape;
        return {static_cast<int>(direction),
                static_cast<int>(type),
                samples,
                has_bias ? 1 : 0,
                has_skip ? 1 : 0,
                s.in.height,
                s.in.width,
                s.out.height,
                s.out.width,
                s.channels,
                s.outputs,
                s.kernel.height,
                s.kernel.width,
                s.stride.height,
                s.stride.width,
                s.dilation.height,
                s.dilation.width,
                s.padding.top,
                s.padding.left,
                s.padding.bottom,
                s.padding.right,
                s.groups};
    }

    memory::desc image(Pixels pixels, int channels) const {
        return {{samples, channels, pixels.height, pixels.width},
                type_of(type),
                memory::format_tag::nhwc};
    }
    memory::desc x() const { return image(shape.in, shape.channels); }
    memory::desc y() const { return image(shape.out, shape.outputs); }
    memory::desc bias() const { return {{shape.outputs}, type_of(type), memory::format_tag::a}; }
    DType weight_type() const { return direction == Direction::BackwardWeight ? DType::F32 : type; }
    memory::dims weight_sizes() const {
        const WindowShape& s = shape;
        memory::dims sizes{s.group_outputs(), s.group_channels(), s.kernel.height, s.kernel.width};
        if (s.groups > 1) {
            sizes.insert(sizes.begin(), s.groups);
        }
        return sizes;
    }
    /// A matrix with a row for each place of the window and each channel.
    memory::desc own_weight() const {
        const memory::dim channel = shape.outputs;
        const memory::dim place = channel * shape.group_channels();
        memory::dims strides{1, channel, place * shape.kernel.width, place};
        if (shape.groups > 1) {
            strides.insert(strides.begin(), shape.group_outputs());
        }
        return {weight_sizes(), type_of(weight_type()), strides};
    }
    memory::desc any_weight() const {
        return {weight_sizes(), type_of(weight_type()), memory::format_tag::any};
    }
    memory::dims strides() const { return {shape.stride.height, shape.stride.width}; }
    memory::dims dilations() const { return {shape.dilation.height - 1, shape.dilation.width - 1}; }
    memory::dims padding_before() const { return {shape.padding.top, shape.padding.left}; }
    memory::dims padding_behind() const { return {shape.padding.bottom, shape.padding.right}; }
};

dnnl::primitive_attr with_own_scratch() {
    dnnl::primitive_attr how;
    how.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return how;
}

/// The result is added to what is there.
void add_to_result(dnnl::primitive_attr& how) {
    dnnl::post_ops sum;
    sum.append_sum(1);
    how.set_post_ops(sum);
}

using Forward = dnnl::convolution_forward;
using BackwardInput = dnnl::convolution_backward_data;
using BackwardWeight = dnnl::convolution_backward_weights;
constexpr auto direct = dnnl::algorithm::convolution_direct;
/// An operation that the library does not know is an empty one, no exception.
constexpr bool may_be_empty = true;

Forward::primitive_desc forward_of(const Case& c) {
    constexpr auto kind = dnnl::prop_kind::forward_training;
    const Forward::desc what = c.has_bias ? Forward::desc(kind,
                                                          direct,
                                                          c.x(),
                                                          c.any_weight(),
                                                          c.bias(),
                                                          c.y(),
                                                          c.strides(),
                                                          c.dilations(),
                                                          c.padding_before(),
                                                          c.padding_behind())
                                          : Forward::desc(kind,
                                                          direct,
                                                          c.x(),
                                                          c.any_weight(),
                                                          c.y(),
                                                          c.strides(),
                                                          c.dilations(),
                                                          c.padding_before(),
                                                          c.padding_behind());
    dnnl::primitive_attr how = with_own_scratch();
    if (c.has_skip) {
        add_to_result(how);
    }
    return {what, how, engine(), may_be_empty};
}

/// The gradient by x or by w, `Backward` being one of them.
template <class Backward>
typename Backward::primitive_desc backward_of(const Case& c) {
    const Forward::primitive_desc forward = forward_of(c);
    if (!forward) {
        return {};
    }
    const typename Backward::desc what(direct,
                                       c.x(),
                                       c.any_weight(),
                                       c.y(),
                                       c.strides(),
                                       c.dilations(),
                                       c.padding_before(),
                                       c.padding_behind());
    return {what, with_own_scratch(), engine(), forward, may_be_empty};
}

/// True of code that is slower than ours, or that takes scratch for what all windows read.
bool is_slow(std::string_view code) {
    return code.starts_with("ref") || code.starts_with("simple") || code.starts_with("gemm");
}

memory of_desc(const memory::desc& desc) {
    return {desc, engine(), nullptr};
}

/// The code for convolutions of one case, and what it is called with.
class Made {
  public:
    explicit Made(const Case& c) : case_(c) {
        switch (c.direction) {
            case Direction::Forward:
                make<Forward>(forward_of(c), DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST);
                break;
            case Direction::BackwardInput:
                make<BackwardInput>(backward_of<BackwardInput>(c),
                                    DNNL_ARG_DIFF_SRC,
                                    DNNL_ARG_WEIGHTS,
                                    DNNL_ARG_DIFF_DST);
                break;
            case Direction::BackwardWeight:
                make<BackwardWeight>(backward_of<BackwardWeight>(c),
                                     DNNL_ARG_SRC,
                                     DNNL_ARG_DIFF_WEIGHTS,
                                     DNNL_ARG_DIFF_DST);
                break;
        }
    }

    /// False if there is no fast code: then it cannot be called.
    bool usable() const { return static_cast<bool>(convolution_); }

    /// Computes with x and y, or their gradients. `weight` is our matrix of weights, or of their
    /// gradient, which is added to.
    void call(
        const void* x, const void* weight, const void* bias, const void* y, dnnl::stream& on) {
        const bool writes_weight = case_.direction == Direction::BackwardWeight;
        set(x_argument_, x);
        set(y_argument_, y);
        if (bias != nullptr) {
            set(DNNL_ARG_BIAS, bias);
        }
        set(DNNL_ARG_SCRATCHPAD, scratch(ScratchUse::B, scratch_bytes_));
        void* const copy = scratch(ScratchUse::Windows, weight_bytes_);
        set(weight_argument_, copied_ ? copy : weight);
        own_weight_.set_data_handle(const_cast<void*>(weight));
        memory& library_weight = arguments_.at(weight_argument_);
        if (copied_ && !writes_weight) {
            copying_.execute(on, own_weight_, library_weight);
        }
        convolution_.execute(on, arguments_);
        if (writes_weight) {
            copying_.execute(on, library_weight, own_weight_);
        }
    }

  private:
    static void* scratch(ScratchUse use, std::size_t bytes) {
        return bytes == 0 ? nullptr : product_scratch(use, bytes);
    }

    template <class Primitive>
    void make(const typename Primitive::primitive_desc& found, int x, int weight, int y) {
        if (!found || is_slow(found.impl_info_str())) {
            return;
        }
        x_argument_ = x;
        weight_argument_ = weight;
        y_argument_ = y;
        const memory::desc chosen = weight == DNNL_ARG_DIFF_WEIGHTS
                                        ? found.query_md(dnnl::query::diff_weights_md, 0)
                                        : found.query_md(dnnl::query::weights_md, 0);
        const memory::desc own = case_.own_weight();
        own_weight_ = of_desc(own);
        scratch_bytes_ = found.scratchpad_desc().get_size();
        weight_bytes_ = chosen.get_size();
        add(x, case_.x());
        add(weight, chosen);
        add(y, case_.y());
        add(DNNL_ARG_SCRATCHPAD, found.scratchpad_desc());
        if (case_.has_bias) {
            add(DNNL_ARG_BIAS, case_.bias());
        }
        const bool writes_weight = case_.direction == Direction::BackwardWeight;
        copied_ = writes_weight || chosen != own;
        dnnl::primitive_attr how;
        if (writes_weight) {
            add_to_result(how);
        }
        const memory::desc& from = writes_weight ? chosen : own;
        const memory::desc& to = writes_weight ? own : chosen;
        copying_ = dnnl::reorder(dnnl::reorder::primitive_desc(engine(), from, engine(), to, how));
        convolution_ = Primitive(found);
    }

    void add(int argument, const memory::desc& desc) {
        arguments_.emplace(argument, of_desc(desc));
    }
    /// The interface has no word for what is only read.
    void set(int argument, const void* data) {
        arguments_.at(argument).set_data_handle(const_cast<void*>(data));
    }

    Case case_;
    int x_argument_ = 0;
    int weight_argument_ = 0;
    int y_argument_ = 0;
    std::unordered_map<int, memory> arguments_;
    memory own_weight_;
    std::size_t scratch_bytes_ = 0;
    std::size_t weight_bytes_ = 0;
    bool copied_ = false;  ///< the library's weights are a copy of ours, or are added to ours
    dnnl::reorder copying_;
    dnnl::primitive convolution_;
};

/// The library's objects of one thread: it works alone, and no thread waits for its code.
struct OfThread {
    OfThread() { omp_set_num_threads(1); }

    dnnl::stream stream{engine()};
    std::map<Case::Key, Made> made;
};

/// Computes the case, if there is fast code for it.
bool call(const Case& c, const void* x, const void* weight, const void* bias, const void* y) {
    try {
        thread_local OfThread own;
        const Case::Key key = c.key();
        auto found = own.made.find(key);
        if (found == own.made.end()) {
            found = own.made.emplace(key, c).first;
        }
        if (found->second.usable()) {
            found->second.call(x, weight, bias, y, own.stream);
        }
        return found->second.usable();
    } catch (const dnnl::error& error) {
        throw InternalError(std::string("oneDNN: ") + error.what());
    }
}

/// Vectors of eight numbers or more: its code for older processors is no faster than ours.
bool has_fast_vectors() {
    static const bool fast = __builtin_cpu_supports("avx2") != 0;
    return fast;
}

/// A pointwise convolution is a product, whatever its stride.
bool may_compute(const WindowShape& shape, DType type) {
    const Margins& p = shape.padding;
    const bool crops = std::min({p.top, p.left, p.bottom, p.right}) < 0;
    const bool dilated = shape.dilation != Pixels{1, 1};
    return shape.places() > 1 && !crops && !(dilated && shape.groups > 1) &&
           ((type == DType::F32 && has_fast_vectors()) ||
            (type == DType::BF16 && onednn_has_bf16()));
}

int samples_of(ConstView images, Pixels size) {
    return static_cast<int>(images.rows / (std::int64_t{size.height} * size.width));
}

}  // namespace

bool onednn_convolution_forward(
    const WindowShape& shape, ConstView x, ConstView w, ConstView b, ConstView skip, View y) {
    if (!may_compute(shape, x.dtype)) {
        return false;
    }
    if (!skip.empty() && skip.data != y.data) {
        std::memcpy(y.data, skip.data, ConstView(y).bytes());
    }
    return call({.direction = Direction::Forward,
                 .shape = shape,
                 .type = x.dtype,
                 .samples = samples_of(x, shape.in),
                 .has_bias = !b.empty(),
                 .has_skip = !skip.empty()},
                x.data,
                w.data,
                b.data,
                y.data);
}

bool onednn_convolution_backward_input(const WindowShape& shape,
                                       ConstView dy,
                                       ConstView w,
                                       View dx) {
    return may_compute(shape, dx.dtype) && call({.direction = Direction::BackwardInput,
                                                 .shape = shape,
                                                 .type = dx.dtype,
                                                 .samples = samples_of(dx, shape.in)},
                                                dx.data,
                                                w.data,
                                                nullptr,
                                                dy.data);
}

bool onednn_convolution_backward_weight(const WindowShape& shape,
                                        ConstView x,
                                        ConstView dy,
                                        View dw) {
    return may_compute(shape, x.dtype) && call({.direction = Direction::BackwardWeight,
                                                .shape = shape,
                                                .type = x.dtype,
                                                .samples = samples_of(x, shape.in)},
                                               x.data,
                                               dw.data,
                                               nullptr,
                                               dy.data);
}

}  // namespace pipetwin::exec

#else

namespace pipetwin::exec {

bool onednn_convolution_forward(const WindowShape& /*shape*/,
                                ConstView /*x*/,
                                ConstView /*w*/,
                                ConstView /*b*/,
                                ConstView /*skip*/,
                                View /*y*/) {
    return false;
}
bool onednn_convolution_backward_input(const WindowShape& /*shape*/,
                                       ConstView /*dy*/,
                                       ConstView /*w*/,
                                       View /*dx*/) {
    return false;
}
bool onednn_convolution_backward_weight(const WindowShape& /*shape*/,
                                        ConstView /*x*/,
                                        ConstView /*dy*/,
                                        View /*dw*/) {
    return false;
}

}  // namespace pipetwin::exec

#endif

// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/products/onednn_products.h"

#include "core/base/as_index.h"
#include "core/base/error.h"

#if defined(PIPETWIN_ONEDNN)

#include <oneapi/dnnl/dnnl.hpp>

#include <cstring>
#include <map>
#include <tuple>
#include <unordered_map>

#include "exec/cpu/products/product_scratch.h"

// A function of OpenMP, which Debian's oneDNN runs on; its header comes with a compiler, not with
// the library.
extern "C" void omp_set_num_threads(int);

namespace pipetwin::exec {
namespace {

using dnnl::memory;

memory::data_type type_of(DType type) {
    return type == DType::BF16 ? memory::data_type::bf16 : memory::data_type::f32;
}

memory::desc desc_of(std::int64_t rows,
                     std::int64_t columns,
                     DType type,
                     std::int64_t stride,
                     Transposed transposed = Transposed::No) {
    const bool turned = transposed == Transposed::Yes;
    return {
        {rows, columns}, type_of(type), turned ? memory::dims{1, stride} : memory::dims{stride, 1}};
}

/// Properties of a product that decide which code oneDNN makes for it.
using Shape = std::tuple<std::int64_t,
                         std::int64_t,
                         std::int64_t,
                         DType,
                         std::int64_t,
                         Transposed,
                         DType,
                         std::int64_t,
                         Transposed,
                         DType,
                         std::int64_t,
                         bool,
                         bool>;

Shape shape_of(const Product& p) {
    return {p.m,
            p.n,
            p.k,
            p.a.type,
            p.a.stride,
            p.a.transposed,
            p.b.type,
            p.b.stride,
            p.b.transposed,
            p.c_type,
            p.c_stride,
            p.skip != nullptr,
            p.bias != nullptr};
}

const dnnl::engine& engine() {
    static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
    return cpu;
}

/// The code for products of one shape, and what it is called with.
class Made {
  public:
    explicit Made(const Product& p) {
        const memory::desc a = desc_of(p.m, p.k, p.a.type, p.a.stride, p.a.transposed);
        const memory::desc b = desc_of(p.k, p.n, p.b.type, p.b.stride, p.b.transposed);
        const memory::desc c = desc_of(p.m, p.n, p.c_type, p.c_stride);
        const memory::desc bias = desc_of(1, p.n, p.c_type, p.n);
        dnnl::primitive_attr how;
        how.set_scratchpad_mode(dnnl::scratchpad_mode::user);
        if (p.skip != nullptr) {
            dnnl::post_ops sum;
            sum.append_sum(1);
            how.set_post_ops(sum);
        }
        const dnnl::matmul::desc what =
            p.bias != nullptr ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
        const dnnl::matmul::primitive_desc made(what, how, engine());
        scratch_bytes_ = made.scratchpad_desc().get_size();
        add(DNNL_ARG_SRC, a);
        add(DNNL_ARG_WEIGHTS, b);
        add(DNNL_ARG_DST, c);
        add(DNNL_ARG_SCRATCHPAD, made.scratchpad_desc());
        if (p.bias != nullptr) {
            add(DNNL_ARG_BIAS, bias);
        }
        matmul_ = dnnl::matmul(made);
    }

    void call(const Product& p, const dnnl::stream& stream) {
        set(DNNL_ARG_SRC, p.a.data);
        set(DNNL_ARG_WEIGHTS, p.b.data);
        set(DNNL_ARG_DST, p.c);
        set(DNNL_ARG_SCRATCHPAD,
            scratch_bytes_ == 0 ? nullptr : product_scratch(ScratchUse::B, scratch_bytes_));
        if (p.bias != nullptr) {
            set(DNNL_ARG_BIAS, p.bias);
        }
        matmul_.execute(stream, arguments_);
    }

  private:
    void add(int argument, const memory::desc& desc) {
        arguments_.emplace(argument, memory(desc, engine(), nullptr));
    }
    /// The interface has no word for what is only read.
    void set(int argument, const void* data) {
        arguments_.at(argument).set_data_handle(const_cast<void*>(data));
    }

    std::unordered_map<int, memory> arguments_;
    std::size_t scratch_bytes_ = 0;
    dnnl::matmul matmul_;
};

/// The library's objects of one thread: it works alone, and no thread waits for its code.
struct OfThread {
    OfThread() { omp_set_num_threads(1); }

    dnnl::stream stream{engine()};
    std::map<Shape, Made> made;
};

bool has_instructions_for_bf16() {
    const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
    return isa == dnnl::cpu_isa::avx512_core_bf16 || isa == dnnl::cpu_isa::avx512_core_amx;
}

void copy_rows(const Product& p) {
    const auto row_bytes = as_index(p.n) * size_of(p.c_type);
    const auto stride = as_index(p.c_stride) * size_of(p.c_type);
    for (std::size_t row = 0; row < as_index(p.m); ++row) {
        std::memcpy(static_cast<std::byte*>(p.c) + row * stride,
                    static_cast<const std::byte*>(p.skip) + row * stride,
                    row_bytes);
    }
}

}  // namespace

bool has_onednn() {
    return true;
}

bool onednn_has_bf16() {
    static const bool has = has_instructions_for_bf16();
    return has;
}

bool onednn_is_faster_in_bf16(const Product& p) {
    static const bool has_amx = dnnl::get_effective_cpu_isa() == dnnl::cpu_isa::avx512_core_amx;
    constexpr std::int64_t few_rows = 512;
    const bool is_small = p.m <= few_rows && p.a.transposed == Transposed::No;
    return onednn_has_bf16() && p.causal == Causal::No && (has_amx || is_small);
}

bool can_compute_by_onednn(const Product& p) {
    const bool whole = p.causal == Causal::No || p.causal == Causal::Result;
    const bool half = p.a.type == DType::BF16 && p.b.type == DType::BF16;
    const bool single = p.a.type == DType::F32 && p.b.type == DType::F32 && p.c_type == DType::F32;
    return whole && (single || (half && onednn_has_bf16()));
}

void compute_by_onednn(const Product& p) {
    PIPETWIN_EXPECT(can_compute_by_onednn(p), "a product that oneDNN can compute here");
    try {
        thread_local OfThread own;
        const Shape shape = shape_of(p);
        auto found = own.made.find(shape);
        if (found == own.made.end()) {
            found = own.made.emplace(shape, p).first;
        }
        if (p.skip != nullptr && p.skip != p.c) {
            copy_rows(p);
        }
        found->second.call(p, own.stream);
    } catch (const dnnl::error& error) {
        throw InternalError(std::string("oneDNN: ") + error.what());
    }
}

}  // namespace pipetwin::exec

#else

namespace pipetwin::exec {

bool has_onednn() {
    return false;
}
bool onednn_has_bf16() {
    return false;
}
bool onednn_is_faster_in_bf16(const Product& /*product*/) {
    return false;
}
bool can_compute_by_onednn(const Product& /*product*/) {
    return false;
}
void compute_by_onednn(const Product& /*product*/) {
    throw InternalError("this build has no oneDNN");
}

}  // namespace pipetwin::exec

#endif

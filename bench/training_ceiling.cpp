// SPDX-License-Identifier: Apache-2.0
#include "bench/training_ceiling.h"

#include <dlfcn.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include <fmt/format.h>

#include "core/base/median.h"
#include "exec/cpu/products/onednn_products.h"
#include "exec/device/device.h"

namespace pipetwin::bench {
namespace {

Sgemm open_blas() {
    void* const library = ::dlopen("libopenblas.so.0", RTLD_NOW);
    if (library == nullptr) {
        return nullptr;
    }
    if (auto* const threads =
            reinterpret_cast<void (*)(int)>(::dlsym(library, "openblas_set_num_threads"))) {
        threads(1);
    }
    return reinterpret_cast<Sgemm>(::dlsym(library, "cblas_sgemm"));
}

/// 0: not measured.
double middle(const std::vector<double>& seconds) {
    return seconds.empty() ? 0 : median(seconds);
}

/// All products of weights in one step, M = 1. Those of the attention are `attention_products`.
std::vector<Gemm> products(const Sizes& sizes) {
    using exec::Transposed;
    const int rows = sizes.batch * sizes.positions;
    std::vector<Gemm> all;
    const auto layer = [&](std::string_view name, int inputs, int outputs, int times) {
        all.push_back({name, rows, outputs, inputs, Transposed::No, Transposed::No, times});
        all.push_back({name, rows, inputs, outputs, Transposed::No, Transposed::Yes, times});
        all.push_back({name, inputs, outputs, rows, Transposed::Yes, Transposed::No, times});
    };
    layer("qkv", sizes.width, sizes.qkv_width(), sizes.layers);
    layer("out", sizes.width, sizes.width, sizes.layers);
    layer("up", sizes.width, (sizes.llama ? 2 : 1) * sizes.feed_forward, sizes.layers);
    layer("down", sizes.feed_forward, sizes.width, sizes.layers);
    layer("head", sizes.width, sizes.vocabulary, 1);
    return all;
}

double time_of(const std::function<void()>& call) {
    const double begin = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    call();
    return seconds_of(CLOCK_THREAD_CPUTIME_ID) - begin;
}

/// Bytes that a step must move beside its products, each tensor once and far from any cache: GELU
/// 2 + 3 of its width or SwiGLU 3 + 5, two norms 2 + 4 (with the skip) of d each, rotary positions
/// of queries and keys 2 + 2, softmax and cross-entropy 1 + 2 of the vocabulary, probabilities of
/// the attention written, read, and read, and AdamW 7 numbers of fp32 for each parameter and, in
/// bf16, the rounded weight.
double bytes_of_passes(const Sizes& sizes, long parameters, exec::DType real) {
    const double rows = sizes.batch * sizes.positions;
    const double between = (sizes.llama ? 3 + 5 : 2 + 3) * 1.0 * sizes.feed_forward;
    const double turned = sizes.llama ? 4.0 * (sizes.heads + sizes.key_value_heads) : 0;
    const double layer = between + 2 * (2 + 4) * 1.0 * sizes.width + turned * sizes.head_size() +
                         3.0 * sizes.heads * sizes.positions;
    const auto size = static_cast<double>(exec::size_of(real));
    const double update = 7 * sizeof(float) + (real == exec::DType::BF16 ? size : 0);
    return size * rows * (sizes.layers * layer + 3.0 * sizes.vocabulary) +
           update * static_cast<double>(parameters);
}

/// Memory of the products of an attention. Scores and their gradients are computed in fp32 and read
/// in the type of the activations: in fp32 they are one.
struct AttentionRoom {
    exec::DType real;
    std::byte* qkv;            ///< (samples positions, 3 width)
    std::byte* probabilities;  ///< (samples heads positions, positions)
    std::byte* scores;         ///< (positions, positions) of fp32
};

/// Seconds of one layer's products of scores, probabilities and their gradients, head by head, of
/// which only the half below the diagonal is computed.
double attention_products(const Sizes& sizes, const AttentionRoom& room) {
    using exec::Causal;
    using exec::DType;
    using exec::Factor;
    using exec::Transposed;
    const int positions = sizes.positions;
    const int size = sizes.head_size();
    const int stride = sizes.qkv_width();
    const auto bytes = static_cast<std::ptrdiff_t>(exec::size_of(room.real));
    const auto of_head = [&](std::byte* data, Transposed transposed = Transposed::No) {
        return Factor{data, room.real, stride, transposed};
    };
    const auto of_positions = [&](std::byte* data, Transposed transposed = Transposed::No) {
        return Factor{data, room.real, positions, transposed};
    };
    const auto to_scores = [&](const Factor& a, const Factor& b, std::byte* c) {
        exec::compute({.m = positions,
                       .n = positions,
                       .k = size,
                       .a = a,
                       .b = b,
                       .c = c,
                       .c_stride = positions,
                       .causal = Causal::Result});
    };
    const auto to_head = [&](const Factor& a, const Factor& b, Causal causal, std::byte* c) {
        exec::compute({.m = positions,
                       .n = size,
                       .k = positions,
                       .a = a,
                       .b = b,
                       .c = c,
                       .c_type = room.real,
                       .c_stride = stride,
                       .causal = causal});
    };
    const double begin = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    for (int sample = 0; sample < sizes.batch; ++sample) {
        for (int head = 0; head < sizes.heads; ++head) {
            std::byte* const q =
                room.qkv + bytes * (std::ptrdiff_t{sample} * positions * stride + head * size);
            const int shared = head / (sizes.heads / sizes.key_value_heads);
            std::byte* const k = q + bytes * (sizes.width + (shared - head) * size);
            std::byte* const v = k + bytes * sizes.key_value_heads * size;
            std::byte* const p =
                room.probabilities +
                bytes * ((std::ptrdiff_t{sample} * sizes.heads + head) * positions * positions);
            to_scores(
                of_head(q), of_head(k, Transposed::Yes), room.real == DType::F32 ? p : room.scores);
            to_head(of_positions(p), of_head(v), Causal::A, q);
            to_scores(of_head(q), of_head(v, Transposed::Yes), room.scores);
            to_head(of_positions(p, Transposed::Yes), of_head(q), Causal::ATransposed, v);
            to_head(of_positions(room.scores), of_head(k), Causal::A, q);
            to_head(of_positions(room.scores, Transposed::Yes), of_head(q), Causal::ATransposed, k);
        }
    }
    return seconds_of(CLOCK_THREAD_CPUTIME_ID) - begin;
}

/// Numbers that products of products keep in range, of either type.
void fill(exec::DType type, std::vector<float>& memory) {
    constexpr float small = 1e-3F;
    constexpr std::uint32_t two_bf16 = 0x3A833A83U;
    std::ranges::fill(memory, type == exec::DType::F32 ? small : std::bit_cast<float>(two_bf16));
}

std::byte* bytes_of(std::vector<float>& memory) {
    return reinterpret_cast<std::byte*>(memory.data());
}

const char* direction(const Gemm& p) {
    return p.a == exec::Transposed::Yes ? "dw" : p.b == exec::Transposed::Yes ? "dx" : "y";
}

}  // namespace

Ceiling::Ceiling(const Sizes& sizes, long parameters, exec::DType real)
    : sizes_(sizes),
      real_(real),
      bytes_(bytes_of_passes(sizes, parameters, real)),
      sgemm_(real == exec::DType::F32 ? open_blas() : nullptr),
      gemms_(products(sizes)) {
    exec::prepare_cpu_thread();
}

void Ceiling::measure() {
    fill(real_, a_);
    fill(real_, b_);
    fill(real_, c_);
    for (Gemm& gemm : gemms_) {
        measure(gemm);
    }
    const AttentionRoom memory{
        .real = real_, .qkv = bytes_of(a_), .probabilities = bytes_of(b_), .scores = bytes_of(c_)};
    attention_.push_back(sizes_.layers * attention_products(sizes_, memory));
    copy_.push_back(time_of([&] { std::memcpy(c_.data(), a_.data(), room * sizeof(float)); }));
}

double Ceiling::step() const {
    double sum = median(attention_) + passes();
    for (const Gemm& gemm : gemms_) {
        double best = median(gemm.own);
        for (const std::vector<double>* const others : {&gemm.blas, &gemm.onednn}) {
            best = others->empty() ? best : std::min(best, median(*others));
        }
        sum += gemm.times * best;
    }
    return sum;
}

void Ceiling::print() const {
    fmt::print("{:<22} {:>10} {:>10} {:>10}   GFLOP/s, one thread; 0: not there\n",
               real_ == exec::DType::F32 ? "product in fp32" : "product in bf16",
               "OpenBLAS",
               "oneDNN",
               "ours");
    double all_own = 0;
    double all_blas = 0;
    double all_onednn = 0;
    for (const Gemm& p : gemms_) {
        const double operations = 2e-9 * p.m * p.n * p.k;
        const auto rate = [&](const std::vector<double>& seconds) {
            return seconds.empty() ? 0 : operations / median(seconds);
        };
        fmt::print("{:<22} {:>10.1f} {:>10.1f} {:>10.1f}\n",
                   fmt::format("{} {} {}x{}x{}", p.name, direction(p), p.m, p.n, p.k),
                   rate(p.blas),
                   rate(p.onednn),
                   rate(p.own));
        all_own += p.times * median(p.own);
        all_blas += p.times * middle(p.blas);
        all_onednn += p.times * middle(p.onednn);
    }
    fmt::print(
        "all of them in a step: ours {:.3f} s, OpenBLAS {:.3f} s ({:.3f} x), oneDNN "
        "{:.3f} s ({:.3f} x); those of the attention {:.3f} s; other passes {:.3f} s at "
        "{:.1f} GB/s\n",
        all_own,
        all_blas,
        all_blas / all_own,
        all_onednn,
        all_onednn / all_own,
        median(attention_),
        passes(),
        bytes_ / passes() / 1e9);
}

double Ceiling::passes() const {
    return bytes_ * median(copy_) / (2 * static_cast<double>(room * sizeof(float)));
}

void Ceiling::measure(Gemm& p) {
    const bool a_turned = p.a == exec::Transposed::Yes;
    const bool b_turned = p.b == exec::Transposed::Yes;
    const int a_stride = a_turned ? p.m : p.k;
    const int b_stride = b_turned ? p.k : p.n;
    const exec::Product product{.m = p.m,
                                .n = p.n,
                                .k = p.k,
                                .a = {a_.data(), real_, a_stride, p.a},
                                .b = {b_.data(), real_, b_stride, p.b},
                                .c = c_.data(),
                                .c_type = a_turned ? exec::DType::F32 : real_,
                                .c_stride = p.n,
                                .skip = a_turned ? c_.data() : nullptr};
    const bool by_pairs = real_ == exec::DType::BF16 && exec::multiplies_bf16();
    p.own.push_back(
        time_of([&] { by_pairs ? exec::compute_by_pairs(product) : exec::compute(product); }));
    if (exec::has_onednn() && exec::can_compute_by_onednn(product)) {
        if (p.onednn.empty()) {
            exec::compute_by_onednn(product);  // makes its code
        }
        p.onednn.push_back(time_of([&] { exec::compute_by_onednn(product); }));
    }
    if (sgemm_ == nullptr) {
        return;
    }
    constexpr int row_major = 101;
    constexpr int plain = 111;
    constexpr int turned = 112;
    p.blas.push_back(time_of([&] {
        sgemm_(row_major,
               a_turned ? turned : plain,
               b_turned ? turned : plain,
               p.m,
               p.n,
               p.k,
               1,
               a_.data(),
               a_stride,
               b_.data(),
               b_stride,
               a_turned ? 1.0F : 0.0F,
               c_.data(),
               p.n);
    }));
}

}  // namespace pipetwin::bench

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "core/base/as_index.h"
#include "exec/cuda/cudnn/cudnn_attention.h"
#include "exec/cuda/kernels/attention/attention.h"
#include "exec/cuda/runtime/check.h"
#include "exec/cuda/runtime/owned.h"
#include "tests/exec/cuda/module/check_numbers.h"
#include "tests/exec/cuda/module/device_checks.h"

namespace pipetwin::cuda {
namespace {

/// Results of attention, both directions; as floats, whatever the device's type.
struct Attention {
    std::vector<float> context;
    std::vector<float> log_sums;
    std::vector<float> dqkv;
};

std::size_t rows_of(const AttentionShape& shape) {
    return as_index(shape.samples) * as_index(shape.positions);
}

std::size_t size_of_qkv(const AttentionShape& shape) {
    return rows_of(shape) * static_cast<std::size_t>(shape.qkv_width());
}

std::size_t size_of_context(const AttentionShape& shape) {
    return rows_of(shape) * static_cast<std::size_t>(shape.query_width());
}

/// On the device.
struct Operands {
    DeviceBuffer qkv;
    DeviceBuffer dcontext;
    DeviceBuffer context;
    DeviceBuffer dqkv;
    DeviceBuffer log_sums;
    DeviceBuffer row_dots;
    DeviceBuffer lengths;  ///< of int32
};

/// A way to compute it: by cuDNN where it has a plan, else by our own kernels.
class Way {
  public:
    Way(CudnnAttention& cudnn, Real real, const AttentionShape& shape, const Stream& stream)
        : cudnn_(cudnn), real_(real), shape_(shape), stream_(stream) {}

    void forward(const Operands& x);
    void backward(const Operands& x);

  private:
    AttentionInputs inputs(const Operands& x) const {
        AttentionInputs made = inputs_in_one(real_, shape_, x.qkv.data());
        made.lengths =
            shape_.is_causal() ? nullptr : reinterpret_cast<const std::int32_t*>(x.lengths.data());
        return made;
    }
    AttentionGradients gradients(const Operands& x) const {
        return gradients_in_one(real_, shape_, x.dqkv.data());
    }
    std::optional<CudnnAttention::Plan> plan(AttentionDirection direction) {
        return real_ == Real::BF16 ? cudnn_.plan(shape_, direction) : std::nullopt;
    }
    /// Kept as long as this object, since the stream works behind the calls.
    float* workspace_of(const CudnnAttention::Plan& plan) {
        return workspaces_.emplace_back(plan.workspace_bytes / sizeof(float) + 1).data();
    }

    CudnnAttention& cudnn_;
    Real real_;
    AttentionShape shape_;
    const Stream& stream_;
    std::vector<DeviceBuffer> workspaces_;
};

void Way::forward(const Operands& x) {
    if (const auto found = plan(AttentionDirection::Forward)) {
        const CudnnAttention::Forward operands{.inputs = inputs(x),
                                               .context = x.context.data(),
                                               .log_sums = x.log_sums.data(),
                                               .workspace = workspace_of(*found)};
        if (cudnn_.passes(found->number, operands, stream_.get())) {
            return;
        }
    }
    PIPETWIN_CUDA_CHECK(attention_forward(
        real_, shape_, inputs(x), x.context.data(), x.log_sums.data(), stream_.get()));
}

void Way::backward(const Operands& x) {
    if (const auto found = plan(AttentionDirection::Backward)) {
        const CudnnAttention::Backward operands{.inputs = inputs(x),
                                                .context = x.context.data(),
                                                .log_sums = x.log_sums.data(),
                                                .dcontext = x.dcontext.data(),
                                                .gradients = gradients(x),
                                                .row_dots = x.row_dots.data(),
                                                .workspace = workspace_of(*found)};
        if (cudnn_.passes(found->number, operands, stream_.get())) {
            if (!shape_.is_causal()) {
                PIPETWIN_CUDA_CHECK(
                    clear_padding(real_, shape_, inputs(x).lengths, gradients(x), stream_.get()));
            }
            return;
        }
    }
    PIPETWIN_CUDA_CHECK(attention_backward(real_,
                                           shape_,
                                           inputs(x),
                                           x.context.data(),
                                           x.log_sums.data(),
                                           x.dcontext.data(),
                                           gradients(x),
                                           x.row_dots.data(),
                                           stream_.get()));
}

/// Keys that are no padding, where a case has lengths: all of a sample's, or not.
std::vector<std::int32_t> lengths_of(const AttentionShape& shape) {
    std::vector<std::int32_t> lengths(as_index(shape.samples), shape.positions);
    lengths.back() -= shape.positions / 3;
    return lengths;
}

/// Numbers as floats that have their bits.
std::vector<float> as_floats(const std::vector<std::int32_t>& numbers) {
    std::vector<float> floats(numbers.size());
    std::memcpy(floats.data(), numbers.data(), numbers.size() * sizeof(float));
    return floats;
}

Attention on_device(CudnnAttention& cudnn,
                    Real real,
                    const AttentionShape& shape,
                    const std::vector<float>& qkv,
                    const std::vector<float>& dcontext) {
    const Stream stream = make_stream();
    const std::vector<float> packed_qkv = packed(real, qkv);
    const std::vector<float> packed_dcontext = packed(real, dcontext);
    const std::size_t rows = as_index(attention_backward_scratch(shape));
    const Operands x{.qkv = DeviceBuffer(packed_qkv, stream),
                     .dcontext = DeviceBuffer(packed_dcontext, stream),
                     .context = DeviceBuffer(packed_dcontext.size()),
                     .dqkv = DeviceBuffer(packed_qkv.size()),
                     .log_sums = DeviceBuffer(rows),
                     .row_dots = DeviceBuffer(rows),
                     .lengths = DeviceBuffer(as_floats(lengths_of(shape)), stream)};
    Way way(cudnn, real, shape, stream);
    way.forward(x);
    way.backward(x);
    return {unpacked(real, dcontext.size(), x.context.to_host(stream)),
            x.log_sums.to_host(stream),
            unpacked(real, qkv.size(), x.dqkv.to_host(stream))};
}

/// y += factor x, in double until it is stored.
void add(double factor, const float* x, std::size_t size, float* y) {
    for (std::size_t i = 0; i < size; ++i) {
        y[i] = static_cast<float>(static_cast<double>(y[i]) + factor * static_cast<double>(x[i]));
    }
}

/// One query of one head: P = softmax(Q K^T scale), dS = P * (dP - rowsum(dP * P)), dP = dC V^T.
/// `q`, `dq` are its rows; `keys` those of the sample's first key, `stride` apart; V lies
/// `key_width` behind K.
struct Query {
    const float* q;
    const float* keys;
    const float* dcontext;
    float* dq;
    float* dkeys;
    float* context;
    float* log_sum;
    std::size_t count;  ///< of keys that it sees
    std::size_t size;
    std::size_t stride;
    std::size_t key_width;
};

void attend(const Query& query) {
    const double scale = 1 / std::sqrt(static_cast<double>(query.size));
    std::vector<double> p;
    std::vector<double> dp;
    double sum = 0;
    for (std::size_t u = 0; u < query.count; ++u) {
        const float* const k = query.keys + u * query.stride;
        p.push_back(std::exp(dot(query.q, k, query.size) * scale));
        dp.push_back(dot(query.dcontext, k + query.key_width, query.size));
        sum += p.back();
    }
    *query.log_sum = static_cast<float>(std::log(sum));
    double mean = 0;
    for (std::size_t u = 0; u < query.count; ++u) {
        p[u] /= sum;
        mean += p[u] * dp[u];
    }
    for (std::size_t u = 0; u < query.count; ++u) {
        const std::size_t row = u * query.stride;
        const double ds = p[u] * (dp[u] - mean) * scale;
        add(p[u], query.keys + row + query.key_width, query.size, query.context);
        add(ds, query.keys + row, query.size, query.dq);
        add(ds, query.q, query.size, query.dkeys + row);
        add(p[u], query.dcontext, query.size, query.dkeys + row + query.key_width);
    }
}

Attention on_cpu(const AttentionShape& shape,
                 const std::vector<float>& qkv,
                 const std::vector<float>& dcontext) {
    const std::size_t heads = as_index(shape.heads);
    const std::size_t positions = as_index(shape.positions);
    const std::size_t size = as_index(shape.head_size);
    const std::size_t width = heads * size;
    const std::size_t key_width = as_index(shape.key_value_heads) * size;
    const std::size_t stride = width + 2 * key_width;
    Attention result{std::vector<float>(dcontext.size()),
                     std::vector<float>(rows_of(shape) * heads),
                     std::vector<float>(qkv.size())};
    const std::vector<std::int32_t> lengths = lengths_of(shape);
    for (std::size_t row = 0; row < rows_of(shape); ++row) {
        const std::size_t sample = row / positions;
        const std::size_t position = row % positions;
        for (std::size_t h = 0; h < heads; ++h) {
            const std::size_t column = h * size;
            const std::size_t first_key =
                sample * positions * stride + width + h / as_index(shape.group()) * size;
            attend({.q = qkv.data() + row * stride + column,
                    .keys = qkv.data() + first_key,
                    .dcontext = dcontext.data() + row * width + column,
                    .dq = result.dqkv.data() + row * stride + column,
                    .dkeys = result.dqkv.data() + first_key,
                    .context = result.context.data() + row * width + column,
                    .log_sum = result.log_sums.data() + (sample * heads + h) * positions + position,
                    .count = shape.is_causal() ? position + 1 : as_index(lengths[sample]),
                    .size = size,
                    .stride = stride,
                    .key_width = key_width});
        }
    }
    return result;
}

struct Case {
    const char* name;
    Real real;
    int head_size;
    double tolerance;
    int heads = 3;
    int key_value_heads = 3;
    bool padded = false;
};

// The cases in bf16 cover each instance of the tensor cores' kernels and the plain path; heads in
// groups are there in both types.
constexpr std::array cases{Case{"fp32, 64", Real::F32, 64, 1e-5},
                           Case{"fp32, 200", Real::F32, 200, 1e-5},
                           Case{"bf16, 16", Real::BF16, 16, 1e-2},
                           Case{"bf16, 32", Real::BF16, 32, 1e-2},
                           Case{"bf16, 40", Real::BF16, 40, 1e-2},
                           Case{"bf16, 64", Real::BF16, 64, 1e-2},
                           Case{"bf16, 96", Real::BF16, 96, 1e-2},
                           Case{"bf16, 128", Real::BF16, 128, 1e-2},
                           Case{"fp32, 64 in groups of 4", Real::F32, 64, 1e-5, 4, 1},
                           Case{"bf16, 40 in groups of 3", Real::BF16, 40, 1e-2, 3, 1},
                           Case{"bf16, 64 in groups of 2", Real::BF16, 64, 1e-2, 4, 2},
                           Case{"bf16, 128 in groups of 4", Real::BF16, 128, 1e-2, 4, 1},
                           Case{"fp32, 64 with padding", Real::F32, 64, 1e-5, 3, 3, true},
                           Case{"bf16, 40 with padding", Real::BF16, 40, 1e-2, 3, 3, true},
                           Case{"bf16, 64 with padding", Real::BF16, 64, 1e-2, 3, 3, true},
                           Case{"bf16, 128 with padding", Real::BF16, 128, 1e-2, 3, 3, true}};

AttentionShape shape_of(const Case& one) {
    constexpr int positions = 300;
    return {.samples = 2,
            .positions = positions,
            .heads = one.heads,
            .key_value_heads = one.key_value_heads,
            .head_size = one.head_size,
            .padded_keys = one.padded ? positions : 0};
}

void check_case(CudnnAttention& cudnn, const Case& one) {
    const AttentionShape shape = shape_of(one);
    const std::vector<float> qkv = sixteenths(size_of_qkv(shape), 1);
    const std::vector<float> dcontext = sixteenths(size_of_context(shape), 2);
    const Attention found = on_device(cudnn, one.real, shape, qkv, dcontext);
    const Attention again = on_device(cudnn, one.real, shape, qkv, dcontext);
    const Attention expected = on_cpu(shape, qkv, dcontext);
    const std::string name = std::string(" of heads of ") + one.name + " (forward " +
                             cudnn.describe(shape, AttentionDirection::Forward) + ", backward " +
                             cudnn.describe(shape, AttentionDirection::Backward) + "),";
    expect_close(("context" + name).c_str(), found.context, expected.context, one.tolerance);
    expect_close(("log sums" + name).c_str(), found.log_sums, expected.log_sums, 1e-5);
    expect_close(("dqkv" + name).c_str(), found.dqkv, expected.dqkv, one.tolerance);
    if (found.context != again.context || found.dqkv != again.dqkv) {
        throw CudaFailure("two runs" + name + " differ");
    }
}

int compute_capability() {
    int device = 0;
    PIPETWIN_CUDA_CHECK(cudaGetDevice(&device));
    cudaDeviceProp properties{};
    PIPETWIN_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
    return properties.major * 10 + properties.minor;
}

/// Each answer once, in the order of the cases.
std::string answers(CudnnAttention& cudnn, AttentionDirection direction) {
    std::vector<std::string> found;
    for (const Case& one : cases) {
        if (one.real == Real::BF16) {
            found.push_back(cudnn.describe(shape_of(one), direction));
        }
    }
    std::string text;
    for (std::size_t i = 0; i < found.size(); ++i) {
        if (std::find(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(i), found[i]) ==
            found.begin() + static_cast<std::ptrdiff_t>(i)) {
            text += (text.empty() ? "" : " or ") + found[i];
        }
    }
    return text;
}

}  // namespace

std::string check_attention() {
    const int capability = compute_capability();
    CudnnAttention own(load_cudnn(), {.compute_capability = capability, .wanted = false});
    CudnnAttention cudnn(load_cudnn(), {.compute_capability = capability, .wanted = true});
    for (const Case& one : cases) {
        check_case(own, one);
        if (one.real == Real::BF16) {
            check_case(cudnn, one);
        }
    }
    const std::string forward = answers(cudnn, AttentionDirection::Forward);
    const std::string backward = answers(cudnn, AttentionDirection::Backward);
    return "both ways over 300 positions, causal and with padding, fp32 within 1e-5 and bf16 "
           "within 1e-2 of the CPU's; bf16 "
           "runs on " +
           (forward == backward ? forward : forward + ", backward " + backward);
}

}  // namespace pipetwin::cuda

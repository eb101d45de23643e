// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <cmath>
#include <numbers>
#include <optional>
#include <vector>

#include "exec/cuda/device/products.h"
#include "tests/support/cuda_emulation/cuda_bf16.h"
#include "tests/support/cuda_emulation/emulation.h"
#include "tests/support/cuda_emulation/injection.h"

/// In the place of cuBLASLt: plain loops, with sums in fp32.
namespace pipetwin::cuda {
namespace {

float number_at(const void* from, std::int64_t index, Real real) {
    if (real == Real::F32) {
        return static_cast<const float*>(from)[index];
    }
    return __bfloat162float(static_cast<const __nv_bfloat16*>(from)[index]);
}

void put(void* to, std::int64_t index, Real real, float value) {
    if (real == Real::F32) {
        static_cast<float*>(to)[index] = value;
    } else {
        static_cast<__nv_bfloat16*>(to)[index] = __float2bfloat16(value);
    }
}

struct AtGelu {
    float distribution;
    float slope;
};

/// F(x) = (1 + tanh(v)) / 2 and F(x) + x F'(x).
AtGelu at_gelu(float x) {
    const float root = std::sqrt(2 / std::numbers::pi_v<float>);
    const float odd = std::tanh(root * (x + 0.044715F * x * x * x));
    const float distribution = 0.5F * (1 + odd);
    const float density = 0.5F * root * (1 + 3 * 0.044715F * x * x) * (1 - odd * odd);
    return {distribution, distribution + x * density};
}

// As an algorithm would that divides the sums, one that suits so many multiprocessors: what is told
// another number gets other bits.
void multiply_now(const Product& p, const Products::Operands& o, int multiprocessors) {
    const std::int64_t middle = multiprocessors % (p.k + 1);
    for (std::int64_t i = 0; i < p.m; ++i) {
        for (std::int64_t j = 0; j < p.n; ++j) {
            const auto part = [&](std::int64_t begin, std::int64_t end) {
                float sum = 0;
                for (std::int64_t k = begin; k < end; ++k) {
                    sum += number_at(o.a, p.a_transposed ? k * p.m + i : i * p.k + k, p.factors) *
                           number_at(o.b, p.b_transposed ? j * p.k + k : k * p.n + j, p.factors);
                }
                return sum;
            };
            float sum = part(0, middle) + part(middle, p.k);
            sum += p.has_bias ? number_at(o.bias, j, p.result) : 0;
            sum += o.c != nullptr ? number_at(o.c, i * p.n + j, p.result) : 0;
            if (p.epilogue == Product::Epilogue::Gelu) {
                put(o.aux_out, i * p.n + j, p.result, sum);
                sum *= at_gelu(sum).distribution;
            } else if (p.epilogue == Product::Epilogue::GeluGradient) {
                sum *= at_gelu(number_at(o.aux_in, i * p.n + j, p.result)).slope;
            }
            put(o.d, i * p.n + j, p.result, sum);
        }
    }
}

/// Products so far of which a row of a matrix begins between two multiples of 16 bytes.
std::atomic<std::int64_t> odd_products = 0;

bool is_odd(const Product& p) {
    const auto begins_between = [](std::int64_t columns, Real real) {
        return columns * (real == Real::F32 ? 4 : 2) % 16 != 0;
    };
    return begins_between(p.a_transposed ? p.m : p.k, p.factors) ||
           begins_between(p.b_transposed ? p.k : p.n, p.factors) || begins_between(p.n, p.result);
}

}  // namespace

struct Products::Impl {
    int multiprocessors = 0;
    std::vector<Product> known;
};

Products::Products(void* /*workspace*/, int multiprocessors) : impl_(std::make_unique<Impl>()) {
    impl_->multiprocessors = multiprocessors;
}

Products::~Products() = default;

int Products::number_of(const Product& product) {
    const auto found = std::ranges::find(impl_->known, product);
    const auto number = found - impl_->known.begin();
    if (found == impl_->known.end()) {
        impl_->known.push_back(product);
    }
    return static_cast<int>(number);
}

std::optional<int> Products::number_if_known(const Product& product) {
    return number_of(product);
}

cudaError_t Products::multiply(int number, const Operands& operands, cudaStream_t stream) {
    const Product p = impl_->known.at(static_cast<std::size_t>(number));
    odd_products += is_odd(p) ? 1 : 0;
    return emulation::submit(stream, [=, multiprocessors = impl_->multiprocessors] {
        multiply_now(p, operands, multiprocessors);
    });
}

}  // namespace pipetwin::cuda

extern "C" std::int64_t pipetwin_emulated_odd_products() {
    return pipetwin::cuda::odd_products;
}

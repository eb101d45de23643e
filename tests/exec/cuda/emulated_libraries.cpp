#include <algorithm>
#include <vector>

#include "exec/cuda/check.h"
#include "exec/cuda/green_context.h"
#include "exec/cuda/products.h"
#include "exec/cuda/self_test.h"
#include "tests/support/cuda_emulation/cuda_bf16.h"
#include "tests/support/cuda_emulation/emulation.h"

/// For a test that has loaded the module.
extern "C" std::int64_t pipetwin_emulated_graph_launches() {
    return pipetwin::cuda::emulation::counts().graph_launches;
}

/// In the place of what exec/cuda has of cuBLAS, NCCL and the driver.
namespace pipetwin::cuda {

PipetwinCudaVersions library_versions() {
    return {.runtime = 13000, .driver = 13000, .cublas = 0, .nccl = 0};
}

std::string check_buffer() {
    return "emulated";
}
std::string check_kernel() {
    return "emulated";
}
std::string check_product() {
    return "emulated";
}
std::string check_loopback() {
    return "emulated";
}

// Green contexts: a stream each, 16 units of multiprocessors.

std::vector<std::unique_ptr<GreenContext>> cut_device(int /*device*/, std::span<const int> parts) {
    std::vector<std::unique_ptr<GreenContext>> contexts;
    for (const int share : parts) {
        std::unique_ptr<GreenContext> part(new GreenContext);
        PIPETWIN_CUDA_CHECK(cudaStreamCreateWithFlags(&part->stream_, cudaStreamNonBlocking));
        part->multiprocessors_ = share * multiprocessors_of_a_unit;
        contexts.push_back(std::move(part));
    }
    return contexts;
}

int units_of_device(int /*device*/) {
    return 16;
}

void GreenContext::enter() const {}

GreenContext::~GreenContext() {
    static_cast<void>(cudaStreamDestroy(stream_));
}

// Products: plain loops, with sums in fp32.

struct Products::Impl {
    std::vector<Product> known;
};

Products::Products(void* /*workspace*/, int /*multiprocessors*/)
    : impl_(std::make_unique<Impl>()) {}

Products::~Products() = default;

int Products::number_of(const Product& product) {
    const auto found = std::ranges::find(impl_->known, product);
    const auto number = found - impl_->known.begin();
    if (found == impl_->known.end()) {
        impl_->known.push_back(product);
    }
    return static_cast<int>(number);
}

namespace {

float number(const void* from, std::int64_t index, Real real) {
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

}  // namespace

cudaError_t Products::multiply(int number_of_product,
                               const void* a,
                               const void* b,
                               const void* c,
                               const void* bias,
                               void* d,
                               cudaStream_t stream) {
    const Product p = impl_->known.at(static_cast<std::size_t>(number_of_product));
    return emulation::submit(stream, [=] {
        for (std::int64_t i = 0; i < p.m; ++i) {
            for (std::int64_t j = 0; j < p.n; ++j) {
                float sum = 0;
                for (std::int64_t k = 0; k < p.k; ++k) {
                    sum += number(a, p.a_transposed ? k * p.m + i : i * p.k + k, p.factors) *
                           number(b, p.b_transposed ? j * p.k + k : k * p.n + j, p.factors);
                }
                sum += p.has_bias ? number(bias, j, p.factors) : 0;
                sum += p.adds ? number(c, i * p.n + j, p.result) : 0;
                put(d, i * p.n + j, p.result, sum);
            }
        }
    });
}

}  // namespace pipetwin::cuda

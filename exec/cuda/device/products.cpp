// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/device/products.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/as_index.h"
#include "exec/cuda/runtime/check_libraries.h"

namespace pipetwin::cuda {
namespace {

cudaDataType_t type_of(Real real) {
    return real == Real::BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/// cuBLAS counts by columns: a row-major (rows, columns) matrix is its column-major (columns, rows)
/// one. So it is asked for d^T = b^T a^T, and the matrices change places.
MatrixLayout row_major(Real real, std::int64_t rows, std::int64_t columns) {
    cublasLtMatrixLayout_t layout = nullptr;
    PIPETWIN_CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&layout,
                                                     type_of(real),
                                                     static_cast<std::uint64_t>(columns),
                                                     static_cast<std::uint64_t>(rows),
                                                     columns));
    return MatrixLayout(layout);
}

template <class Value>
void set(const MatmulDesc& operation, cublasLtMatmulDescAttributes_t attribute, Value value) {
    PIPETWIN_CUBLAS_CHECK(
        cublasLtMatmulDescSetAttribute(operation.get(), attribute, &value, sizeof(value)));
}

cublasLtEpilogue_t epilogue_of(const Product& product) {
    switch (product.epilogue) {
        case Product::Epilogue::Gelu:
            return product.has_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
        case Product::Epilogue::GeluGradient:
            return CUBLASLT_EPILOGUE_DGELU;
        case Product::Epilogue::None:
            break;
    }
    return product.has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

MatmulDesc make_operation(const Product& product, int multiprocessors) {
    cublasLtMatmulDesc_t made = nullptr;
    PIPETWIN_CUBLAS_CHECK(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    MatmulDesc operation(made);
    const auto transposed = [](bool yes) { return yes ? CUBLAS_OP_T : CUBLAS_OP_N; };
    set(operation, CUBLASLT_MATMUL_DESC_TRANSA, transposed(product.b_transposed));
    set(operation, CUBLASLT_MATMUL_DESC_TRANSB, transposed(product.a_transposed));
    set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(product));
    if (product.epilogue != Product::Epilogue::None) {
        set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{product.n});
    }
    if (product.has_bias) {
        set(operation,
            CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
            static_cast<std::int32_t>(type_of(product.result)));
    }
    // Said even though it is the default: cuBLASLt may take the part of a device that is current.
    set(operation,
        CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET,
        static_cast<std::int32_t>(multiprocessors));
    return operation;
}

template <class Value>
void set(const MatmulPreference& preference,
         cublasLtMatmulPreferenceAttributes_t attribute,
         Value value) {
    PIPETWIN_CUBLAS_CHECK(
        cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)));
}

/// Conditions on the algorithms that may be chosen. Sums in parts are allowed, or the gradient of a
/// small weight would keep most of the device idle; but not parts in the result's type, half
/// precision perhaps.
MatmulPreference make_preference(std::size_t workspace_bytes) {
    cublasLtMatmulPreference_t made = nullptr;
    PIPETWIN_CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&made));
    MatmulPreference preference(made);
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
    set(preference,
        CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE |
                                   CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    for (const auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                 CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                 CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                 CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
        set(preference, attribute, static_cast<std::uint32_t>(Products::operand_alignment));
    }
    return preference;
}

std::string text_of(const Product& product) {
    return "a product of (" + std::to_string(product.m) + ", " + std::to_string(product.k) +
           ") and (" + std::to_string(product.k) + ", " + std::to_string(product.n) + ")";
}

}  // namespace

struct Products::Impl {
    struct Known {
        Product product;
        MatmulDesc operation;
        MatrixLayout a;
        MatrixLayout b;
        MatrixLayout d;
        cublasLtMatmulAlgo_t algorithm;
    };

    Known describe(const Product& product) const;
    std::vector<cublasLtMatmulAlgo_t> algorithms_for(const Known& wanted) const;
    std::optional<int> find(const Product& product) const;
    int add(Known made, const cublasLtMatmulAlgo_t& algorithm);

    CublasHandle handle;
    void* workspace = nullptr;
    int multiprocessors = 0;
    std::vector<Known> known;
    std::vector<Product> unknown;  ///< that `number_if_known` has asked for in vain
};

Products::Impl::Known Products::Impl::describe(const Product& product) const {
    const auto matrix = [&](bool transposed, std::int64_t rows, std::int64_t columns) {
        return transposed ? row_major(product.factors, columns, rows)
                          : row_major(product.factors, rows, columns);
    };
    Known made{.product = product,
               .operation = make_operation(product, multiprocessors),
               .a = matrix(product.a_transposed, product.m, product.k),
               .b = matrix(product.b_transposed, product.k, product.n),
               .d = row_major(product.result, product.m, product.n),
               .algorithm = {}};
    if (product.has_bias) {  // the heuristic reads its alignment only
        set(made.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, workspace);
    }
    if (product.epilogue != Product::Epilogue::None) {
        set(made.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, workspace);
    }
    return made;
}

/// Best first.
std::vector<cublasLtMatmulAlgo_t> Products::Impl::algorithms_for(const Known& wanted) const {
    const MatmulPreference preference = make_preference(workspace == nullptr ? 0 : workspace_bytes);
    std::array<cublasLtMatmulHeuristicResult_t, 8> found{};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle.get(),
                                                                 wanted.operation.get(),
                                                                 wanted.b.get(),
                                                                 wanted.a.get(),
                                                                 wanted.d.get(),
                                                                 wanted.d.get(),
                                                                 preference.get(),
                                                                 static_cast<int>(found.size()),
                                                                 found.data(),
                                                                 &count);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) {
        check_cublas("cublasLtMatmulAlgoGetHeuristic", status);
    }
    std::vector<cublasLtMatmulAlgo_t> algorithms(as_index(count));
    std::transform(found.begin(),
                   found.begin() + count,
                   algorithms.begin(),
                   [](const cublasLtMatmulHeuristicResult_t& result) { return result.algo; });
    return algorithms;
}

std::optional<int> Products::Impl::find(const Product& product) const {
    const auto found = std::ranges::find(known, product, &Known::product);
    return found == known.end() ? std::nullopt
                                : std::optional(static_cast<int>(found - known.begin()));
}

int Products::Impl::add(Known made, const cublasLtMatmulAlgo_t& algorithm) {
    made.algorithm = algorithm;
    known.push_back(std::move(made));
    return static_cast<int>(known.size()) - 1;
}

Products::Products(void* workspace, int multiprocessors) : impl_(std::make_unique<Impl>()) {
    cublasLtHandle_t handle = nullptr;
    PIPETWIN_CUBLAS_CHECK(cublasLtCreate(&handle));
    impl_->handle.reset(handle);
    impl_->workspace = workspace;
    impl_->multiprocessors = multiprocessors;
}

Products::~Products() = default;

int Products::number_of(const Product& product) {
    if (const std::optional<int> number = impl_->find(product)) {
        return *number;
    }
    Impl::Known made = impl_->describe(product);
    const std::vector<cublasLtMatmulAlgo_t> algorithms = impl_->algorithms_for(made);
    if (algorithms.empty()) {
        throw CudaFailure("cublasLtMatmulAlgoGetHeuristic knows no way to " + text_of(product));
    }
    return impl_->add(std::move(made), algorithms.front());
}

std::optional<int> Products::number_if_known(const Product& product) {
    if (std::ranges::find(impl_->unknown, product) != impl_->unknown.end()) {
        return std::nullopt;
    }
    try {
        return number_of(product);
    } catch (const CudaFailure&) {
        impl_->unknown.push_back(product);
        return std::nullopt;
    }
}

cudaError_t Products::multiply(int number, const Operands& operands, cudaStream_t stream) {
    const Impl::Known& known = impl_->known.at(as_index(number));
    if (known.product.has_bias) {
        set(known.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
    }
    if (known.product.epilogue != Product::Epilogue::None) {
        set(known.operation,
            CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
            known.product.epilogue == Product::Epilogue::Gelu ? operands.aux_out : operands.aux_in);
    }
    const float one = 1;
    const float beta = operands.c != nullptr ? 1 : 0;
    PIPETWIN_CUBLAS_CHECK(cublasLtMatmul(impl_->handle.get(),
                                         known.operation.get(),
                                         &one,
                                         operands.b,
                                         known.b.get(),
                                         operands.a,
                                         known.a.get(),
                                         &beta,
                                         operands.c != nullptr ? operands.c : operands.d,
                                         known.d.get(),
                                         operands.d,
                                         known.d.get(),
                                         &known.algorithm,
                                         impl_->workspace,
                                         impl_->workspace == nullptr ? 0 : workspace_bytes,
                                         stream));
    return cudaSuccess;
}

}  // namespace pipetwin::cuda

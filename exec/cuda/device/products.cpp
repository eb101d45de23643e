#include "exec/cuda/device/products.h"

#include <algorithm>
#include <array>
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

/// The sum of b's rows, for d = a b. cuBLAS multiplies b^T a^T, so b is its A, of op N since b is
/// not transposed here, and its "k" counts b's rows; BGRADA sums op(A) over k, one number for each
/// row of D, a column of b. It overwrites. Bias and sum have D's type.
cublasLtEpilogue_t epilogue_of(const Product& product) {
    return product.sums_b     ? CUBLASLT_EPILOGUE_BGRADA
           : product.has_bias ? CUBLASLT_EPILOGUE_BIAS
                              : CUBLASLT_EPILOGUE_DEFAULT;
}

bool has_row(const Product& product) {
    return product.has_bias || product.sums_b;
}

MatmulDesc make_operation(const Product& product, int multiprocessors) {
    cublasLtMatmulDesc_t made = nullptr;
    PIPETWIN_CUBLAS_CHECK(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    MatmulDesc operation(made);
    const auto transposed = [](bool yes) { return yes ? CUBLAS_OP_T : CUBLAS_OP_N; };
    set(operation, CUBLASLT_MATMUL_DESC_TRANSA, transposed(product.b_transposed));
    set(operation, CUBLASLT_MATMUL_DESC_TRANSB, transposed(product.a_transposed));
    set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(product));
    if (has_row(product)) {
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

/// Which of cuBLASLt's families of kernels an algorithm belongs to.
std::int32_t family_of(const cublasLtMatmulAlgo_t& algorithm) {
    std::int32_t id = 0;
    std::size_t written = 0;
    PIPETWIN_CUBLAS_CHECK(cublasLtMatmulAlgoConfigGetAttribute(
        &algorithm, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof(id), &written));
    return id;
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
    std::vector<Product> unknown;  ///< that sum, with no way of their own
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
    if (has_row(product)) {  // the heuristic reads its alignment only
        set(made.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, workspace);
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

std::optional<int> Products::number_of_summing(const Product& product) {
    if (const std::optional<int> number = impl_->find(product)) {
        return number;
    }
    if (std::ranges::find(impl_->unknown, product) != impl_->unknown.end()) {
        return std::nullopt;
    }
    Product alone = product;
    alone.sums_b = false;
    const std::int32_t family = family_of(impl_->known[as_index(number_of(alone))].algorithm);
    Impl::Known made = impl_->describe(product);
    const std::vector<cublasLtMatmulAlgo_t> algorithms = impl_->algorithms_for(made);
    const auto chosen = std::ranges::find(algorithms, family, family_of);
    if (chosen == algorithms.end()) {
        impl_->unknown.push_back(product);
        return std::nullopt;
    }
    return impl_->add(std::move(made), *chosen);
}

cudaError_t Products::multiply(int number, const Operands& operands, cudaStream_t stream) {
    const Impl::Known& known = impl_->known.at(as_index(number));
    if (known.product.has_bias) {
        set(known.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
    } else if (known.product.sums_b) {
        set(known.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.sums);
    }
    const float one = 1;
    const float beta = known.product.adds ? 1 : 0;
    PIPETWIN_CUBLAS_CHECK(cublasLtMatmul(impl_->handle.get(),
                                         known.operation.get(),
                                         &one,
                                         operands.b,
                                         known.b.get(),
                                         operands.a,
                                         known.a.get(),
                                         &beta,
                                         known.product.adds ? operands.c : operands.d,
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

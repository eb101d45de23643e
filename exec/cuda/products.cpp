#include "exec/cuda/products.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "exec/cuda/check_libraries.h"

namespace pipetwin::cuda {
namespace {

cudaDataType_t type_of(Real real) {
    return real == Real::BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/// cuBLAS counts by columns: a row-major (rows, columns) matrix is its column-major (columns, rows)
/// one. So it is told to compute d^T = b^T a^T, and the matrices change places.
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

MatmulDesc make_operation(const Product& product, int multiprocessors) {
    cublasLtMatmulDesc_t made = nullptr;
    PIPETWIN_CUBLAS_CHECK(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    MatmulDesc operation(made);
    const auto transposed = [](bool yes) { return yes ? CUBLAS_OP_T : CUBLAS_OP_N; };
    set(operation, CUBLASLT_MATMUL_DESC_TRANSA, transposed(product.b_transposed));
    set(operation, CUBLASLT_MATMUL_DESC_TRANSB, transposed(product.a_transposed));
    if (product.has_bias) {
        set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
        set(operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(product.factors));
    }
    if (multiprocessors > 0) {
        set(operation,
            CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET,
            static_cast<std::int32_t>(multiprocessors));
    }
    return operation;
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

    cublasLtMatmulAlgo_t find_algorithm(const Known& known) const;

    CublasHandle handle;
    void* workspace = nullptr;
    int multiprocessors = 0;
    std::vector<Known> known;
};

cublasLtMatmulAlgo_t Products::Impl::find_algorithm(const Known& wanted) const {
    cublasLtMatmulPreference_t made = nullptr;
    PIPETWIN_CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&made));
    const MatmulPreference preference(made);
    const std::size_t room = workspace == nullptr ? 0 : workspace_bytes;
    PIPETWIN_CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(
        made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof(room)));
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    PIPETWIN_CUBLAS_CHECK(cublasLtMatmulAlgoGetHeuristic(handle.get(),
                                                         wanted.operation.get(),
                                                         wanted.b.get(),
                                                         wanted.a.get(),
                                                         wanted.d.get(),
                                                         wanted.d.get(),
                                                         made,
                                                         1,
                                                         &found,
                                                         &count));
    if (count == 0) {
        throw CudaFailure("cublasLtMatmulAlgoGetHeuristic knows no way to " +
                          text_of(wanted.product));
    }
    return found.algo;
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
    std::vector<Impl::Known>& known = impl_->known;
    const auto found = std::ranges::find(known, product, &Impl::Known::product);
    if (found != known.end()) {
        return static_cast<int>(found - known.begin());
    }
    const auto matrix = [&](bool transposed, std::int64_t rows, std::int64_t columns) {
        return transposed ? row_major(product.factors, columns, rows)
                          : row_major(product.factors, rows, columns);
    };
    Impl::Known made{.product = product,
                     .operation = make_operation(product, impl_->multiprocessors),
                     .a = matrix(product.a_transposed, product.m, product.k),
                     .b = matrix(product.b_transposed, product.k, product.n),
                     .d = row_major(product.result, product.m, product.n),
                     .algorithm = {}};
    made.algorithm = impl_->find_algorithm(made);
    known.push_back(std::move(made));
    return static_cast<int>(known.size()) - 1;
}

cudaError_t Products::multiply(int number,
                               const void* a,
                               const void* b,
                               const void* c,
                               const void* bias,
                               void* d,
                               cudaStream_t stream) {
    const Impl::Known& known = impl_->known.at(static_cast<std::size_t>(number));
    if (known.product.has_bias) {
        set(known.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    }
    const float one = 1;
    const float beta = known.product.adds ? 1 : 0;
    PIPETWIN_CUBLAS_CHECK(cublasLtMatmul(impl_->handle.get(),
                                         known.operation.get(),
                                         &one,
                                         b,
                                         known.b.get(),
                                         a,
                                         known.a.get(),
                                         &beta,
                                         c == nullptr ? d : c,
                                         known.d.get(),
                                         d,
                                         known.d.get(),
                                         &known.algorithm,
                                         impl_->workspace,
                                         impl_->workspace == nullptr ? 0 : workspace_bytes,
                                         stream));
    return cudaSuccess;
}

}  // namespace pipetwin::cuda

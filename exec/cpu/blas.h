#pragma once

#include <cblas.h>

#include <cstdint>
#include <type_traits>

/// Matrix products: C = alpha op(A) op(B) + beta C, row-major, one name for both precisions.
namespace pipetwin::exec {

enum class Transposed { No, Yes };

/// A matrix inside a larger one: `stride` elements from row to row.
template <class T>
struct Block {
    T* data = nullptr;
    std::int64_t stride = 0;
};

/// op(A) is (m, k), op(B) is (k, n), C is (m, n).
struct ProductShape {
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
    Transposed a = Transposed::No;
    Transposed b = Transposed::No;
};

inline CBLAS_TRANSPOSE cblas(Transposed t) {
    return t == Transposed::Yes ? CblasTrans : CblasNoTrans;
}

/// Of floats or doubles.
template <class T>
void product(const ProductShape& s,
             std::type_identity_t<T> alpha,
             Block<const T> a,
             Block<const T> b,
             std::type_identity_t<T> beta,
             Block<T> c) {
    const auto i = [](std::int64_t n) { return static_cast<blasint>(n); };
    const auto gemm = [&](auto of_this_type) {
        of_this_type(CblasRowMajor,
                     cblas(s.a),
                     cblas(s.b),
                     i(s.m),
                     i(s.n),
                     i(s.k),
                     alpha,
                     a.data,
                     i(a.stride),
                     b.data,
                     i(b.stride),
                     beta,
                     c.data,
                     i(c.stride));
    };
    if constexpr (std::is_same_v<T, float>) {
        gemm(cblas_sgemm);
    } else {
        gemm(cblas_dgemm);
    }
}

}  // namespace pipetwin::exec

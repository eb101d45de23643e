#pragma once

#include <cblas.h>

#include <cstdint>

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

inline void product(const ProductShape& s,
                    float alpha,
                    Block<const float> a,
                    Block<const float> b,
                    float beta,
                    Block<float> c) {
    const auto i = [](std::int64_t n) { return static_cast<blasint>(n); };
    cblas_sgemm(CblasRowMajor,
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
}

inline void product(const ProductShape& s,
                    double alpha,
                    Block<const double> a,
                    Block<const double> b,
                    double beta,
                    Block<double> c) {
    const auto i = [](std::int64_t n) { return static_cast<blasint>(n); };
    cblas_dgemm(CblasRowMajor,
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
}

}  // namespace pipetwin::exec

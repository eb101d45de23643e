// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/cudnn/cudnn_graph.h"

#include <optional>

namespace pipetwin::cuda {
namespace {

using Extents = std::array<std::int64_t, 4>;  ///< samples, heads, rows, columns

struct Tensor {
    cudnnBackendDescriptor_t descriptor;
    Extents sizes;
    Extents strides;
};

struct Layout {
    Extents sizes;
    Extents strides;
};

Layout packed(const Extents& sizes) {
    const std::int64_t matrix = sizes[2] * sizes[3];
    return {sizes, {sizes[1] * matrix, matrix, sizes[3], 1}};
}

Layout transposed(const Layout& of) {
    return {{of.sizes[0], of.sizes[1], of.sizes[3], of.sizes[2]},
            {of.strides[0], of.strides[1], of.strides[3], of.strides[2]}};
}

Layout layout_of(const Tensor& tensor) {
    return {tensor.sizes, tensor.strides};
}

/// Lengths of each sample that a product takes in the place of its matrices' sizes; null: none.
struct ProductLengths {
    const Tensor* rows = nullptr;
    const Tensor* columns = nullptr;
    const Tensor* inner = nullptr;
    bool zero_outside = false;  ///< the result is 0 there
};

/// Makes tensors and operations, one call for each node of a graph.
class Builder {
  public:
    explicit Builder(const CudnnFunctions& cudnn) : cudnn_(cudnn) {}

    /// In memory.
    Tensor kept(AttentionTensor name, cudnnDataType_t type, const Layout& layout) {
        return tensor({.name = static_cast<std::int64_t>(name), .type = type}, layout);
    }
    /// An fp32 number that the host passes.
    Tensor number(AttentionTensor name) {
        return tensor({.name = static_cast<std::int64_t>(name), .by_value = true},
                      packed({1, 1, 1, 1}));
    }
    /// What only the engine sees.
    Tensor inner(const Layout& layout, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
        return tensor({.name = next_name_++, .type = type, .is_virtual = true}, layout);
    }

    /// to = a b, of which `lengths` say how much is no padding
    Tensor multiply(const Tensor& a,
                    const Tensor& b,
                    const Tensor& to,
                    const ProductLengths& lengths = {}) {
        CudnnDescriptor& kind = add(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
        kind.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
        if (lengths.zero_outside) {
            kind.set(CUDNN_ATTR_MATMUL_PADDING_VALUE, 0.0);
        }
        kind.finalize();
        CudnnDescriptor& operation = add(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
        const auto set_length = [&](cudnnBackendAttributeName_t name, const Tensor* length) {
            if (length != nullptr) {
                operation.set(name, length->descriptor);
            }
        };
        set_length(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, lengths.rows);
        set_length(CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, lengths.columns);
        set_length(CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, lengths.inner);
        operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
        operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.descriptor);
        operation.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.descriptor);
        operation.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, to.descriptor);
        finish(operation);
        return to;
    }

    /// to = f(x) or f(x, y), element by element
    Tensor pointwise(cudnnPointwiseMode_t f, const Tensor& x, const Tensor& to) {
        finish(pointwise_operation(f, CUDNN_DATA_FLOAT, x, to));
        return to;
    }
    Tensor pointwise(cudnnPointwiseMode_t f, const Tensor& x, const Tensor& y, const Tensor& to) {
        CudnnDescriptor& operation = pointwise_operation(f, CUDNN_DATA_FLOAT, x, to);
        operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, y.descriptor);
        finish(operation);
        return to;
    }

    /// Elements in columns beyond their row become `hidden`.
    Tensor causal(const Tensor& x, const Tensor& hidden) {
        const Tensor row = index_along(2, x);
        const Tensor column = index_along(3, x);
        return select(x, hidden, truth(CUDNN_POINTWISE_CMP_GE, row, column, x));
    }

    /// Elements in rows or columns beyond the lengths of their sample become `hidden`.
    Tensor padded(const Tensor& x,
                  const Tensor& hidden,
                  const Tensor& row_lengths,
                  const Tensor& column_lengths) {
        const Tensor row = index_along(2, x);
        const Tensor column = index_along(3, x);
        const Tensor in_row = truth(CUDNN_POINTWISE_CMP_LT, row, row_lengths, x);
        const Tensor in_column = truth(CUDNN_POINTWISE_CMP_LT, column, column_lengths, x);
        return select(x, hidden, truth(CUDNN_POINTWISE_LOGICAL_AND, in_row, in_column, x));
    }

    /// Along a row.
    Tensor reduce(cudnnReduceTensorOp_t f, const Tensor& x) {
        return reduce(f, x, inner(packed({x.sizes[0], x.sizes[1], x.sizes[2], 1})));
    }
    /// Along what `to` has fewer of: columns, or heads, neighbours together.
    Tensor reduce(cudnnReduceTensorOp_t f, const Tensor& x, const Tensor& to) {
        CudnnDescriptor& kind = add(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
        kind.set(CUDNN_ATTR_REDUCTION_OPERATOR, f);
        kind.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
        kind.finalize();
        CudnnDescriptor& operation = add(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
        operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
        operation.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.descriptor);
        operation.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, to.descriptor);
        finish(operation);
        return to;
    }

    Tensor transpose(const Tensor& x) {
        const Tensor to = inner(transposed(layout_of(x)), CUDNN_DATA_BFLOAT16);
        CudnnDescriptor& operation = add(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
        operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.descriptor);
        operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, to.descriptor);
        finish(operation);
        return to;
    }

    CudnnGraph take(cudnnHandle_t handle) {
        CudnnDescriptor graph = graph_descriptor(cudnn_, handle, operations_);
        return {std::move(parts_), std::move(graph)};
    }

  private:
    struct TensorKind {
        std::int64_t name;
        cudnnDataType_t type = CUDNN_DATA_FLOAT;
        bool is_virtual = false;
        bool by_value = false;
    };

    CudnnDescriptor& add(cudnnBackendDescriptorType_t type) {
        return parts_.emplace_back(cudnn_, type);
    }

    void finish(CudnnDescriptor& operation) {
        operation.finalize();
        operations_.push_back(operation.get());
    }

    Tensor tensor(const TensorKind& kind, const Layout& layout) {
        parts_.push_back(tensor_descriptor(cudnn_,
                                           {.name = kind.name,
                                            .type = kind.type,
                                            .sizes = layout.sizes,
                                            .strides = layout.strides,
                                            .is_virtual = kind.is_virtual,
                                            .by_value = kind.by_value}));
        return {parts_.back().get(), layout.sizes, layout.strides};
    }

    /// `axis` -1: the function has none.
    CudnnDescriptor& pointwise_operation(cudnnPointwiseMode_t f,
                                         cudnnDataType_t computed_in,
                                         const Tensor& x,
                                         const Tensor& to,
                                         std::int64_t axis = -1) {
        CudnnDescriptor& kind = add(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
        kind.set(CUDNN_ATTR_POINTWISE_MODE, f);
        kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, computed_in);
        if (axis >= 0) {
            kind.set(CUDNN_ATTR_POINTWISE_AXIS, axis);
        }
        kind.finalize();
        CudnnDescriptor& operation = add(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
        operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
        operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.descriptor);
        operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to.descriptor);
        return operation;
    }

    Tensor index_along(std::int64_t axis, const Tensor& of) {
        const Tensor to = inner(layout_of(of), CUDNN_DATA_INT32);
        finish(pointwise_operation(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, of, to, axis));
        return to;
    }

    /// f(x, y), true or false, for each element of `like`.
    Tensor truth(cudnnPointwiseMode_t f, const Tensor& x, const Tensor& y, const Tensor& like) {
        const Tensor to = inner(layout_of(like), CUDNN_DATA_BOOLEAN);
        CudnnDescriptor& operation = pointwise_operation(f, CUDNN_DATA_BOOLEAN, x, to);
        operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, y.descriptor);
        finish(operation);
        return to;
    }

    /// x where `shown`, else `hidden`.
    Tensor select(const Tensor& x, const Tensor& hidden, const Tensor& shown) {
        const Tensor to = inner(layout_of(x));
        CudnnDescriptor& operation =
            pointwise_operation(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, x, to);
        operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, hidden.descriptor);
        operation.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, shown.descriptor);
        finish(operation);
        return to;
    }

    const CudnnFunctions& cudnn_;
    std::deque<CudnnDescriptor> parts_;
    std::vector<cudnnBackendDescriptor_t> operations_;
    std::int64_t next_name_ = 100;
};

/// Shapes and strides of the tensors of attention, (samples, heads, positions, size of a head).
struct Layouts {
    Layout queries;
    Layout dqueries;
    Layout keys;              ///< K or V
    Layout dkeys;             ///< their gradients
    Layout keys_of_heads;     ///< what each head of a group gives to a gradient of K or V
    Layout heads_of_context;  ///< the context or its gradient
    Layout row_numbers;       ///< the log sums, or the dots of the rows
    Layout scores;
    Layout lengths;  ///< a number for each sample
    bool causal;
};

Layouts layouts_of(const AttentionProblem& problem) {
    const AttentionShape& shape = problem.shape;
    const std::int64_t size = shape.head_size;
    const std::int64_t queries = shape.positions;
    const std::int64_t keys = shape.key_positions();
    Layout row_numbers = packed({shape.samples, shape.heads, queries, 1});
    row_numbers.strides[0] = problem.whole.heads * queries;
    const auto rows_apart = [&](std::int64_t heads, std::int64_t positions, std::int64_t stride) {
        return Layout{{shape.samples, heads, positions, size},
                      {positions * stride, size, stride, 1}};
    };
    return {.queries = rows_apart(shape.heads, queries, problem.q_stride),
            .dqueries = rows_apart(shape.heads, queries, problem.dq_stride),
            .keys = rows_apart(shape.key_value_heads, keys, problem.k_stride),
            .dkeys = rows_apart(shape.key_value_heads, keys, problem.dk_stride),
            .keys_of_heads = packed({shape.samples, shape.heads, keys, size}),
            .heads_of_context = rows_apart(shape.heads, queries, problem.whole.query_width()),
            .row_numbers = row_numbers,
            .scores = packed({shape.samples, shape.heads, queries, keys}),
            .lengths = packed({shape.samples, 1, 1, 1}),
            .causal = shape.is_causal()};
}

constexpr cudnnDataType_t bf16 = CUDNN_DATA_BFLOAT16;
constexpr cudnnDataType_t fp32 = CUDNN_DATA_FLOAT;

/// The mask of an attention, and the lengths of the samples where it has some.
class Mask {
  public:
    Mask(Builder& graph, const Layouts& at) : graph_(graph) {
        if (!at.causal) {
            const auto type = CUDNN_DATA_INT32;
            queries_ = graph.kept(AttentionTensor::QueryLengths, type, at.lengths);
            keys_ = graph.kept(AttentionTensor::KeyLengths, type, at.lengths);
        }
        hidden_ = graph.number(AttentionTensor::MinusInfinity);
    }

    bool causal() const { return !keys_; }
    Tensor apply(const Tensor& scores) {
        return causal() ? graph_.causal(scores, *hidden_)
                        : graph_.padded(scores, *hidden_, *queries_, *keys_);
    }
    /// Lengths of products that make scores, context or dQ, and dK or dV.
    ProductLengths of_scores() const { return {.rows = queries(), .columns = keys()}; }
    ProductLengths of_queries() const { return {.rows = queries(), .inner = keys()}; }
    ProductLengths of_keys() const { return {.rows = keys(), .inner = queries()}; }

  private:
    const Tensor* queries() const { return queries_ ? &*queries_ : nullptr; }
    const Tensor* keys() const { return keys_ ? &*keys_ : nullptr; }

    Builder& graph_;
    std::optional<Tensor> queries_;
    std::optional<Tensor> keys_;
    std::optional<Tensor> hidden_;
};

// S = Q K^T scale, masked;  L = max S + log(sum exp(S - max S));  context = exp(S - max S) / sum V
void add_forward(Builder& graph, const Layouts& at) {
    using enum AttentionTensor;
    Mask mask(graph, at);
    const Tensor q = graph.kept(Q, bf16, at.queries);
    const Tensor k = graph.kept(K, bf16, transposed(at.keys));
    const Tensor v = graph.kept(V, bf16, at.keys);
    ProductLengths lengths = mask.of_scores();
    lengths.zero_outside = !mask.causal();
    const Tensor raw = graph.multiply(q, k, graph.inner(at.scores), lengths);
    const Tensor scaled =
        graph.pointwise(CUDNN_POINTWISE_MUL, raw, graph.number(Scale), graph.inner(at.scores));
    const Tensor scores = mask.apply(scaled);

    const Tensor largest = graph.reduce(CUDNN_REDUCE_TENSOR_MAX, scores);
    const Tensor shifted =
        graph.pointwise(CUDNN_POINTWISE_SUB, scores, largest, graph.inner(at.scores));
    const Tensor exponentials =
        graph.pointwise(CUDNN_POINTWISE_EXP, shifted, graph.inner(at.scores));
    const Tensor sum = graph.reduce(CUDNN_REDUCE_TENSOR_ADD, exponentials);
    const Tensor log_of_sum =
        graph.pointwise(CUDNN_POINTWISE_LOG, sum, graph.inner(at.row_numbers));
    graph.pointwise(
        CUDNN_POINTWISE_ADD, largest, log_of_sum, graph.kept(LogSums, fp32, at.row_numbers));
    const Tensor p =
        graph.pointwise(CUDNN_POINTWISE_DIV, exponentials, sum, graph.inner(at.scores, bf16));
    graph.multiply(p, v, graph.kept(Context, bf16, at.heads_of_context), mask.of_queries());
}

/// The gradient of K or V = a b, summed over the heads of a group.
void add_key_gradient(Builder& graph,
                      const Layouts& at,
                      const Mask& mask,
                      const Tensor& a,
                      const Tensor& b,
                      AttentionTensor name) {
    if (at.keys.sizes[1] == at.queries.sizes[1]) {
        graph.multiply(a, b, graph.kept(name, bf16, at.dkeys), mask.of_keys());
        return;
    }
    const Tensor of_heads =
        graph.multiply(a, b, graph.inner(at.keys_of_heads, bf16), mask.of_keys());
    graph.reduce(CUDNN_REDUCE_TENSOR_ADD, of_heads, graph.kept(name, bf16, at.dkeys));
}

// D = rowsum(dC * C);  P = exp(S - L);  dV = P^T dC;  dS = (dC V^T - D) * P scale;  dK = dS^T Q,
// dQ = dS K. That dQ is written by its product, and not summed up in memory, is what makes engines
// add in one order: they keep dS in their workspace for it, 2 bytes for each pair of positions.
// Engines want the causal mask behind the log sums, and that of padding before them.
void add_backward(Builder& graph, const Layouts& at) {
    using enum AttentionTensor;
    Mask mask(graph, at);
    const Tensor q = graph.kept(Q, bf16, at.queries);
    const Tensor k = graph.kept(K, bf16, transposed(at.keys));
    const Tensor v = graph.kept(V, bf16, transposed(at.keys));
    const Tensor context = graph.kept(Context, bf16, at.heads_of_context);
    const Tensor dcontext = graph.kept(DContext, bf16, at.heads_of_context);
    const Tensor scale = graph.number(Scale);

    const Tensor products =
        graph.pointwise(CUDNN_POINTWISE_MUL, dcontext, context, graph.inner(packed(context.sizes)));
    const Tensor dots = graph.reduce(CUDNN_REDUCE_TENSOR_ADD, products);
    const Tensor row_dots = graph.pointwise(
        CUDNN_POINTWISE_MUL, dots, graph.number(One), graph.kept(RowDots, fp32, at.row_numbers));

    const Tensor log_sums = graph.kept(LogSums, fp32, at.row_numbers);
    const auto without_log_sums = [&](const Tensor& scores) {
        return graph.pointwise(CUDNN_POINTWISE_SUB, scores, log_sums, graph.inner(at.scores));
    };
    const Tensor raw = graph.multiply(q, k, graph.inner(at.scores), mask.of_scores());
    const Tensor scaled = graph.pointwise(CUDNN_POINTWISE_MUL, raw, scale, graph.inner(at.scores));
    const Tensor shifted =
        mask.causal() ? mask.apply(without_log_sums(scaled)) : without_log_sums(mask.apply(scaled));
    const Tensor p = graph.pointwise(CUDNN_POINTWISE_EXP, shifted, graph.inner(at.scores));
    add_key_gradient(graph, at, mask, graph.transpose(p), dcontext, DV);

    const Tensor dp = graph.multiply(dcontext, v, graph.inner(at.scores), mask.of_scores());
    const Tensor centred =
        graph.pointwise(CUDNN_POINTWISE_SUB, dp, row_dots, graph.inner(at.scores));
    const Tensor weighted =
        graph.pointwise(CUDNN_POINTWISE_MUL, centred, p, graph.inner(at.scores));
    const Tensor ds = graph.pointwise(CUDNN_POINTWISE_MUL, weighted, scale, graph.inner(at.scores));
    add_key_gradient(graph, at, mask, graph.transpose(ds), q, DK);
    graph.multiply(ds, graph.transpose(k), graph.kept(DQ, bf16, at.dqueries), mask.of_queries());
}

}  // namespace

CudnnDescriptor tensor_descriptor(const CudnnFunctions& cudnn, const CudnnTensor& tensor) {
    constexpr std::int64_t alignment = 16;  // bytes
    CudnnDescriptor made(cudnn, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, tensor.name);
    made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, tensor.type);
    made.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment);
    made.set(CUDNN_ATTR_TENSOR_DIMENSIONS, std::span<const std::int64_t>(tensor.sizes));
    made.set(CUDNN_ATTR_TENSOR_STRIDES, std::span<const std::int64_t>(tensor.strides));
    made.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, tensor.is_virtual);
    made.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, tensor.by_value);
    made.finalize();
    return made;
}

CudnnDescriptor graph_descriptor(const CudnnFunctions& cudnn,
                                 cudnnHandle_t handle,
                                 std::span<const cudnnBackendDescriptor_t> operations) {
    CudnnDescriptor graph(cudnn, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (handle != nullptr) {
        graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
    }
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations);
    graph.finalize();
    return graph;
}

CudnnGraph attention_graph(const CudnnFunctions& cudnn,
                           cudnnHandle_t handle,
                           const AttentionProblem& problem,
                           AttentionDirection direction) {
    Builder graph(cudnn);
    const Layouts layouts = layouts_of(problem);
    if (direction == AttentionDirection::Forward) {
        add_forward(graph, layouts);
    } else {
        add_backward(graph, layouts);
    }
    return graph.take(handle);
}

}  // namespace pipetwin::cuda

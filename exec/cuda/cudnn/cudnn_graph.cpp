#include "exec/cuda/cudnn/cudnn_graph.h"

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

    /// to = a b
    Tensor multiply(const Tensor& a, const Tensor& b, const Tensor& to) {
        CudnnDescriptor& kind = add(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
        kind.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
        kind.finalize();
        CudnnDescriptor& operation = add(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
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
        const Tensor shown = inner(layout_of(x), CUDNN_DATA_BOOLEAN);
        CudnnDescriptor& compare =
            pointwise_operation(CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, row, shown);
        compare.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, column.descriptor);
        finish(compare);
        const Tensor to = inner(layout_of(x));
        CudnnDescriptor& select =
            pointwise_operation(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, x, to);
        select.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, hidden.descriptor);
        select.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, shown.descriptor);
        finish(select);
        return to;
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

    const CudnnFunctions& cudnn_;
    std::deque<CudnnDescriptor> parts_;
    std::vector<cudnnBackendDescriptor_t> operations_;
    std::int64_t next_name_ = 100;
};

/// Shapes and strides of the tensors of attention, (samples, heads, positions, size of a head).
struct Layouts {
    Layout queries;           ///< Q or its gradient
    Layout keys;              ///< K or V, or their gradients
    Layout keys_of_heads;     ///< what each head of a group gives to a gradient of K or V
    Layout heads_of_context;  ///< the context or its gradient
    Layout row_numbers;       ///< the log sums, or the dots of the rows
    Layout scores;
};

Layouts layouts_of(const AttentionShape& shape) {
    const std::int64_t size = shape.head_size;
    const std::int64_t positions = shape.positions;
    const auto rows_apart = [&](std::int64_t heads, std::int64_t stride) {
        return Layout{{shape.samples, heads, positions, size},
                      {positions * stride, size, stride, 1}};
    };
    return {.queries = rows_apart(shape.heads, shape.qkv_width()),
            .keys = rows_apart(shape.key_value_heads, shape.qkv_width()),
            .keys_of_heads = packed({shape.samples, shape.heads, positions, size}),
            .heads_of_context = rows_apart(shape.heads, shape.query_width()),
            .row_numbers = packed({shape.samples, shape.heads, positions, 1}),
            .scores = packed({shape.samples, shape.heads, positions, positions})};
}

constexpr cudnnDataType_t bf16 = CUDNN_DATA_BFLOAT16;
constexpr cudnnDataType_t fp32 = CUDNN_DATA_FLOAT;

// S = Q K^T scale, masked;  L = max S + log(sum exp(S - max S));  context = exp(S - max S) / sum V
void add_forward(Builder& graph, const Layouts& at) {
    using enum AttentionTensor;
    const Tensor q = graph.kept(Q, bf16, at.queries);
    const Tensor k = graph.kept(K, bf16, transposed(at.keys));
    const Tensor v = graph.kept(V, bf16, at.keys);
    const Tensor raw = graph.multiply(q, k, graph.inner(at.scores));
    const Tensor scaled =
        graph.pointwise(CUDNN_POINTWISE_MUL, raw, graph.number(Scale), graph.inner(at.scores));
    const Tensor scores = graph.causal(scaled, graph.number(MinusInfinity));

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
    graph.multiply(p, v, graph.kept(Context, bf16, at.heads_of_context));
}

/// The gradient of K or V = a b, summed over the heads of a group.
void add_key_gradient(
    Builder& graph, const Layouts& at, const Tensor& a, const Tensor& b, AttentionTensor name) {
    if (at.keys.sizes[1] == at.queries.sizes[1]) {
        graph.multiply(a, b, graph.kept(name, bf16, at.keys));
        return;
    }
    const Tensor of_heads = graph.multiply(a, b, graph.inner(at.keys_of_heads, bf16));
    graph.reduce(CUDNN_REDUCE_TENSOR_ADD, of_heads, graph.kept(name, bf16, at.keys));
}

// D = rowsum(dC * C);  P = exp(S - L);  dV = P^T dC;  dS = (dC V^T - D) * P scale;  dK = dS^T Q,
// dQ = dS K. That dQ is written by its product, and not summed up in memory, is what makes engines
// add in one order: they keep dS in their workspace for it, 2 bytes for each pair of positions.
void add_backward(Builder& graph, const Layouts& at) {
    using enum AttentionTensor;
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

    const Tensor raw = graph.multiply(q, k, graph.inner(at.scores));
    const Tensor scaled = graph.pointwise(CUDNN_POINTWISE_MUL, raw, scale, graph.inner(at.scores));
    const Tensor shifted = graph.pointwise(CUDNN_POINTWISE_SUB,
                                           scaled,
                                           graph.kept(LogSums, fp32, at.row_numbers),
                                           graph.inner(at.scores));
    const Tensor p = graph.pointwise(CUDNN_POINTWISE_EXP,
                                     graph.causal(shifted, graph.number(MinusInfinity)),
                                     graph.inner(at.scores));
    add_key_gradient(graph, at, graph.transpose(p), dcontext, DV);

    const Tensor dp = graph.multiply(dcontext, v, graph.inner(at.scores));
    const Tensor centred =
        graph.pointwise(CUDNN_POINTWISE_SUB, dp, row_dots, graph.inner(at.scores));
    const Tensor weighted =
        graph.pointwise(CUDNN_POINTWISE_MUL, centred, p, graph.inner(at.scores));
    const Tensor ds = graph.pointwise(CUDNN_POINTWISE_MUL, weighted, scale, graph.inner(at.scores));
    add_key_gradient(graph, at, graph.transpose(ds), q, DK);
    graph.multiply(ds, graph.transpose(k), graph.kept(DQ, bf16, at.queries));
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
                           const AttentionShape& shape,
                           AttentionDirection direction) {
    Builder graph(cudnn);
    const Layouts layouts = layouts_of(shape);
    if (direction == AttentionDirection::Forward) {
        add_forward(graph, layouts);
    } else {
        add_backward(graph, layouts);
    }
    return graph.take(handle);
}

}  // namespace pipetwin::cuda

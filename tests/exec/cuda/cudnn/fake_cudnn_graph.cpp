// SPDX-License-Identifier: Apache-2.0
#include "tests/exec/cuda/cudnn/fake_cudnn_graph.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>

#include <cuda_bf16.h>

namespace pipetwin::cuda::test {
namespace {

using Index = std::array<std::int64_t, 4>;

/// A tensor's elements where its strides put them.
class Elements {
  public:
    explicit Elements(const FakeDescriptor& tensor)
        : name_(tensor.one<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID)),
          type_(tensor.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)),
          is_virtual_(tensor.one<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL)) {
        std::ranges::copy(tensor.all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS), sizes_.begin());
        std::ranges::copy(tensor.all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES), strides_.begin());
        std::int64_t extent = 1;
        for (std::size_t i = 0; i < sizes_.size(); ++i) {
            extent += (sizes_[i] - 1) * strides_[i];
        }
        memory_.resize(static_cast<std::size_t>(extent));
    }

    std::int64_t name() const { return name_; }
    bool is_virtual() const { return is_virtual_; }
    const Index& sizes() const { return sizes_; }
    const std::vector<double>& memory() const { return memory_; }
    void set_memory(const std::vector<double>& memory) { memory_ = memory; }

    double& at(const Index& index) { return memory_.at(place(index)); }
    /// The one element that there is along a direction stands for all.
    double at(const Index& index) const { return memory_.at(place(index)); }

    void load(const void* from) {
        for (std::size_t i = 0; i < memory_.size(); ++i) {
            memory_[i] = number(from, i);
        }
    }
    template <class F>
    void store(void* to, const F& for_each) const {
        for_each(sizes_, [&](const Index& index) {
            const std::size_t i = place(index);
            const auto value = static_cast<float>(memory_[i]);
            if (type_ == CUDNN_DATA_BFLOAT16) {
                static_cast<__nv_bfloat16*>(to)[i] = __float2bfloat16(value);
            } else {
                static_cast<float*>(to)[i] = value;
            }
        });
    }

  private:
    double number(const void* from, std::size_t i) const {
        switch (type_) {
            case CUDNN_DATA_BFLOAT16:
                return __bfloat162float(static_cast<const __nv_bfloat16*>(from)[i]);
            case CUDNN_DATA_INT32:
                return static_cast<const std::int32_t*>(from)[i];
            default:
                return static_cast<const float*>(from)[i];
        }
    }
    std::size_t place(const Index& index) const {
        std::int64_t offset = 0;
        for (std::size_t i = 0; i < index.size(); ++i) {
            offset += std::min(index[i], sizes_[i] - 1) * strides_[i];
        }
        return static_cast<std::size_t>(offset);
    }

    std::int64_t name_;
    cudnnDataType_t type_;
    bool is_virtual_;
    Index sizes_{};
    Index strides_{};
    std::vector<double> memory_;
};

template <class F>
void for_each_index(const Index& sizes, const F& f) {
    Index at{};
    for (at[0] = 0; at[0] < sizes[0]; ++at[0]) {
        for (at[1] = 0; at[1] < sizes[1]; ++at[1]) {
            for (at[2] = 0; at[2] < sizes[2]; ++at[2]) {
                for (at[3] = 0; at[3] < sizes[3]; ++at[3]) {
                    f(at);
                }
            }
        }
    }
}

double unary(cudnnPointwiseMode_t f, double x) {
    switch (f) {
        case CUDNN_POINTWISE_EXP:
            return std::exp(x);
        case CUDNN_POINTWISE_LOG:
            return std::log(x);
        default:
            throw std::logic_error("no such function of one number: " + std::to_string(f));
    }
}

double binary(cudnnPointwiseMode_t f, double x, double y) {
    switch (f) {
        case CUDNN_POINTWISE_ADD:
            return x + y;
        case CUDNN_POINTWISE_SUB:
            return x - y;
        case CUDNN_POINTWISE_MUL:
            return x * y;
        case CUDNN_POINTWISE_DIV:
            return x / y;
        case CUDNN_POINTWISE_CMP_GE:
            return x >= y ? 1 : 0;
        case CUDNN_POINTWISE_CMP_LT:
            return x < y ? 1 : 0;
        case CUDNN_POINTWISE_LOGICAL_AND:
            return x != 0 && y != 0 ? 1 : 0;
        default:
            throw std::logic_error("no such function of two numbers: " + std::to_string(f));
    }
}

/// Attributes of a convolution's operation, which have other names for each direction; which of
/// its tensors it writes.
struct ConvolutionNames {
    cudnnBackendAttributeName_t kind;
    cudnnBackendAttributeName_t image;
    cudnnBackendAttributeName_t filters;
    cudnnBackendAttributeName_t result;
    cudnnBackendAttributeName_t alpha;
    cudnnBackendAttributeName_t beta;
    cudnnBackendAttributeName_t written;
};

constexpr ConvolutionNames forward_names{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y};
constexpr ConvolutionNames image_names{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX};
constexpr ConvolutionNames filter_names{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW};

/// One direction of a convolution's window.
struct WindowAxis {
    std::int64_t stride;
    std::int64_t dilation;
    std::int64_t before;
    std::int64_t after;

    WindowAxis(const FakeDescriptor& kind, std::size_t axis)
        : stride(kind.all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES).at(axis)),
          dilation(kind.all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS).at(axis)),
          before(kind.all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS).at(axis)),
          after(kind.all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS).at(axis)) {}

    /// cuDNN wants results of the size that follows from the rest.
    void check(std::int64_t in, std::int64_t kernel, std::int64_t out) const {
        const std::int64_t room = in + before + after - (kernel - 1) * dilation - 1;
        if (before < 0 || after < 0 || room < 0 || room / stride + 1 != out) {
            throw std::logic_error("a convolution whose result has another size");
        }
    }
};

class Evaluation {
  public:
    explicit Evaluation(const std::map<std::int64_t, void*>& pack) : pack_(pack) {}

    void run(const FakeDescriptor& operation) {
        switch (operation.type) {
            case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
                return multiply(operation);
            case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
                return pointwise(operation);
            case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
                return reduce(operation);
            case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
                return reshape(operation);
            case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
                return convolve(operation, forward_names);
            case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
                return convolve(operation, image_names);
            case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
                return convolve(operation, filter_names);
            default:
                throw std::logic_error("no such operation: " + std::to_string(operation.type));
        }
    }

  private:
    /// A virtual tensor that no operation has written yet is a mistake.
    Elements input(const FakeDescriptor& operation, cudnnBackendAttributeName_t name) const {
        Elements x(operation.descriptor(name));
        if (x.is_virtual()) {
            x.set_memory(inner_.at(x.name()));
        } else {
            x.load(pack_.at(x.name()));
        }
        return x;
    }

    static Elements output(const FakeDescriptor& operation, cudnnBackendAttributeName_t name) {
        return Elements(operation.descriptor(name));
    }

    void keep(const Elements& y) {
        if (y.is_virtual()) {
            inner_[y.name()] = y.memory();
        } else {
            y.store(pack_.at(y.name()),
                    [](const Index& sizes, const auto& f) { for_each_index(sizes, f); });
        }
    }

    void multiply(const FakeDescriptor& operation) {
        const Elements a = input(operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
        const Elements b = input(operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
        Elements c = output(operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
        const FakeDescriptor& kind = operation.descriptor(CUDNN_ATTR_OPERATION_MATMUL_DESC);
        const double outside = kind.has(CUDNN_ATTR_MATMUL_PADDING_VALUE)
                                   ? kind.one<double>(CUDNN_ATTR_MATMUL_PADDING_VALUE)
                                   : std::numeric_limits<double>::quiet_NaN();
        const auto rows = lengths(operation, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC);
        const auto columns = lengths(operation, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC);
        const auto inner = lengths(operation, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC);
        for_each_index(c.sizes(), [&](const Index& at) {
            if (at[2] >= rows(at[0]) || at[3] >= columns(at[0])) {
                c.at(at) = outside;
                return;
            }
            // Matrices of which b has fewer are shared by neighbours.
            const std::int64_t of_b = at[1] * b.sizes()[1] / c.sizes()[1];
            double sum = 0;
            for (std::int64_t k = 0; k < std::min(a.sizes()[3], inner(at[0])); ++k) {
                sum += a.at({at[0], at[1], at[2], k}) * b.at({at[0], of_b, k, at[3]});
            }
            c.at(at) = sum;
        });
        keep(c);
    }

    /// The length that a product has for a sample in the place of its matrices' size.
    std::function<std::int64_t(std::int64_t)> lengths(const FakeDescriptor& operation,
                                                      cudnnBackendAttributeName_t name) const {
        if (!operation.has(name)) {
            return [](std::int64_t) { return std::numeric_limits<std::int64_t>::max(); };
        }
        return [of = input(operation, name)](std::int64_t sample) {
            return static_cast<std::int64_t>(of.at({sample, 0, 0, 0}));
        };
    }

    void pointwise(const FakeDescriptor& operation) {
        const FakeDescriptor& kind =
            operation.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
        const auto f = kind.one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
        const Elements x = input(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
        Elements to = output(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
        if (f == CUDNN_POINTWISE_GEN_INDEX) {
            const auto axis =
                static_cast<std::size_t>(kind.one<std::int64_t>(CUDNN_ATTR_POINTWISE_AXIS));
            for_each_index(to.sizes(),
                           [&](const Index& at) { to.at(at) = static_cast<double>(at.at(axis)); });
        } else if (!operation.has(CUDNN_ATTR_OPERATION_POINTWISE_BDESC)) {
            for_each_index(to.sizes(), [&](const Index& at) { to.at(at) = unary(f, x.at(at)); });
        } else {
            const Elements y = input(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
            if (f == CUDNN_POINTWISE_BINARY_SELECT) {
                const Elements first = input(operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
                for_each_index(to.sizes(), [&](const Index& at) {
                    to.at(at) = first.at(at) != 0 ? x.at(at) : y.at(at);
                });
            } else {
                for_each_index(to.sizes(),
                               [&](const Index& at) { to.at(at) = binary(f, x.at(at), y.at(at)); });
            }
        }
        keep(to);
    }

    void reduce(const FakeDescriptor& operation) {
        const FakeDescriptor& kind = operation.descriptor(CUDNN_ATTR_OPERATION_REDUCTION_DESC);
        const bool is_sum = kind.one<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR) ==
                            CUDNN_REDUCE_TENSOR_ADD;
        // Neighbours along the heads are reduced together, and along the columns all.
        const Elements x = input(operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
        Elements y = output(operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
        for_each_index(y.sizes(), [&](const Index& at) {
            y.at(at) = is_sum ? 0 : -std::numeric_limits<double>::infinity();
        });
        for_each_index(x.sizes(), [&](const Index& at) {
            double& result = y.at({at[0], at[1] * y.sizes()[1] / x.sizes()[1], at[2], at[3]});
            result = is_sum ? result + x.at(at) : std::max(result, x.at(at));
        });
        keep(y);
    }

    /// written = beta written + alpha times the sum of products of the other two.
    void convolve(const FakeDescriptor& operation, const ConvolutionNames& names) {
        // What is written is read, too, where it is added to.
        Elements image = input(operation, names.image);
        Elements filters = input(operation, names.filters);
        Elements result = input(operation, names.result);
        Elements& to = names.written == names.image     ? image
                       : names.written == names.filters ? filters
                                                        : result;
        const Elements before = to;
        const auto beta = static_cast<double>(operation.one<float>(names.beta));
        const auto alpha = static_cast<double>(operation.one<float>(names.alpha));
        for_each_index(to.sizes(), [&](const Index& at) { to.at(at) = 0; });
        const FakeDescriptor& kind = operation.descriptor(names.kind);
        if (kind.one<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) !=
            CUDNN_CROSS_CORRELATION) {
            throw std::logic_error("a convolution with a reflection");
        }
        for_products(kind,
                     {image.sizes(), filters.sizes(), result.sizes()},
                     [&](const Index& of_image, const Index& of_filters, const Index& of_result) {
                         if (&to == &image) {
                             image.at(of_image) += filters.at(of_filters) * result.at(of_result);
                         } else if (&to == &filters) {
                             filters.at(of_filters) += image.at(of_image) * result.at(of_result);
                         } else {
                             result.at(of_result) += image.at(of_image) * filters.at(of_filters);
                         }
                     });
        for_each_index(to.sizes(), [&](const Index& at) {
            to.at(at) = alpha * to.at(at) + (beta == 0 ? 0 : beta * before.at(at));
        });
        keep(to);
    }

    /// Calls f(element of the image, of the filters, of the result) for all products.
    template <class F>
    static void for_products(const FakeDescriptor& kind,
                             const std::array<Index, 3>& sizes,
                             const F& f) {
        const auto& [image, filters, result] = sizes;
        const WindowAxis rows(kind, 0);
        const WindowAxis columns(kind, 1);
        rows.check(image[2], filters[2], result[2]);
        columns.check(image[3], filters[3], result[3]);
        const std::int64_t group_outputs = result[1] / (image[1] / filters[1]);
        for_each_index(result, [&, &image = image, &filters = filters](const Index& to) {
            const std::int64_t group = to[1] / group_outputs;
            for_each_index({1, filters[1], filters[2], filters[3]}, [&](const Index& place) {
                const std::int64_t y = to[2] * rows.stride - rows.before + place[2] * rows.dilation;
                const std::int64_t x =
                    to[3] * columns.stride - columns.before + place[3] * columns.dilation;
                if (y >= 0 && y < image[2] && x >= 0 && x < image[3]) {
                    f({to[0], group * filters[1] + place[1], y, x},
                      {to[1], place[1], place[2], place[3]},
                      to);
                }
            });
        });
    }

    /// The same memory with other sizes and strides.
    void reshape(const FakeDescriptor& operation) {
        const Elements x = input(operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
        Elements y = output(operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
        if (x.memory().size() != y.memory().size()) {
            throw std::logic_error("a reshape to another size");
        }
        y.set_memory(x.memory());
        keep(y);
    }

    const std::map<std::int64_t, void*>& pack_;
    std::map<std::int64_t, std::vector<double>> inner_;  ///< memory of virtual tensors
};

}  // namespace

void evaluate(const FakeDescriptor& graph, const std::map<std::int64_t, void*>& pack) {
    Evaluation evaluation(pack);
    for (const cudnnBackendDescriptor_t operation :
         graph.all<cudnnBackendDescriptor_t>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
        evaluation.run(*static_cast<const FakeDescriptor*>(operation));
    }
}

}  // namespace pipetwin::cuda::test

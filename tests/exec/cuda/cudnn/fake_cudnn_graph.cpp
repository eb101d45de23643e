#include "tests/exec/cuda/cudnn/fake_cudnn_graph.h"

#include <algorithm>
#include <array>
#include <cmath>
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
            memory_[i] = type_ == CUDNN_DATA_BFLOAT16
                             ? double{__bfloat162float(static_cast<const __nv_bfloat16*>(from)[i])}
                             : double{static_cast<const float*>(from)[i]};
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
        default:
            throw std::logic_error("no such function of two numbers: " + std::to_string(f));
    }
}

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
        for_each_index(c.sizes(), [&](const Index& at) {
            double sum = 0;
            for (std::int64_t k = 0; k < a.sizes()[3]; ++k) {
                sum += a.at({at[0], at[1], at[2], k}) * b.at({at[0], at[1], k, at[3]});
            }
            c.at(at) = sum;
        });
        keep(c);
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
        const Elements x = input(operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
        Elements y = output(operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
        for_each_index(y.sizes(), [&](const Index& at) {
            y.at(at) = is_sum ? 0 : -std::numeric_limits<double>::infinity();
        });
        for_each_index(x.sizes(), [&](const Index& at) {
            double& result = y.at({at[0], at[1], at[2], 0});
            result = is_sum ? result + x.at(at) : std::max(result, x.at(at));
        });
        keep(y);
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

// SPDX-License-Identifier: Apache-2.0
#include "exec/device/kernels.h"

#include <bit>
#include <cstring>

#include "core/base/error.h"
#include "core/model/gelu_form.h"
#include "exec/device/column_kernels.h"
#include "exec/device/expert_kernels.h"
#include "exec/device/window_kernels.h"

namespace pipetwin::exec {
namespace {

template <class T>
std::vector<double> as_doubles(const std::vector<std::byte>& bytes) {
    std::vector<T> elements(bytes.size() / sizeof(T));
    std::memcpy(elements.data(), bytes.data(), bytes.size());
    return {elements.begin(), elements.end()};
}

/// The upper half of the bits of an fp32 number.
std::vector<double> bf16_as_doubles(const std::vector<std::byte>& bytes) {
    std::vector<double> values = as_doubles<std::uint16_t>(bytes);
    for (double& value : values) {
        value = std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16U);
    }
    return values;
}

}  // namespace

View Kernels::begun(const GradientSum& sum) const {
    if (!sum.adds && !sum.empty()) {
        fill_zero(sum.view);
    }
    return sum.view;
}

void Kernels::linear_gelu_forward(
    GeluForm form, ConstView x, ConstView w, ConstView b, View h, View y) const {
    linear_forward(x, w, b, {}, h);
    gelu_forward(form, h, y);
}

void Kernels::linear_gelu_backward(
    GeluForm form, ConstView dy, ConstView w, ConstView h, View dh) const {
    linear_backward_input(dy, w, {}, dh);
    gelu_backward(form, h, dh, dh);
}

void Kernels::row_norm_backward(const RowNormRule& rule,
                                ConstView x,
                                ConstView gain,
                                ConstView statistics,
                                ConstView dy,
                                ConstView skip,
                                View dx,
                                const GradientSum& dgain,
                                const GradientSum& dbias) const {
    row_norm_backward_weight(rule, x, statistics, dy, dgain, dbias);
    row_norm_backward_input(rule, x, gain, statistics, dy, skip, dx);
}

void Kernels::cross_entropy_with_gradient(ConstView targets,
                                          const ClassColumns& columns,
                                          double scale,
                                          View log_sums,
                                          const LossSums& sums,
                                          View x) const {
    cross_entropy_forward(x, targets, columns, log_sums, sums);
    cross_entropy_backward(x, targets, log_sums, columns, scale, x);
}

std::vector<double> values(const Kernels& kernels, ConstView x) {
    std::vector<std::byte> bytes(x.bytes());
    kernels.download(x, bytes);
    switch (x.dtype) {
        case DType::F64:
            return as_doubles<double>(bytes);
        case DType::I32:
            return as_doubles<std::int32_t>(bytes);
        case DType::U8:
            return as_doubles<std::uint8_t>(bytes);
        case DType::BF16:
            return bf16_as_doubles(bytes);
        case DType::F32:
            return as_doubles<float>(bytes);
    }
    throw InternalError("a type of elements");
}

// The lists name the operands, and nothing here reads them.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"

namespace {

class NullColumnKernels final : public ColumnKernels {
  public:
#define PIPETWIN_KERNEL(name, parameters) \
    void name parameters const override {}
#include "exec/device/column_kernel_list.h"
};

class NullExpertKernels final : public ExpertKernels {
  public:
#define PIPETWIN_KERNEL(name, parameters) \
    void name parameters const override {}
#include "exec/device/expert_kernel_list.h"
};

/// For devices that have none.
class NoExpertKernels final : public ExpertKernels {
  public:
#define PIPETWIN_KERNEL(name, parameters) \
    void name parameters const override { refuse(); }
#include "exec/device/expert_kernel_list.h"

  private:
    [[noreturn]] static void refuse() {
        throw Error(ErrorKind::Unavailable,
                    KeyValue{"cluster.backend"},
                    "GPUs have no kernels of experts yet",
                    "set cluster.backend = \"cpu\"");
    }
};

class NullWindowKernels final : public WindowKernels {
  public:
#define PIPETWIN_KERNEL(name, parameters) \
    void name parameters const override {}
#include "exec/device/window_kernel_list.h"
};

class NullKernels final : public Kernels {
  public:
    const WindowKernels& windows() const override {
        static const NullWindowKernels windows;
        return windows;
    }
    const ColumnKernels& columns() const override {
        static const NullColumnKernels columns;
        return columns;
    }
    const ExpertKernels& experts() const override {
        static const NullExpertKernels experts;
        return experts;
    }

#define PIPETWIN_KERNEL(name, parameters) \
    void name parameters const override {}
#include "exec/device/kernel_list.h"
};

}  // namespace

#pragma GCC diagnostic pop

const ExpertKernels& no_expert_kernels() {
    static const NoExpertKernels kernels;
    return kernels;
}

const Kernels& null_kernels() {
    static const NullKernels kernels;
    return kernels;
}

}  // namespace pipetwin::exec

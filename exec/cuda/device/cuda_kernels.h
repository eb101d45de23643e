// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "core/base/as_index.h"
#include "exec/cuda/device/cuda_column_kernels.h"
#include "exec/cuda/device/cuda_window_kernels.h"
#include "exec/cuda/device/lane.h"
#include "exec/cuda/device/update_table.h"
#include "exec/cuda/kernels/kernels.h"
#include "exec/device/kernels.h"

namespace pipetwin::cuda {

/// The mathematics of one rank's lane, in fp32 and bf16. A call lists what is to be done; the lane
/// does it when it finishes.
class CudaKernels final : public exec::Kernels {
  public:
    /// `lane` outlives it.
    explicit CudaKernels(Lane& lane) : lane_(lane), columns_(lane), windows_(lane, *this) {}

    const exec::ColumnKernels& columns() const override { return columns_; }
    const exec::WindowKernels& windows() const override { return windows_; }

    void fill_zero(exec::View y) const override;
    void upload(std::span<const std::int32_t> from, exec::View y) const override;
    void upload(std::span<const float> from, exec::View y) const override;
    void upload(std::span<const double> from, exec::View y) const override;
    void download(exec::ConstView x, std::span<std::byte> to) const override;
    void upload(std::span<const std::byte> from, exec::View y) const override;
    void add(exec::ConstView x, exec::View y) const override;
    void copy_columns(const exec::ColumnCopy& columns,
                      exec::ConstView x,
                      exec::View y) const override;

    void linear_forward(exec::ConstView x,
                        exec::ConstView w,
                        exec::ConstView b,
                        exec::ConstView skip,
                        exec::View y) const override;
    void linear_backward_input(exec::ConstView dy,
                               exec::ConstView w,
                               exec::ConstView skip,
                               exec::View dx) const override;
    void linear_backward_weight(exec::ConstView x,
                                exec::ConstView dy,
                                const exec::GradientSum& dw,
                                const exec::GradientSum& db) const override;

    void linear_gelu_forward(GeluForm form,
                             exec::ConstView x,
                             exec::ConstView w,
                             exec::ConstView b,
                             exec::View h,
                             exec::View y) const override;
    void linear_gelu_backward(GeluForm form,
                              exec::ConstView dy,
                              exec::ConstView w,
                              exec::ConstView h,
                              exec::View dh) const override;

    void layer_norm_forward(exec::ConstView x,
                            exec::ConstView gain,
                            exec::ConstView bias,
                            exec::View y,
                            exec::View statistics) const override;
    void layer_norm_backward_input(exec::ConstView x,
                                   exec::ConstView gain,
                                   exec::ConstView statistics,
                                   exec::ConstView dy,
                                   exec::ConstView skip,
                                   exec::View dx) const override;
    void layer_norm_backward(exec::ConstView x,
                             exec::ConstView gain,
                             exec::ConstView statistics,
                             exec::ConstView dy,
                             exec::ConstView skip,
                             exec::View dx,
                             const exec::GradientSum& dgain,
                             const exec::GradientSum& dbias) const override;
    void rms_norm_backward(exec::ConstView x,
                           exec::ConstView gain,
                           exec::ConstView roots,
                           exec::ConstView dy,
                           exec::ConstView skip,
                           exec::View dx,
                           const exec::GradientSum& dgain) const override;
    void rms_norm_forward(exec::ConstView x,
                          exec::ConstView gain,
                          double epsilon,
                          exec::View y,
                          exec::View roots) const override;
    void rms_norm_backward_input(exec::ConstView x,
                                 exec::ConstView gain,
                                 exec::ConstView roots,
                                 exec::ConstView dy,
                                 exec::ConstView skip,
                                 exec::View dx) const override;
    void rms_norm_backward_weight(exec::ConstView x,
                                  exec::ConstView roots,
                                  exec::ConstView dy,
                                  const exec::GradientSum& dgain) const override;
    void swiglu_forward(exec::ConstView x, exec::View y) const override;
    void swiglu_backward(exec::ConstView x, exec::ConstView dy, exec::View dx) const override;
    void rotate(const exec::AttentionShape& shape,
                const Rotary& rotary,
                exec::Turn turn,
                exec::View qkv) const override;
    void layer_norm_backward_weight(exec::ConstView x,
                                    exec::ConstView statistics,
                                    exec::ConstView dy,
                                    const exec::GradientSum& dgain,
                                    const exec::GradientSum& dbias) const override;

    void gelu_forward(GeluForm form, exec::ConstView x, exec::View y) const override;
    void gelu_backward(GeluForm form,
                       exec::ConstView x,
                       exec::ConstView dy,
                       exec::View dx) const override;

    void attention_forward(const exec::AttentionShape& shape,
                           exec::ConstView qkv,
                           exec::View softmax,
                           exec::View context) const override;
    exec::View attention_backward(const exec::AttentionShape& shape,
                                  exec::ConstView softmax,
                                  exec::ConstView context,
                                  exec::ConstView dcontext,
                                  exec::View qkv,
                                  std::byte* scratch) const override;
    void padded_attention_forward(const exec::PaddedAttentionShape& shape,
                                  exec::ConstColumns q,
                                  exec::ConstColumns k,
                                  exec::ConstView lengths,
                                  exec::View softmax,
                                  exec::View context) const override;
    void padded_attention_backward(const exec::PaddedAttentionShape& shape,
                                   exec::ConstView softmax,
                                   exec::ConstView context,
                                   exec::ConstView dcontext,
                                   exec::ConstView lengths,
                                   exec::Columns q,
                                   exec::Columns k,
                                   std::byte* scratch) const override;

    void embedding_forward(const exec::EmbeddingRows& rows,
                           exec::ConstView ids,
                           exec::ConstView tokens,
                           exec::ConstView places,
                           exec::View y) const override;
    void embedding_backward(const exec::EmbeddingRows& rows,
                            exec::ConstView ids,
                            exec::ConstView dy,
                            exec::View dtokens,
                            exec::View dplaces) const override;

    void cross_entropy_forward(exec::ConstView x,
                               exec::ConstView targets,
                               const exec::ClassColumns& columns,
                               exec::View log_sums,
                               const exec::LossSums& sums) const override;
    void cross_entropy_backward(exec::ConstView x,
                                exec::ConstView targets,
                                exec::ConstView log_sums,
                                const exec::ClassColumns& columns,
                                double scale,
                                exec::View dx) const override;
    void cross_entropy_with_gradient(exec::ConstView targets,
                                     const exec::ClassColumns& columns,
                                     double scale,
                                     exec::View log_sums,
                                     const exec::LossSums& sums,
                                     exec::View x) const override;
    void binary_cross_entropy_forward(exec::ConstView x,
                                      exec::ConstView targets,
                                      const exec::LossSums& sums) const override;
    void binary_cross_entropy_backward(exec::ConstView x,
                                       exec::ConstView targets,
                                       double scale,
                                       exec::View dx) const override;

    void dropout(const exec::DropoutMask& mask,
                 exec::ConstView x,
                 exec::ConstView skip,
                 exec::View y) const override;

    void sum_squares(std::span<const exec::UpdateView> parameters) const override;
    void sgd(std::span<const exec::UpdateView> parameters,
             double rate,
             const exec::GradientUse& gradient) const override;
    void momentum(std::span<const exec::UpdateView> parameters,
                  double rate,
                  double mu,
                  const exec::GradientUse& gradient) const override;
    void rmsprop(std::span<const exec::UpdateView> parameters,
                 double rate,
                 double decay,
                 double epsilon,
                 const exec::GradientUse& gradient) const override;
    void rmsprop_momentum(std::span<const exec::UpdateView> parameters,
                          const exec::RmsPropMomentumFactors& factors,
                          const exec::GradientUse& gradient) const override;
    void adam(std::span<const exec::UpdateView> parameters,
              const exec::AdamFactors& factors) const override;
    void average(std::span<const exec::UpdateView> parameters, double decay) const override;
    void round(exec::ConstView x, exec::View y) const override;

  private:
    template <class Element>
    Element* scratch(std::int64_t elements) const {
        return static_cast<Element*>(lane_.scratch(as_index(elements) * sizeof(Element)));
    }
    /// Lists a copy of the value into scratch memory; returns where it is then.
    template <class Value>
    const Value* to_device(const Value& value) const;
    /// Lists a copy of the value into a part of the scratch memory; returns that.
    template <class Value>
    const Value* to_device(const Value& value, Value* here) const;
    template <class From>
    void upload_from(std::span<const From> from, exec::View y) const;
    /// The number of a product with an epilogue, where the GELU is that of one.
    std::optional<int> with_gelu(GeluForm form, const Product& product) const;
    void multiply(int number, const Products::Operands& operands) const;
    std::byte* stage(std::size_t bytes) const;

    void update(UpdateRule rule,
                std::span<const exec::UpdateView> parameters,
                const UpdateFactors& factors) const;
    LossSums loss_sums(std::int64_t rows, const exec::LossSums& sums) const;
    void stage_factors(const UpdateTable& table, const UpdateFactors& factors) const;
    const UpdateTable& table_of(std::vector<UpdateTensor> tensors) const;

    Lane& lane_;
    CudaColumnKernels columns_;
    CudaWindowKernels windows_;
    mutable std::deque<UpdateTable> tables_;  ///< made when parameters are first updated
};

}  // namespace pipetwin::cuda

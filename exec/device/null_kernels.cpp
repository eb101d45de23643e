// SPDX-License-Identifier: Apache-2.0
#include "exec/device/null_kernels.h"

#include "exec/device/column_kernels.h"
#include "exec/device/window_kernels.h"

namespace pipetwin::exec {
namespace {

class NullColumnKernels final : public ColumnKernels {
  public:
    void copy(ConstView /*x*/, View /*y*/) const override {}
    void rectify(double /*slope*/, ConstView /*x*/, View /*y*/) const override {}
    void rectify_backward(double /*slope*/,
                          ConstView /*x*/,
                          ConstView /*dy*/,
                          View /*dx*/) const override {}
    void drop_columns(const DropoutMask& /*mask*/,
                      int /*samples*/,
                      ConstView /*x*/,
                      ConstView /*skip*/,
                      View /*y*/) const override {}
    void norm_statistics(const NormParts& /*parts*/,
                         double /*epsilon*/,
                         ConstView /*x*/,
                         View /*statistics*/,
                         View /*moments*/) const override {}
    void running_statistics(const RunningValues& /*running*/,
                            double /*epsilon*/,
                            View /*statistics*/) const override {}
    void normalise(const NormParts& /*parts*/,
                   ConstView /*x*/,
                   ConstView /*statistics*/,
                   ConstView /*gain*/,
                   ConstView /*bias*/,
                   ConstView /*skip*/,
                   View /*y*/) const override {}
    void normalise_backward(const NormParts& /*parts*/,
                            const NormGradients& /*operands*/,
                            std::byte* /*scratch*/) const override {}
    void add_moments(const Moments& /*more*/, std::int64_t /*rows*/, View /*sums*/) const override {
    }
    void move_averages(const RunningRule& /*rule*/,
                       const Moments& /*moments*/,
                       const RunningValues& /*running*/) const override {}
};

class NullWindowKernels final : public WindowKernels {
  public:
    void convolution_forward(const WindowShape& /*shape*/,
                             ConstView /*x*/,
                             ConstView /*w*/,
                             ConstView /*b*/,
                             ConstView /*skip*/,
                             View /*y*/) const override {}
    void convolution_backward_input(const WindowShape& /*shape*/,
                                    ConstView /*dy*/,
                                    ConstView /*w*/,
                                    ConstView /*skip*/,
                                    View /*dx*/) const override {}
    void convolution_backward_weight(const WindowShape& /*shape*/,
                                     ConstView /*x*/,
                                     ConstView /*dy*/,
                                     const GradientSum& /*dw*/,
                                     const GradientSum& /*db*/) const override {}
    void max_pool_forward(const WindowShape& /*shape*/,
                          ConstView /*x*/,
                          ConstView /*skip*/,
                          View /*y*/,
                          View /*places*/) const override {}
    void max_pool_backward(const WindowShape& /*shape*/,
                           ConstView /*places*/,
                           ConstView /*dy*/,
                           ConstView /*skip*/,
                           View /*dx*/) const override {}
    void average_pool_forward(const WindowShape& /*shape*/,
                              ConstView /*x*/,
                              ConstView /*skip*/,
                              View /*y*/) const override {}
    void average_pool_backward(const WindowShape& /*shape*/,
                               ConstView /*dy*/,
                               ConstView /*skip*/,
                               View /*dx*/) const override {}
    void upsample_forward(const UpsampleShape& /*shape*/,
                          ConstView /*x*/,
                          ConstView /*skip*/,
                          View /*y*/) const override {}
    void upsample_backward(const UpsampleShape& /*shape*/,
                           ConstView /*dy*/,
                           ConstView /*skip*/,
                           View /*dx*/) const override {}
    void pad(Pixels /*from*/,
             Margins /*margins*/,
             ConstView /*x*/,
             ConstView /*skip*/,
             View /*y*/) const override {}
};

class NullKernels final : public Kernels {
  public:
    const WindowKernels& windows() const override {
        static const NullWindowKernels windows;
        return windows;
    }
    void fill_zero(View /*y*/) const override {}
    void upload(std::span<const std::int32_t> /*from*/, View /*y*/) const override {}
    void upload(std::span<const float> /*from*/, View /*y*/) const override {}
    void upload(std::span<const double> /*from*/, View /*y*/) const override {}
    void download(ConstView /*x*/, std::span<std::byte> /*to*/) const override {}
    void upload(std::span<const std::byte> /*from*/, View /*y*/) const override {}
    void add(ConstView /*x*/, View /*y*/) const override {}
    void copy_columns(const ColumnCopy& /*columns*/, ConstView /*x*/, View /*y*/) const override {}
    void linear_forward(ConstView /*x*/,
                        ConstView /*w*/,
                        ConstView /*b*/,
                        ConstView /*skip*/,
                        View /*y*/) const override {}
    void linear_backward_input(ConstView /*dy*/,
                               ConstView /*w*/,
                               ConstView /*skip*/,
                               View /*dx*/) const override {}
    void linear_backward_weight(ConstView /*x*/,
                                ConstView /*dy*/,
                                const GradientSum& /*dw*/,
                                const GradientSum& /*db*/) const override {}
    void layer_norm_forward(ConstView /*x*/,
                            ConstView /*gain*/,
                            ConstView /*bias*/,
                            View /*y*/,
                            View /*statistics*/) const override {}
    void layer_norm_backward_input(ConstView /*x*/,
                                   ConstView /*gain*/,
                                   ConstView /*statistics*/,
                                   ConstView /*dy*/,
                                   ConstView /*skip*/,
                                   View /*dx*/) const override {}
    void rms_norm_forward(ConstView /*x*/,
                          ConstView /*gain*/,
                          double /*epsilon*/,
                          View /*y*/,
                          View /*roots*/) const override {}

    void rms_norm_backward_input(ConstView /*x*/,
                                 ConstView /*gain*/,
                                 ConstView /*roots*/,
                                 ConstView /*dy*/,
                                 ConstView /*skip*/,
                                 View /*dx*/) const override {}

    void rms_norm_backward_weight(ConstView /*x*/,
                                  ConstView /*roots*/,
                                  ConstView /*dy*/,
                                  const GradientSum& /*dgain*/) const override {}

    void swiglu_forward(ConstView /*x*/, View /*y*/) const override {}

    void swiglu_backward(ConstView /*x*/, ConstView /*dy*/, View /*dx*/) const override {}

    void rotate(const AttentionShape& /*shape*/,
                const Rotary& /*rotary*/,
                Turn /*turn*/,
                View /*qkv*/) const override {}

    void layer_norm_backward_weight(ConstView /*x*/,
                                    ConstView /*statistics*/,
                                    ConstView /*dy*/,
                                    const GradientSum& /*dgain*/,
                                    const GradientSum& /*dbias*/) const override {}
    void gelu_forward(GeluForm /*form*/, ConstView /*x*/, View /*y*/) const override {}
    void gelu_backward(GeluForm /*form*/,
                       ConstView /*x*/,
                       ConstView /*dy*/,
                       View /*dx*/) const override {}
    void attention_forward(const AttentionShape& /*shape*/,
                           ConstView /*qkv*/,
                           View /*softmax*/,
                           View /*context*/) const override {}
    View attention_backward(const AttentionShape& /*shape*/,
                            ConstView /*softmax*/,
                            ConstView /*context*/,
                            ConstView /*dcontext*/,
                            View qkv,
                            std::byte* /*scratch*/) const override {
        return qkv;
    }
    void padded_attention_forward(const PaddedAttentionShape& /*shape*/,
                                  ConstColumns /*q*/,
                                  ConstColumns /*k*/,
                                  ConstView /*lengths*/,
                                  View /*softmax*/,
                                  View /*context*/) const override {}
    void padded_attention_backward(const PaddedAttentionShape& /*shape*/,
                                   ConstView /*softmax*/,
                                   ConstView /*context*/,
                                   ConstView /*dcontext*/,
                                   ConstView /*lengths*/,
                                   Columns /*q*/,
                                   Columns /*k*/,
                                   std::byte* /*scratch*/) const override {}
    void embedding_forward(const EmbeddingRows& /*rows*/,
                           ConstView /*ids*/,
                           ConstView /*tokens*/,
                           ConstView /*places*/,
                           View /*y*/) const override {}
    void embedding_backward(const EmbeddingRows& /*rows*/,
                            ConstView /*ids*/,
                            ConstView /*dy*/,
                            View /*dtokens*/,
                            View /*dplaces*/) const override {}
    void cross_entropy_forward(ConstView /*x*/,
                               ConstView /*targets*/,
                               const ClassColumns& /*columns*/,
                               View /*log_sums*/,
                               const LossSums& /*sums*/) const override {}
    void cross_entropy_backward(ConstView /*x*/,
                                ConstView /*targets*/,
                                ConstView /*log_sums*/,
                                const ClassColumns& /*columns*/,
                                double /*scale*/,
                                View /*dx*/) const override {}
    void binary_cross_entropy_forward(ConstView /*x*/,
                                      ConstView /*targets*/,
                                      const LossSums& /*sums*/) const override {}
    void binary_cross_entropy_backward(ConstView /*x*/,
                                       ConstView /*targets*/,
                                       double /*scale*/,
                                       View /*dx*/) const override {}
    void dropout(const DropoutMask& /*mask*/,
                 ConstView /*x*/,
                 ConstView /*skip*/,
                 View /*y*/) const override {}
    const ColumnKernels& columns() const override {
        static const NullColumnKernels kernels;
        return kernels;
    }
    void sum_squares(std::span<const UpdateView> /*parameters*/) const override {}
    void sgd(std::span<const UpdateView> /*parameters*/,
             double /*rate*/,
             const GradientUse& /*gradient*/) const override {}
    void momentum(std::span<const UpdateView> /*parameters*/,
                  double /*rate*/,
                  double /*mu*/,
                  const GradientUse& /*gradient*/) const override {}
    void rmsprop(std::span<const UpdateView> /*parameters*/,
                 double /*rate*/,
                 double /*decay*/,
                 double /*epsilon*/,
                 const GradientUse& /*gradient*/) const override {}
    void rmsprop_momentum(std::span<const UpdateView> /*parameters*/,
                          const RmsPropMomentumFactors& /*factors*/,
                          const GradientUse& /*gradient*/) const override {}
    void adam(std::span<const UpdateView> /*parameters*/,
              const AdamFactors& /*factors*/) const override {}
    void average(std::span<const UpdateView> /*parameters*/, double /*decay*/) const override {}
    void round(ConstView /*x*/, View /*y*/) const override {}
};

}  // namespace

const Kernels& null_kernels() {
    static const NullKernels kernels;
    return kernels;
}

}  // namespace pipetwin::exec

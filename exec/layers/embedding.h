// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "exec/layers/dropout.h"
#include "exec/layers/layer.h"

namespace pipetwin::exec {

/// y[s, t] = c tokens[id[s, t]] + places[t]
/// dtokens[id[s, t]] += c dy[s, t],  dplaces[t] += dy[s, t], in the order of the rows
///
/// id (n) int32   tokens (vocabulary, width)   places (context, width)
///
/// Token ids have no gradient. Keeps the ids. With a dropout at its end the sum is masked. A tied
/// table has room for the gradient of its other use. places is a table that is learned, or there is
/// none, or it has sinusoids of the position t (Vaswani et al., arXiv 1706.03762, section 3.5):
///
///     places[t, j] = sin(t / 10000^(j / h)),  places[t, h + j] = cos(t / 10000^(j / h)),
///     h = width / 2, rounded up
///
/// c is 1, or sqrt(width) where rows are scaled. Where the first positions are those of a source,
/// both sequences count their positions from 0, and the source may have a token table of its own.
class Embedding final : public ExecutableLayer {
  public:
    Embedding(const LayerSpec& spec, const SampleShape& input, NumberFormat format);

    Bytes workspace_bytes(int samples) const override;
    void create_parameters(ParameterMaker& maker,
                           const std::string& path,
                           bool ends_residual) override;
    std::vector<Parameter*> parameters() override;
    bool has_parameters() const override { return true; }
    Bytes state_bytes() const override;

    /// Throws Error(BadInput), naming sample, position and value, if an id is outside the
    /// vocabulary.
    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;
    void backward_weight(LayerCall& call, Kept& kept, ConstView x, ConstView dy) override;

  private:
    /// One of the sequences of a sample.
    struct Part {
        EmbeddingRows rows;
        Parameter* tokens = nullptr;
    };
    /// The target, which is all of a sample that has no source, and the source.
    std::array<Part, 2> parts();
    /// The rows of a position table, or of its gradient, that are a part's.
    template <class AnyView>
    static AnyView places_of(const Part& part, AnyView places);
    void draw_sinusoids(ParameterMaker& maker);

    LayerSpec spec_;
    int context_;  ///< rows of a position table that is learned
    OutputDropout dropout_;
    Parameter tokens_;
    Parameter source_tokens_;
    Parameter places_;
    Tensor sinusoids_;
};

}  // namespace pipetwin::exec

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/as_index.h"
#include "core/model/layer_spec.h"
#include "exec/layers/dropout.h"
#include "exec/layers/makers.h"

namespace pipetwin::exec {
namespace {

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
///
/// Where devices divide it, each has some rows of the token table, and y is the sum of what they
/// make: one number and zeros.
class Embedding final : public PlainLayer {
  public:
    Embedding(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
        : PlainLayer(input,
                     {.token_ids = false,
                      .positions = input.positions / parts_of(spec),
                      .width = spec.outputs},
                     format),
          spec_(spec),
          context_(spec.learned_positions ? spec.context : 0),
          dropout_(spec.dropout, parts_of(spec)) {}

    /// The gradient behind the dropout, and all rows where devices have a part of them each.
    Bytes workspace_bytes(int samples) const override {
        const Bytes all =
            spec_.cut.sequence ? matrix_bytes(rows(samples), output().width) : Bytes{};
        return dropout_.workspace_bytes(output_bytes(samples)) + all;
    }
    void create_parameters(ParameterMaker& maker,
                           const std::string& path,
                           bool ends_residual) override;
    std::vector<Parameter*> parameters() override;
    bool has_parameters() const override { return true; }
    /// The sinusoids, which are as old as the weights and never change.
    Bytes state_bytes() const override {
        return spec_.sinusoids ? matrix_bytes(longest_sequence(), output().width) : Bytes{};
    }

    /// Throws Error(BadInput), naming sample, position and value, if an id is outside the
    /// vocabulary.
    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void backward_weight(LayerCall& call, Kept& kept, ConstView x, ConstView dy) override;

  private:
    /// Devices that have as many rows of the output each.
    static int parts_of(const LayerSpec& spec) { return spec.cut.sequence ? spec.cut.devices : 1; }
    /// A matrix of all rows, in the workspace.
    View all_rows(const LayerCall& call) const {
        std::byte* const place =
            call.workspace + dropout_.workspace_bytes(output_bytes(call.samples)).count;
        return {place, real(), rows(call.samples), output().width};
    }
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
    /// Positions of the longer of both sequences.
    int longest_sequence() const {
        return std::max(spec_.source_positions, input().positions - spec_.source_positions);
    }
    void draw_sinusoids(ParameterMaker& maker);
    /// Token ids have no gradient.
    void input_gradient(const LayerCall&, const Kept&, const Operands&) override {}

    LayerSpec spec_;
    int context_;  ///< rows of a position table that is learned
    OutputDropout dropout_;
    std::int64_t first_token_ = 0;  ///< in the rows of the whole table
    Parameter tokens_;
    Parameter source_tokens_;
    Parameter places_;
    Tensor sinusoids_;
};

void Embedding::create_parameters(ParameterMaker& maker,
                                  const std::string& path,
                                  bool /*ends_residual*/) {
    using Role = ParameterMaker::Role;
    using Uses = ParameterMaker::Uses;
    dropout_.create(maker);
    const int width = output().width;
    const Uses uses = spec_.tied ? Uses::Two : Uses::One;
    PaddedMatrix tokens{
        .rows = spec_.vocabulary, .columns = width, .padding = {.rows = spec_.vocabulary_padding}};
    if (spec_.cut.divides()) {
        tokens.cut = cut_of_rows(spec_.vocabulary, width, spec_.cut.devices, maker.device());
    }
    first_token_ = tokens.cut.first_row;
    tokens_ = maker.make(path + ".tokens", tokens, {.role = Role::Table, .uses = uses});
    if (spec_.source_table) {
        source_tokens_ = maker.make(path + ".source_tokens", spec_.vocabulary, width, Role::Table);
    }
    if (context_ > 0) {
        places_ = maker.make(path + ".places", context_, width, Role::Table);
    }
    if (spec_.sinusoids) {
        draw_sinusoids(maker);
    }
}

void Embedding::draw_sinusoids(ParameterMaker& maker) {
    constexpr double longest_wave = 10'000;
    const int width = output().width;
    const int half = (width + 1) / 2;
    const int positions = longest_sequence();
    std::vector<double> values(as_index(positions) * as_index(width));
    for (int t = 0; t < positions; ++t) {
        for (int j = 0; j < width; ++j) {
            const double angle = t / std::pow(longest_wave, double{1} * (j % half) / half);
            values[as_index(t) * as_index(width) + as_index(j)] =
                j < half ? std::sin(angle) : std::cos(angle);
        }
    }
    sinusoids_ = maker.make_constant(positions, width, values);
}

std::vector<Parameter*> Embedding::parameters() {
    std::vector<Parameter*> all{&tokens_};
    if (spec_.source_table) {
        all.push_back(&source_tokens_);
    }
    if (context_ > 0) {
        all.push_back(&places_);
    }
    return all;
}

std::array<Embedding::Part, 2> Embedding::parts() {
    const int source = spec_.source_positions;
    const int all = input().positions;
    const double scale = spec_.scaled ? std::sqrt(output().width) : 1.0;
    const auto rows = [&](int first, int count) {
        EmbeddingRows of{.positions = all, .first = first, .count = count, .scale = scale};
        if (spec_.cut.divides()) {
            of.first_token = first_token_;
            of.tokens = spec_.vocabulary;
        }
        return of;
    };
    return {
        Part{.rows = rows(source, all - source), .tokens = &tokens_},
        Part{.rows = rows(0, source), .tokens = spec_.source_table ? &source_tokens_ : &tokens_}};
}

/// Rows of a learned position table stand in the order of a sample's positions.
template <class AnyView>
AnyView Embedding::places_of(const Part& part, AnyView places) {
    if (places.empty()) {
        return {};
    }
    const ElementRange own{.begin = part.rows.first * places.columns,
                           .size = part.rows.count * places.columns};
    return {part_of(places, own).data, places.dtype, part.rows.count, places.columns};
}

// y[s, t] = c tokens[id[s, t]] + places[t]
void Embedding::forward(LayerCall& call, ConstView x, ConstView /*skip*/, View y, Kept& /*kept*/) {
    check_tokens(*call.data, spec_.vocabulary * spec_.cut.devices);
    const bool adds_places = call.group.index() == 0;  // of a sum over devices, the first alone
    const View terms = spec_.cut.sequence ? all_rows(call) : y;
    for (const Part& part : parts()) {
        if (part.rows.count > 0) {
            const ConstView places =
                spec_.sinusoids ? ConstView(sinusoids_) : places_of(part, ConstView(places_.value));
            call.kernels.embedding_forward(
                part.rows, x, part.tokens->value, adds_places ? places : ConstView{}, terms);
        }
    }
    if (spec_.cut.sequence) {
        call.group.reduce_scatter(terms, {}, y);
    } else if (spec_.cut.divides()) {
        call.group.all_reduce(y);
    }
    dropout_.forward(call, {}, y);
}

// dtokens[id[s, t]] += c dy[s, t],  dplaces[t] += dy[s, t]
void Embedding::backward_weight(LayerCall& call, Kept& /*kept*/, ConstView x, ConstView dy) {
    ConstView gradient = dropout_.gradient(call, dy, call.workspace);
    if (spec_.cut.sequence) {  // a token of any row may be one of this device's
        const View all = all_rows(call);
        call.group.all_gather(gradient, all);
        gradient = all;
    }
    const View places = call.kernels.begun(places_.next_gradient());
    for (const Part& part : parts()) {
        if (part.rows.count > 0) {  // a token that no sample has gets no term
            call.kernels.embedding_backward(part.rows,
                                            x,
                                            gradient,
                                            call.kernels.begun(part.tokens->next_gradient()),
                                            places_of(part, places));
        }
    }
    call.done(Op::BackwardWeight);
}

}  // namespace

const LayerMaker make_embedding = made<Embedding>;

}  // namespace pipetwin::exec

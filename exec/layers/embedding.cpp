#include "exec/layers/embedding.h"

namespace pipetwin::exec {

Embedding::Embedding(const LayerSpec& spec, const SampleShape& input, NumberFormat format)
    : ExecutableLayer(
          input, {.token_ids = false, .positions = input.positions, .width = spec.outputs}, format),
      vocabulary_(spec.vocabulary),
      context_(spec.learned_positions ? spec.context : 0),
      tied_(spec.tied),
      dropout_(spec.dropout) {}

Bytes Embedding::workspace_bytes(int samples) const {
    return dropout_.workspace_bytes(output_bytes(samples));
}

void Embedding::create_parameters(ParameterMaker& maker,
                                  const std::string& path,
                                  bool /*ends_residual*/) {
    using Role = ParameterMaker::Role;
    dropout_.create(maker);
    tokens_ = maker.make(path + ".tokens",
                         vocabulary_,
                         output().width,
                         Role::Table,
                         1,
                         tied_ ? ParameterMaker::Uses::Two : ParameterMaker::Uses::One);
    if (context_ > 0) {
        places_ = maker.make(path + ".places", context_, output().width, Role::Table);
    }
}

std::vector<Parameter*> Embedding::parameters() {
    std::vector<Parameter*> all{&tokens_};
    if (context_ > 0) {
        all.push_back(&places_);
    }
    return all;
}

// y[s, t] = tokens[id[s, t]] + places[t]
void Embedding::forward(LayerCall& call, ConstView x, ConstView /*skip*/, View y, Kept& /*kept*/) {
    check_tokens(*call.data, vocabulary_);
    call.kernels.embedding_forward(x, tokens_.value, places_.value, input().positions, y);
    dropout_.forward(call, {}, y);
}

// Token ids have no gradient.
void Embedding::backward_input(LayerCall& call,
                               Kept& /*kept*/,
                               ConstView /*x*/,
                               ConstView /*dy*/,
                               ConstView /*skip*/,
                               View /*dx*/) {
    call.done(Op::BackwardInput);
}

// dtokens[id[s, t]] += dy[s, t],  dplaces[t] += dy[s, t]
void Embedding::backward_weight(LayerCall& call, Kept& /*kept*/, ConstView x, ConstView dy) {
    const ConstView gradient = dropout_.gradient(call, dy, call.workspace);
    call.kernels.embedding_backward(
        x, gradient, input().positions, tokens_.gradient, places_.gradient);
    call.done(Op::BackwardWeight);
}

}  // namespace pipetwin::exec

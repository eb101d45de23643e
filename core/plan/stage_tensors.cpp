#include "core/plan/stage_tensors.h"

#include <algorithm>
#include <set>

namespace pipetwin {

namespace {

/// Follows the outputs that a stage has to do with.
class Walk {
  public:
    Walk(const Model& model, const LayerSamples& samples, int first, int end)
        : model_(model), samples_(samples), first_(first), end_(end) {
        for (int layer = first; layer < end; ++layer) {
            for (const int source : model.inputs_of(layer)) {
                if (source < first) {
                    received_.insert(source);
                }
            }
        }
    }

    const std::set<int>& received() const { return received_; }

    Bytes output(int layer) const { return samples_[as_index(layer)].output; }

    /// A stage behind this one reads the output.
    bool is_sent(int layer) const {
        const std::vector<int>& readers = model_.readers_of(layer);
        return !readers.empty() && readers.back() >= end_;
    }

    /// A layer of the stage behind `layer` reads the output, or a later stage does.
    bool is_wanted_behind(int source, int layer) const {
        const std::vector<int>& readers = model_.readers_of(source);
        return !readers.empty() && readers.back() > layer;
    }

    bool reads(int layer, int source) const {
        return std::ranges::binary_search(model_.inputs_of(layer), source);
    }

    /// The gradient of an output of which nothing was known yet is begun by its last reader in the
    /// stage, unless a later stage has sent it.
    bool begins_gradient(int layer, int source) const {
        if (is_sent(source)) {
            return false;
        }
        const std::vector<int>& readers = model_.readers_of(source);
        return readers.back() == layer;
    }

  private:
    const Model& model_;
    const LayerSamples& samples_;
    int first_;
    int end_;
    std::set<int> received_;  ///< layers before the stage whose outputs it reads
};

}  // namespace

StageTensors::StageTensors(const Model& model, const LayerSamples& samples, int first, int end)
    : first_(first) {
    const Walk walk(model, samples, first, end);
    input_ = first == 0 ? samples.front().input : Bytes{};
    for (const int source : walk.received()) {
        input_ += walk.output(source);
        output_ += walk.is_sent(source) ? walk.output(source) : Bytes{};
    }
    for (int layer = first; layer < end; ++layer) {
        const bool sent = walk.is_sent(layer);
        output_ += sent ? walk.output(layer) : Bytes{};
        inner_gradients_ += sent || model.readers_of(layer).empty() ? Bytes{} : walk.output(layer);
        Bytes beside;
        for (int source = first; source < layer; ++source) {
            const bool wanted = walk.is_wanted_behind(source, layer) && !walk.reads(layer, source);
            beside += wanted ? walk.output(source) : Bytes{};
        }
        kept_beside_.push_back(beside);
    }
    Bytes live = output_;
    for (int layer = end - 1; layer >= first; --layer) {
        // What a layer that nobody reads hands to its backward is the loss.
        const bool is_loss = model.readers_of(layer).empty();
        const Bytes own = walk.output(layer);
        Bytes begun;
        for (const int source : model.inputs_of(layer)) {
            begun += walk.begins_gradient(layer, source) ? walk.output(source) : Bytes{};
        }
        gradients_before_.push_back(live + (is_loss ? own : Bytes{}));
        gradients_begun_.push_back(begun);
        live += begun - (is_loss ? Bytes{} : own);
    }
    std::ranges::reverse(gradients_before_);
    std::ranges::reverse(gradients_begun_);
}

}  // namespace pipetwin

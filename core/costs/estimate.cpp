// SPDX-License-Identifier: Apache-2.0
#include "core/costs/estimate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/costs/cost_factors.h"
#include "core/costs/devices/number_type.h"
#include "core/costs/estimate_source.h"
#include "core/costs/kernel_rates.h"
#include "core/costs/layer_estimator.h"

namespace pipetwin {

std::vector<int> sample_sizes(int micro_batch_size) {
    std::vector<int> sizes;
    for (int size = 1; size <= std::max(32, 2 * micro_batch_size); size *= 2) {
        sizes.push_back(size);
    }
    const auto at = std::ranges::lower_bound(sizes, micro_batch_size);
    if (at == sizes.end() || *at != micro_batch_size) {
        sizes.insert(at, micro_batch_size);
    }
    return sizes;
}

namespace {

/// Time of so many bytes for each parameter.
Duration moved_time(double bytes,
                    std::int64_t parameters,
                    const DeviceProfile& device,
                    const EstimateOptions& options) {
    const double efficiency = options.memory_efficiency.value_or(MemoryEfficiency{}.copies);
    return Duration{whole_number(1e9 * bytes * static_cast<double>(parameters) /
                                 (device.memory_rate.value * efficiency))};
}

}  // namespace

Duration adamw_time(std::int64_t parameters,
                    const DeviceProfile& device,
                    const EstimateOptions& options) {
    constexpr double moved = 28;
    const bool is_known = options.stack && options.stack->passes.update_bytes;
    return moved_time(
        is_known ? options.stack->passes.update_bytes->value : moved, parameters, device, options);
}

namespace {

/// Makes the layers of a profile, one after the other.
class LayerMaker {
  public:
    /// `divisions`: of the samples of each layer; the first of one device.
    LayerMaker(const DecoderModel& model,
               const DeviceProfile& device,
               const EstimateOptions& options,
               const std::vector<LayerDivision>& divisions)
        : device_(device), options_(options), load_(divisions.back().load) {
        for (const LayerDivision& division : divisions) {
            for (const int size : sample_sizes(options.micro_batch_size)) {
                estimators_[division.tensor].emplace_back(model, device, options, size, division);
            }
        }
    }

    /// `sample` makes the costs at one size from its estimator. Layers with one `kind_key` have the
    /// same; none: no other has. `parameters`: all of them, or those of its adapters beside
    /// `frozen` weights.
    template <class Sample>
    LayerCost& add(std::string name,
                   std::string kind,
                   std::int64_t parameters,
                   Sample sample,
                   const std::optional<std::string>& kind_key = {},
                   std::int64_t frozen = 0) {
        LayerCost& layer = layers_.emplace_back();
        if (kind_key) {
            const auto [known, is_new] = known_.emplace(*kind_key, layers_.size() - 1);
            if (!is_new) {
                layer = layers_[known->second];
            }
        }
        if (layer.samples.empty()) {
            add_samples(layer, sample);
            if (options_.stack && options_.stack->passes.gradient_bytes) {
                layer.weight_cast += moved_time(
                    options_.stack->passes.gradient_bytes->value, parameters, device_, options_);
            }
        }
        layer.name = std::move(name);
        layer.kind = std::move(kind);
        layer.parameter_count = parameters;
        layer.parameter_bytes = Bytes{parameters * bytes_per_value(options_.precision)};
        layer.frozen_bytes = Bytes{frozen * bytes_per_value(options_.precision)};
        layer.optimizer = adamw_time(parameters, device_, options_);
        return layer;
    }

    /// Rows of the fullest device of the block's experts over the mean, in the last division.
    double fullest_in(int block) const { return load_.fullest_in(block); }

    std::vector<LayerCost> take() { return std::move(layers_); }

  private:
    template <class Sample>
    void add_samples(LayerCost& layer, Sample& sample) {
        for (const auto& [devices, of_size] : estimators_) {
            std::vector<LayerSample>& samples =
                devices == 1 ? layer.samples : layer.shared[devices];
            for (const LayerEstimator& estimator : of_size) {
                const LayerEstimate estimate = std::invoke(sample, estimator);
                samples.push_back(estimate.sample);
                if (devices == 1) {  // experts without rows are not in the smallest sizes
                    layer.weight_cast = std::max(
                        layer.weight_cast, Duration{whole_number(1e9 * estimate.weight_cast)});
                    layer.weight_copies =
                        std::max(layer.weight_copies, Bytes{whole_number(estimate.weight_copies)});
                }
                if (devices == 1 && estimate.sample.micro_batch_size == 1) {
                    layer.operations = estimate.operations;
                    layer.masked_operations = estimate.masked_operations;
                }
            }
        }
    }

    const DeviceProfile& device_;
    const EstimateOptions& options_;
    ExpertLoad load_;
    std::map<int, std::vector<LayerEstimator>> estimators_;  ///< [devices that share a layer]
    std::map<std::string, std::size_t> known_;  ///< [key of a kind]: the first of the kind
    std::vector<LayerCost> layers_;
};

constexpr const char* encoder_output = "encoder_norm";

/// The encoder's blocks and norm, and the decoder's embedding: it shares the encoder's table, which
/// its rank has to hold as well, with gradients and optimizer state. Its parameters count once, in
/// "embedding". It stands in the chain behind the encoder, as its rank can be another.
void add_encoder(LayerMaker& layers, const DecoderModel& model) {
    for (int block = 0; block < model.encoder_blocks; ++block) {
        layers.add(fmt::format("encoder{}.attention", block),
                   "encoder_attention",
                   encoder_attention_parameters(model, block),
                   &LayerEstimator::encoder_attention);
        layers.add(
            fmt::format("encoder{}.feed_forward", block),
            "feed_forward",
            feed_forward_parameters(model, block),
            [block](const LayerEstimator& estimator) { return estimator.feed_forward(block); });
    }
    layers.add(
        encoder_output, "norm", encoder_norm_parameters(model), &LayerEstimator::encoder_norm);
    layers
        .add("decoder_embedding",
             "decoder_embedding",
             embedding_parameters(model),
             &LayerEstimator::embedding)
        .parameter_count = 0;
}

/// The kind of an attention half.
std::string_view attention_word(const DecoderModel& model, int block) {
    return has_linear_attention(model, block) ? "linear_attention"
           : attention_in(model, block).mamba ? "mamba"
                                              : "attention";
}

void add_blocks(LayerMaker& layers, const DecoderModel& model, std::int64_t bytes_per_parameter) {
    std::string before = "decoder_embedding";
    for (int block = 0; block < model.blocks; ++block) {
        if (has_attention(model, block)) {
            const std::string_view kind = attention_word(model, block);
            const int shape =
                model.attention_kinds.empty() ? 0 : model.attention_kinds.at(as_index(block));
            const std::int64_t weights = attention_parameters(model, block);
            LayerCost& attention = layers.add(
                fmt::format("block{}.attention", block),
                std::string(kind),
                model.adapters ? attention_adapters(model, block) : weights,
                [block](const LayerEstimator& estimator) { return estimator.attention(block); },
                fmt::format("{} {} {} {}",
                            kind,
                            shape,
                            window_of(model, block),
                            residual_rows(model, block) * 1000 +
                                residual_rows(model, std::max(block - 1, 0))),
                model.adapters ? weights : 0);
            attention.output_rows = residual_rows(model, block);
            if (model.encoder_blocks > 0) {
                attention.inputs = {encoder_output, before};
            }
        }
        if (!has_feed_forward(model, block)) {
            continue;
        }
        const bool routes = has_experts(model, block);
        const int inner = routes ? model.experts.width : feed_forward_width(model, block);
        const std::int64_t weights = feed_forward_parameters(model, block);
        LayerCost& feed_forward = layers.add(
            fmt::format("block{}.feed_forward", block),
            "feed_forward",
            model.adapters ? feed_forward_adapters(model, block) : weights,
            [block](const LayerEstimator& estimator) { return estimator.feed_forward(block); },
            fmt::format("feed_forward {} {} {} {}",
                        routes,
                        inner,
                        routes ? layers.fullest_in(block) : 1,
                        residual_rows(model, block)),
            model.adapters ? weights : 0);
        feed_forward.output_rows = residual_rows(model, block);
        const Bytes routed{routed_parameters(model, block) * bytes_per_parameter};
        feed_forward.expert_bytes =
            model.adapters ? Bytes{routed_adapters(model, block) * bytes_per_parameter} : routed;
        feed_forward.frozen_expert_bytes = model.adapters ? routed : Bytes{};
        before = feed_forward.name;
    }
}

/// One device, and 2, 4, ... of those that share each layer.
std::vector<LayerDivision> tensor_divisions(int most_devices) {
    std::vector<LayerDivision> divisions;
    for (int devices = 1; devices <= most_devices; devices *= 2) {
        divisions.push_back({.tensor = devices, .expert_tensor = devices});
    }
    return divisions;
}

Profile estimated_with(const DecoderModel& model,
                       const DeviceProfile& device,
                       const EstimateOptions& options,
                       const std::vector<LayerDivision>& divisions) {
    PIPETWIN_EXPECT(device.matrix_rates.contains(rate_precision(options.precision)),
                    "the device has no rate at the precision of an estimate");
    PIPETWIN_EXPECT(device.matrix_rates.contains(kept_precision(options.precision)),
                    "the device has no rate for what is not in 8 bits");
    Profile profile{
        .source = CostSource::Estimated, .device = device.name, .precision = options.precision};
    profile.tokens_per_sample = options.sequence;
    const MeasuredFactors measured = options.stack
                                         ? options.stack->factors_of(device.name, options.precision)
                                         : MeasuredFactors{};
    if (options.stack) {
        profile.stack = options.stack->name;
        profile.launch = options.stack->launch.host.value;
        profile.messages_inside = measured.inside;
        profile.messages_between = measured.between;
    }
    LayerMaker layers(model, device, options, divisions);
    const bool has_frozen_ends = model.adapters && !model.adapters->ends;
    const auto trained = [&](std::int64_t weights) { return has_frozen_ends ? 0 : weights; };
    const auto frozen = [&](std::int64_t weights) { return has_frozen_ends ? weights : 0; };
    layers
        .add("embedding",
             "embedding",
             trained(embedding_parameters(model)),
             &LayerEstimator::embedding,
             {},
             frozen(embedding_parameters(model)))
        .output_rows = model.streams;
    if (model.encoder_blocks > 0) {
        add_encoder(layers, model);
    }
    const std::int64_t each = bytes_per_value(options.precision);
    add_blocks(layers, model, each);
    for (int index = 0; index < model.prediction_blocks; ++index) {
        layers
            .add(fmt::format("mtp{}", index),
                 "prediction",
                 prediction_parameters(model),
                 [index](const LayerEstimator& estimator) { return estimator.prediction(index); })
            .expert_bytes = Bytes{routed_parameters(model, prediction_feed_forward(model)) * each};
    }
    const std::int64_t shared = shared_embedding_parameters(model);
    LayerCost& head = layers.add("head",
                                 "head",
                                 trained(head_parameters(model)),
                                 &LayerEstimator::head,
                                 {},
                                 frozen(head_parameters(model)));
    profile.tied_bytes = Bytes{shared * bytes_per_value(options.precision)};
    head.parameter_bytes += profile.tied_bytes;
    head.optimizer += adamw_time(shared, device, options);
    profile.layers = layers.take();
    if (model.adapters) {  // model FLOPs are those of trained weights
        for (LayerCost& layer : profile.layers) {
            layer.operations.reset();
            layer.masked_operations.reset();
        }
    }
    return measured.activations == 1 ? profile
                                     : with_factors(profile, {.memory = measured.activations});
}

}  // namespace

Profile estimated_profile(const DecoderModel& model,
                          const DeviceProfile& device,
                          const EstimateOptions& options) {
    Profile profile =
        estimated_with(model, device, options, tensor_divisions(options.most_devices));
    profile.estimated_from = EstimatedFrom(
        std::make_shared<const EstimateSource>(source_of(model, options, device.name)));
    return profile;
}

Profile estimated_profile(const DecoderModel& model,
                          const DeviceProfile& device,
                          const EstimateOptions& options,
                          const LayerDivision& division) {
    std::vector<LayerDivision> divisions;
    if (division.tensor > 1) {
        divisions.emplace_back();
    }
    divisions.push_back(division);
    Profile profile = estimated_with(model, device, options, divisions);
    const bool gathers = model.experts.shared_width > 0 || division.is_of_tensor_alone();
    for (LayerCost& layer : profile.layers) {
        // Rows go to experts from where the tokens are: these are not gathered for them.
        const bool has_rows = layer.expert_bytes > Bytes{} && layer.kind == "feed_forward";
        layer.tensor_sums = has_rows && !gathers ? 0 : layer.tensor_sums;
    }
    return profile;
}

}  // namespace pipetwin

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/costs/devices/device_profile.h"
#include "core/costs/devices/number_type.h"
#include "core/costs/estimate.h"
#include "core/costs/layer_division.h"
#include "core/costs/layer_work.h"
#include "core/costs/profile.h"
#include "core/model/decoder_model.h"

namespace pipetwin {

/// Costs of a layer for one micro-batch, and the operations of its forward as `LayerCost` has them.
struct LayerEstimate {
    LayerSample sample;
    double operations = 0;
    double masked_operations = 0;
    double weight_cast = 0;    ///< seconds, once a step
    double weight_copies = 0;  ///< bytes
};

/// All layers of a model for one micro-batch size, on one of the devices that share each layer.
class LayerEstimator {
  public:
    LayerEstimator(const DecoderModel& model,
                   const DeviceProfile& device,
                   const EstimateOptions& options,
                   int micro_batch_size,
                   const LayerDivision& division)
        : model_(model),
          device_(device),
          options_(options),
          size_(micro_batch_size),
          division_(division),
          devices_(division.tensor),
          tokens_(static_cast<double>(micro_batch_size) * options.sequence / division.context) {}
    LayerEstimate embedding() const;
    /// The attention half of a block; of a decoder that reads an encoder both of its attentions.
    LayerEstimate attention(int block) const;
    LayerEstimate encoder_attention() const {
        return one_attention(model_.attention, options_.sequence, 0, {});
    }
    LayerEstimate encoder_norm() const;
    LayerEstimate feed_forward(int block) const;
    LayerEstimate head() const;
    /// A block that predicts a further token: two norms, a matrix that makes one row of two, a
    /// block as the last one, and the head's work. The row that the head reads goes past it.
    LayerEstimate prediction(int index) const;

  private:
    struct LayerBytes;
    /// Rows of the residual before a half of a block, and behind it.
    struct ResidualRows {
        double before = 1;
        double behind = 1;
    };
    double width() const { return model_.width; }
    double value() const { return static_cast<double>(bytes_per_value(options_.precision)); }
    LayerWork new_work() const;
    /// Work of the embedding or the head, which are trained where no adapters are, or beside them.
    LayerWork end_work() const;
    /// Rank of an adapter beside a product; 0: there is none.
    double adapter_rank(bool AdapterShape::*place) const {
        return model_.adapters && (*model_.adapters).*place ? model_.adapters->rank : 0;
    }
    /// What an adapter keeps of `rows` rows of so many inputs: a narrow row of each, and, where
    /// they go through dropout, what came out and a mask.
    void save_adapter(LayerBytes& bytes,
                      bool AdapterShape::*place,
                      double rows,
                      double inputs) const;
    /// Layer norms, not RMSNorms: these have no bias.
    bool has_layer_norms() const { return model_.norm_bias; }
    /// What one of the devices has.
    double part(double of) const { return of / devices_; }
    double seen_in(int block) const;
    void save_whole(LayerBytes& bytes, double values) const;
    void save_normed(LayerBytes& bytes, int norms) const;
    void save_mask(LayerBytes& bytes) const;
    static void makes(LayerBytes& of, RecomputeModule module, double bytes, double seconds);
    static void reads(LayerBytes& of, OffloadModule module, double bytes);
    /// Devices that divide what each has whole where no sequence is divided.
    double sequence_parts() const { return division_.sequence_parallel ? devices_ : 1; }
    void norms(LayerWork& work, LayerBytes& bytes, int count) const;
    void all_norms(LayerWork& work, LayerBytes& bytes, int count) const;
    void residual(LayerWork& work, ResidualRows rows) const;
    void core_attention(LayerWork& work, LayerBytes& bytes, const LayerWork::Attention& of) const;
    LayerWork::Attention divided_context(LayerWork::Attention of,
                                         LayerWork& work,
                                         LayerBytes& bytes) const;
    void merge_steps(const Stack::Context& steps,
                     double ring,
                     double keys,
                     const LayerWork::Attention& of,
                     LayerWork& work) const;
    double ring_of_context() const;
    Bytes in_bytes(double values) const { return Bytes{whole_number(value() * values)}; }
    LayerEstimate one_attention(const AttentionShape& shape,
                                double seen,
                                int window,
                                ResidualRows rows,
                                bool beside_experts = false) const;
    LayerEstimate linear_attention(const LinearAttentionShape& shape, ResidualRows rows) const;
    LayerEstimate mamba(const MambaShape& shape, ResidualRows rows) const;
    LayerEstimate compressed_attention(const AttentionShape& heads,
                                       const CompressedShape& shape,
                                       ResidualRows rows) const;
    double compressed_keys(const CompressedShape& shape, LayerWork& work, LayerBytes& bytes) const;
    void make_further_rows(const CompressedShape& shape,
                           double row,
                           LayerWork& work,
                           LayerBytes& bytes) const;
    ResidualRows rows_of_attention(int block) const;
    ResidualRows rows_of_feed_forward(int block) const;
    void read_residual(LayerWork& work, LayerBytes& bytes, double rows, bool in_half = true) const;
    LayerEstimate with_rows(LayerEstimate estimate, double rows) const;
    /// Sizes of a feed-forward half.
    struct Inner {
        double rows = 1;
        double row = 1;        ///< numbers of each
        double own_width = 1;  ///< columns of the inner width that a device has
        double matrices = 1;   ///< of which each row meets one
        /// No backward reads what comes after it, as that of dropout reads its mask.
        bool ends_what_is_read = false;
    };
    void inner(LayerWork& work, LayerBytes& bytes, const Inner& of) const;
    bool keeps_gate_activations() const;
    bool keeps_gate_products() const;
    void experts(LayerWork& work, LayerBytes& bytes, int block) const;
    void shared_experts(LayerWork& work, LayerBytes& bytes) const;
    double to_expert_rows(LayerWork& work, LayerBytes& bytes, double tokens) const;
    void from_expert_rows(LayerWork& work, LayerBytes& bytes, double tokens) const;
    double expert_rows(double sent, double local_experts, double fullest) const;
    void divided_experts(LayerWork& work, LayerBytes& bytes, int block) const;
    /// Where a layer's experts begin.
    struct ExpertsBegin {
        double seconds = 0;  ///< of the forward before them
        double saved = 0;    ///< bytes
    };
    void make_experts(const LayerWork& work, LayerBytes& bytes, const ExpertsBegin& begin) const;
    void expert_modules(const LayerWork& work, LayerBytes& bytes, double rows, double own) const;
    double down_seconds(const LatentShape& latent) const;
    double latent_projections(const AttentionShape& shape,
                              const LatentShape& latent,
                              double seen,
                              LayerWork& work,
                              LayerBytes& bytes) const;
    double chosen_of(const IndexerShape& indexer, double seen) const;
    double key_indexer(const IndexerShape& indexer,
                       double seen,
                       LayerWork& work,
                       LayerBytes& bytes) const;
    LayerEstimate logits_and_loss() const;
    LayerEstimate finished(const LayerWork& work, const LayerBytes& bytes) const;

    const DecoderModel& model_;
    const DeviceProfile& device_;
    const EstimateOptions& options_;
    int size_;
    LayerDivision division_;
    int devices_;    ///< that share each layer
    double tokens_;  ///< of the device's parts of the samples
};

}  // namespace pipetwin

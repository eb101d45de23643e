// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/content_hash.h"
#include "exec/data/pairs/text_pieces.h"

namespace pipetwin {

class Model;
struct ScenarioParts;

}  // namespace pipetwin

namespace pipetwin::exec {

/// One mini-batch on the host: `samples` samples in row order. Token ids or real numbers as the
/// model reads them.
struct Batch {
    int samples = 0;
    int positions = 1;  ///< inputs per sample
    int width = 0;      ///< numbers per position; 0 for token ids
    int target_positions = 1;
    std::vector<std::int32_t> tokens;  ///< samples * positions, where width == 0
    std::vector<float> values;         ///< samples * positions * width, else
    /// samples * target_positions; -1: no target, so the position has no part in the loss.
    std::vector<std::int32_t> targets;
    /// [sample] Positions in front that are no padding, of the keys that an attention without
    /// causality sees; empty: no position is padding.
    std::vector<std::int32_t> lengths{};

    /// Targets that are no -1: what the loss of the whole mini-batch is a mean over.
    std::int64_t counted_targets() const;
};

/// Logits that the loss layer leaves on the host: of one target position of each sample of a
/// mini-batch.
struct WantedLogits {
    std::span<const int> positions;  ///< [sample]
    std::span<double> values;        ///< [sample * classes + class]
};

/// A slice of consecutive samples of a batch.
struct MicroBatch {
    const Batch* batch = nullptr;
    int first_sample = 0;
    int samples = 0;
    int step = 0;  ///< what is drawn for it belongs to this step, from 0
    /// Targets of the whole mini-batch that are no -1; 0: all positions have one.
    std::int64_t counted_targets = 0;
    const WantedLogits* logits =
        nullptr;  ///< of the mini-batch, in an evaluation; null: not wanted
};

/// One of several equal parts of a batch: the part of a replica.
struct BatchPart {
    int index = 0;
    int count = 1;
};

/// Cuts a part of the batch into slices of these sizes (`micro_batch_sizes` of core/plan/plan.h),
/// which cover it.
std::vector<MicroBatch> split(const Batch& batch,
                              const std::vector<int>& sizes,
                              const BatchPart& part = {});
/// Cuts a part of the batch into slices of these sizes, which replace the content of `slices`.
void split(const Batch& batch,
           const std::vector<int>& sizes,
           const BatchPart& part,
           std::vector<MicroBatch>& slices);

/// Throws Error(BadInput), naming sample, position and value, if a token id of the slice is not in
/// 0..vocabulary-1.
void check_tokens(const MicroBatch& slice, int vocabulary);

/// The targets of a slice, samples * positions of them. Throws Error(BadInput) if the batch has
/// another number of targets per sample, or, naming sample, position and value, if one is not in
/// least..classes-1. `least`: -1 where positions may have no target.
std::span<const std::int32_t> targets_of(const MicroBatch& slice,
                                         int positions,
                                         int classes,
                                         int least = 0);

/// The lengths of a slice's samples, of `positions` each; all of them where the batch has none.
/// Throws Error(BadInput), naming the sample, for a length that is not in 1..positions.
std::vector<std::int32_t> lengths_of(const MicroBatch& slice, int positions);

/// A text and its translation.
struct TextWithTranslation {
    std::string from;  ///< language
    std::string into;  ///< language
    std::string text;
    std::string translation;
};

/// Mini-batches without end; the content of batch `step` depends on (seed, step) alone.
class DataSource {
  public:
    virtual ~DataSource() = default;
    /// The mini-batch of a step, which counts from 0.
    virtual Batch batch(int step, int samples) const = 0;
    /// "text, 303076 bytes in 17 files": for the log.
    virtual std::string description() const = 0;
    /// At most `most` texts with their translations from each language into each, spread over the
    /// data; empty where the data are no such texts.
    virtual std::vector<TextWithTranslation> translated_texts(std::size_t /*most*/) const {
        return {};
    }
    /// What the texts with translations are cut into.
    virtual TextPieces text_pieces() const { return {}; }
    /// What a user should know of the data: how much there is, and what was left out of it.
    virtual std::vector<std::string> notes() const { return {}; }
    /// Adds every byte that was read from files to the hash, in a fixed order; it takes as long as
    /// reading them.
    virtual void add_content(ContentHash& /*hash*/) const {}
    /// Bytes of files that `check` has to look at; 0: opening the data has looked at everything.
    virtual std::size_t unchecked_bytes() const { return 0; }
    /// Looks at all that no batch may have, and that opening has not looked at. Throws
    /// Error(BadInput), naming file, byte and value. `goes_on` is asked now and then; false: the
    /// function returns early. May run beside `batch`, which finds the same, but only in what it
    /// draws.
    virtual void check(const std::function<bool()>& /*goes_on*/) const {}
};

/// Use of the data. Training and validation have no sample in common, unless two of the user's
/// files do.
enum class DataUse { Training, Validation };

/// Opens the data that a scenario names. Throws Error(BadInput), naming path, what was found and
/// what was expected; Error(Io).
std::unique_ptr<DataSource> open_data(const ScenarioParts& scenario,
                                      const Model& model,
                                      DataUse use = DataUse::Training);

}  // namespace pipetwin::exec

// SPDX-License-Identifier: Apache-2.0
#include "exec/training/exported_weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/interop/hf_folder.h"
#include "core/interop/hf_names.h"
#include "core/interop/hf_trainable.h"
#include "core/interop/safetensors.h"
#include "exec/base/durable_file.h"
#include "exec/executor/backend.h"
#include "exec/training/checkpoint.h"
#include "exec/training/parameter_shapes.h"

namespace pipetwin::exec {
namespace {

/// The words of a type of numbers in safetensors and in config.json.
struct PublishedType {
    std::string_view dtype;
    std::string_view in_config;
};

PublishedType published_type(Precision precision) {
    switch (precision) {
        case Precision::Fp32:
            return {"F32", "float32"};
        case Precision::Fp64:
            return {"F64", "float64"};
        case Precision::Bf16:
            return {"BF16", "bfloat16"};
    }
    throw InternalError("a precision");
}

/// Writes tensors in an order that is known before, into one file or several.
class ShardWriter {
  public:
    ShardWriter(std::filesystem::path folder,
                const HfNames& names,
                std::string_view dtype,
                Bytes most_bytes)
        : folder_(std::move(folder)) {
        const std::int64_t size = bytes_of_dtype(dtype);
        std::int64_t in_shard = 0;
        for (const HfParameter& parameter : names.parameters) {
            for (const HfSlice& slice : parameter.slices) {
                SafetensorsEntry entry{
                    .name = slice.tensor, .dtype = std::string(dtype), .shape = slice.shape};
                const std::int64_t bytes = value_count(entry, slice.tensor) * size;
                if (shards_.empty() || in_shard + bytes > most_bytes.count) {
                    shards_.emplace_back().metadata = {{"format", "pt"}};
                    in_shard = 0;
                }
                in_shard += bytes;
                total_ += bytes;
                shards_.back().tensors.push_back(std::move(entry));
            }
        }
    }

    std::int64_t shard_count() const { return std::ssize(shards_); }

    /// Writes the bytes of the next tensor.
    void write(std::span<const std::byte> bytes) {
        SafetensorsHeader& shard = shards_.at(shard_);
        if (!file_) {
            file_.emplace(folder_ / name_of(shard_));
            place_tensors(shard);
            file_->write(print_safetensors_header(shard));
        }
        const SafetensorsEntry& entry = shard.tensors.at(tensor_);
        PIPETWIN_EXPECT(entry.end - entry.begin == std::ssize(bytes), "the bytes of this tensor");
        file_->write(bytes);
        if (++tensor_ == shard.tensors.size()) {
            file_->finish();
            file_.reset();
            tensor_ = 0;
            ++shard_;
        }
    }

    /// Writes the index, where there are several files.
    void finish() {
        PIPETWIN_EXPECT(shard_ == shards_.size(), "all tensors were written");
        if (shards_.size() == 1) {
            return;
        }
        nlohmann::ordered_json map = nlohmann::ordered_json::object();
        for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
            for (const SafetensorsEntry& entry : shards_[shard].tensors) {
                map[entry.name] = name_of(shard);
            }
        }
        const nlohmann::ordered_json index{{"metadata", {{"total_size", total_}}},
                                           {"weight_map", std::move(map)}};
        DurableFile file(folder_ / hf_file::index);
        file.write(index.dump(2) + '\n');
        file.finish();
    }

  private:
    std::string name_of(std::size_t shard) const {
        return shards_.size() == 1
                   ? std::string(hf_file::weights)
                   : fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards_.size());
    }

    std::filesystem::path folder_;
    std::vector<SafetensorsHeader> shards_;
    std::int64_t total_ = 0;
    std::size_t shard_ = 0;   ///< of the next tensor
    std::size_t tensor_ = 0;  ///< in it
    std::optional<DurableFile> file_;
};

/// The bytes of a slice of a parameter, as the files have them.
std::vector<std::byte> bytes_of_slice(std::span<const std::byte> parameter,
                                      std::int64_t parameter_columns,
                                      const HfSlice& slice,
                                      std::size_t size) {
    if (!slice.transposed) {
        return {parameter.begin(), parameter.end()};
    }
    const std::int64_t outputs = slice.shape.front();
    const std::int64_t inputs = slice.shape.back();
    std::vector<std::byte> bytes(as_index(outputs * inputs) * size);
    constexpr std::int64_t block = 64;
    for (std::int64_t first = 0; first < outputs; first += block) {
        const std::int64_t last = std::min(first + block, outputs);
        for (std::int64_t input = 0; input < inputs; ++input) {
            const std::byte* const row =
                parameter.data() + as_index(input * parameter_columns + slice.first_column) * size;
            for (std::int64_t output = first; output < last; ++output) {
                std::memcpy(bytes.data() + as_index(output * inputs + input) * size,
                            row + as_index(output) * size,
                            size);
            }
        }
    }
    return bytes;
}

[[noreturn]] void refuse_run_without_checkpoint(const std::filesystem::path& checkpoints) {
    throw Error(ErrorKind::BadInput,
                checkpoints.string(),
                "no checkpoint: a run that ends within ten minutes keeps none by default",
                "train with --set output.checkpoint_every=N, which writes one every N steps and at "
                "the end");
}

}  // namespace

ExportedWeights export_weights(const ScenarioParts& scenario,
                               const Model& model,
                               const std::filesystem::path& checkpoints,
                               const std::filesystem::path& to,
                               Bytes most_bytes) {
    const HfNames names = hf_names(scenario.model);
    const PublishedType type = published_type(scenario.training.precision);
    const ParameterShapes shapes(
        model,
        number_format(scenario.training.precision, scenario.cluster.backend),
        scenario.training.optimizer,
        scenario.training.average_decay > 0);
    TrainedParameters parameters = shapes.parameters();
    std::map<const Tensor*, const HfParameter*> named;
    const std::vector<Parameter*>& all = parameters.pieces.front();
    PIPETWIN_EXPECT(all.size() == names.parameters.size(),
                    "every parameter of the model has a name in the files");
    for (std::size_t i = 0; i < all.size(); ++i) {
        PIPETWIN_EXPECT(all[i]->name == names.parameters[i].name, "names are in model order");
        named[&all[i]->value] = &names.parameters[i];
    }
    ShardWriter writer(to, names, type.dtype, most_bytes);
    ExportedWeights written{.checkpoint = {}, .damaged = {}, .files = writer.shard_count()};
    parameters.write = [&](std::span<const std::byte> from, Tensor& tensor) {
        const auto found = named.find(&tensor);
        if (found == named.end()) {
            return;  // state of the optimizer
        }
        const HfParameter& parameter = *found->second;
        for (const HfSlice& slice : parameter.slices) {
            writer.write(bytes_of_slice(from, parameter.columns, slice, size_of(tensor.dtype())));
        }
        written.numbers += tensor.size();
    };
    const auto loaded = Checkpoints(checkpoints).load(parameters);
    if (!loaded) {
        refuse_run_without_checkpoint(checkpoints);
    }
    writer.finish();
    DurableFile config(to / hf_file::config);
    config.write(print_hf_config(scenario.model, type.in_config));
    config.finish();
    flush_folder(to);
    written.steps_done = loaded->about.steps_done;
    written.checkpoint = loaded->folder;
    written.damaged = loaded->damaged;
    return written;
}

}  // namespace pipetwin::exec

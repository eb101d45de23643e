// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/cli/support.h"

namespace pipetwin::cli {

/// What no flag says.
inline const std::string between_nodes = "cluster.node_link=infiniband-ndr";

class ImportMegatron : public InFolder {
  protected:
    Outcome import(std::string_view content, const std::vector<std::string>& more = {}) const {
        std::vector<std::string> args{
            "import", "megatron", file("train.sh", content), "--force", "--out", path("x.toml")};
        args.insert(args.end(), more.begin(), more.end());
        return pipetwin(args);
    }

    std::string fragment(std::string_view content,
                         const std::vector<std::string>& more = {}) const {
        const Outcome outcome = import(content, more);
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        return outcome.code == 0 ? content_of(path("x.toml")) : "";
    }
};

/// Llama 3 8B, as its makers published it: 8,030,261,248 parameters.
inline constexpr std::string_view llama_8b =
    "NUM_LAYERS=${NUM_LAYERS:-32}\n"
    "MODEL_ARGS=(\n"
    "    --num-layers $NUM_LAYERS --hidden-size 4096 --ffn-hidden-size 14336\n"
    "    --num-attention-heads 32 --group-query-attention --num-query-groups 8\n"
    "    --seq-length 8192 --max-position-embeddings 8192 --position-embedding-type rope\n"
    "    --normalization RMSNorm --swiglu --disable-bias-linear\n"
    "    --untie-embeddings-and-output-weights --vocab-size 128256 --bf16 --use-flash-attn\n"
    "    --hidden-dropout 0 --attention-dropout 0\n"
    ")\n"
    "torchrun --nproc_per_node 8 pretrain_gpt.py ${MODEL_ARGS[@]} \\\n"
    "    --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 4 \\\n"
    "    --micro-batch-size 1 --global-batch-size 128 --use-distributed-optimizer --lr 3e-4 ";

struct Said {
    std::string flags;
    std::string lines;  ///< of the fragment
};

inline constexpr std::string_view launcher =
    "torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py ";

/// Llama 3 8B on 16 devices, in `stages` stages.
inline std::string llama_in(int stages) {
    return std::string(launcher) +
           "--num-layers 32 --hidden-size 4096 "
           "--ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention "
           "--num-query-groups 8 --seq-length 4096 --max-position-embeddings 4096 "
           "--position-embedding-type rope --normalization RMSNorm --swiglu "
           "--disable-bias-linear --untie-embeddings-and-output-weights --vocab-size 128256 "
           "--hidden-dropout 0 --attention-dropout 0 --micro-batch-size 1 "
           "--global-batch-size 32 --bf16 --pipeline-model-parallel-size " +
           std::to_string(stages) + " ";
}

/// The lines that stand in [training] and [pipeline] of a fragment.
inline std::string tables_of(const std::string& fragment) {
    const std::size_t begin = fragment.find("[training]");
    return fragment.substr(begin, fragment.find("[cluster]") - begin);
}

inline constexpr std::string_view small_gpt =
    "--num-layers 24 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 "
    "--max-position-embeddings 1024 --vocab-size 32000 --pipeline-model-parallel-size 4 "
    "--micro-batch-size 1 ";

}  // namespace pipetwin::cli

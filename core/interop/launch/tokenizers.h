// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

namespace pipetwin {

/// Words of a published tokenizer, special ones among them (the length that Hugging Face's
/// tokenizer has, before a program pads it), by the name of a model, "meta-llama/Llama-3.1-8B", or
/// by the type that Megatron-LM has for it, "GPT2BPETokenizer". None: not known here.
/// Source: tokenizer.json, tokenizer_config.json and model cards of the models; of Qwen 2.5, Qwen 3
/// and gpt-oss also huggingface/trl, pull requests 7098, 7106 and 7108; of DeepSeek-V4
/// vllm-project/vllm, 51727.
std::optional<int> tokenizer_words(std::string_view name);

}  // namespace pipetwin

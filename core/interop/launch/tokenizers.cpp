// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/tokenizers.h"

#include <algorithm>
#include <array>
#include <string>

#include "core/base/ascii.h"

namespace pipetwin {

namespace {

struct TokenizerRow {
    std::string_view begin;  ///< of the part of a name behind its last '/', in small letters
    int words;
    bool is_whole = false;  ///< true: nothing follows in the name
};

/// A name matches the longest begin.
constexpr auto tokenizer_rows = std::to_array<TokenizerRow>({
    {"gpt2bpetokenizer", 50'257},
    {"gpt2", 50'257, true},
    {"gpt2-medium", 50'257, true},
    {"gpt2-large", 50'257, true},
    {"gpt2-xl", 50'257, true},
    {"gpt-neox-20b", 50'277},
    {"pythia-", 50'277},
    {"llama-2-7b", 32'000},
    {"llama-2-13b", 32'000},
    {"llama-2-70b", 32'000},
    {"meta-llama-3", 128'256},
    {"llama-3", 128'256},
    {"mistral-7b-v0.1", 32'000},
    {"mistral-7b-instruct-v0.1", 32'000},
    {"mistral-7b-instruct-v0.2", 32'000},
    {"mistral-7b-v0.3", 32'768},
    {"mistral-7b-instruct-v0.3", 32'768},
    {"mixtral-8x7b-", 32'000},
    {"mixtral-8x22b-v0.1", 32'000},
    {"gemma-2b", 256'000},
    {"gemma-7b", 256'000},
    {"gemma-2-", 256'000},
    {"qwen2-", 151'646},
    {"qwen2.5-", 151'665},
    {"qwen3-", 151'669},
    {"deepseek-v3", 128'815, true},
    {"deepseek-v3-base", 128'815, true},
    {"deepseek-v3-0324", 128'815, true},
    {"deepseek-r1", 128'815, true},
    {"deepseek-v4-", 129'280},
    {"moonlight-16b-a3b", 163'840},
    {"kimi-k2", 163'840},
    {"gpt-oss-20b", 200'019},
    {"gpt-oss-120b", 200'019},
});

}  // namespace

std::optional<int> tokenizer_words(std::string_view name) {
    while (name.ends_with('/')) {
        name.remove_suffix(1);
    }
    std::string plain(name.substr(name.find_last_of('/') + 1));
    std::ranges::transform(plain, plain.begin(), [](char c) { return ascii::lower(c); });
    const TokenizerRow* best = nullptr;
    for (const TokenizerRow& row : tokenizer_rows) {
        const bool fits = row.is_whole ? plain == row.begin : plain.starts_with(row.begin);
        if (fits && (best == nullptr || row.begin.size() > best->begin.size())) {
            best = &row;
        }
    }
    return best == nullptr ? std::nullopt : std::optional(best->words);
}

}  // namespace pipetwin

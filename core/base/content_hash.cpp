// SPDX-License-Identifier: Apache-2.0
#include "core/base/content_hash.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace pipetwin {

struct ContentHash::State {
    XXH3_state_t of_bytes;
};

ContentHash::ContentHash() : state_(std::make_unique<State>()) {
    XXH3_128bits_reset(&state_->of_bytes);
}

ContentHash::~ContentHash() = default;

void ContentHash::add(std::span<const std::byte> bytes) {
    XXH3_128bits_update(&state_->of_bytes, bytes.data(), bytes.size());
}

std::string ContentHash::digits() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(&state_->of_bytes);
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string content_hash(std::string_view text) {
    ContentHash hash;
    hash.add(std::as_bytes(std::span(text)));
    return hash.digits();
}

}  // namespace pipetwin

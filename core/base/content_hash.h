// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace pipetwin {

/// XXH3 with 128 bits, which finds what accidents do to bytes; it is no protection from intent.
class ContentHash {
  public:
    ContentHash();
    ContentHash(const ContentHash&) = delete;
    ContentHash& operator=(const ContentHash&) = delete;
    ~ContentHash();

    /// Adds the bytes to what is hashed; several calls hash as one with all the bytes would.
    void add(std::span<const std::byte> bytes);
    /// 32 hex digits of everything that was added.
    std::string digits() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

/// XXH3 128 of the text's bytes, as 32 hex digits.
std::string content_hash(std::string_view text);

}  // namespace pipetwin

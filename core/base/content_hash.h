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

    void add(std::span<const std::byte> bytes);
    /// 32 hex digits of everything that was added.
    std::string digits() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

std::string content_hash(std::string_view text);

}  // namespace pipetwin

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace pipetwin::exec {

/// Values as bytes for another process of the same build, one after the other.
class ByteWriter {
  public:
    /// Appends one value.
    template <class T>
    ByteWriter& put(const T& value) {
        static_assert(std::is_trivially_copyable_v<T>);
        const auto bytes = std::as_bytes(std::span(&value, 1));
        bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
        return *this;
    }
    /// Appends the number of values, then the values.
    template <class T>
    ByteWriter& put_all(std::span<const T> values) {
        static_assert(std::is_trivially_copyable_v<T>);
        put(values.size());
        const auto bytes = std::as_bytes(values);
        bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
        return *this;
    }
    /// Appends a text, its length first.
    ByteWriter& put_text(const std::string& text) {
        return put_all(std::span<const char>(text.data(), text.size()));
    }
    /// Appends an error; of its hint what it says, not its values.
    ByteWriter& put_error(const Error& error) {
        Hint hint = error.advice();
        hint.resume.clear();
        put(error.kind()).put(error.reason()).put_text(error.place()).put_text(error.text());
        return put_text(hint.text()).put_text(error.advice().resume);
    }

    std::span<const std::byte> bytes() const { return bytes_; }

  private:
    std::vector<std::byte> bytes_;
};

/// Reads what a ByteWriter wrote, in its order. Throws InternalError past the end.
class ByteReader {
  public:
    explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

    /// The next value.
    template <class T>
    T get() {
        T value{};
        std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
        return value;
    }
    /// The values of the next `put_all`.
    template <class T>
    std::vector<T> get_all() {
        std::vector<T> values(get<std::size_t>());
        if (!values.empty()) {
            std::memcpy(
                values.data(), take(values.size() * sizeof(T)).data(), values.size() * sizeof(T));
        }
        return values;
    }
    /// The text of the next `put_text`.
    std::string get_text() {
        const std::vector<char> letters = get_all<char>();
        return {letters.begin(), letters.end()};
    }
    /// The error of the next `put_error`.
    Error get_error() {
        const auto kind = get<ErrorKind>();
        const auto reason = get<ErrorReason>();
        const std::string place = get_text();
        const std::string text = get_text();
        Hint hint = get_text();
        hint.resume = get_text();
        return Error(kind, place, text, std::move(hint)).because(reason);
    }
    bool at_end() const { return bytes_.empty(); }

  private:
    std::span<const std::byte> take(std::size_t count) {
        PIPETWIN_EXPECT(count <= bytes_.size(), "a message is as long as it says");
        const auto taken = bytes_.first(count);
        bytes_ = bytes_.subspan(count);
        return taken;
    }

    std::span<const std::byte> bytes_;
};

}  // namespace pipetwin::exec

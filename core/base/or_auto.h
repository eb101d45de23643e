// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace pipetwin {

/// A value, or "auto": then a search finds one, among all or among the choices that are named.
template <class T>
class OrAuto {
  public:
    using value_type = T;

    /// "auto", with every choice.
    OrAuto() = default;
    /// The value.
    template <class Value = T>
        requires std::convertible_to<Value, T> &&
                 (!std::same_as<std::remove_cvref_t<Value>, OrAuto>)
    OrAuto(Value&& value) : value_(std::forward<Value>(value)) {}  // NOLINT: as std::optional
    /// The value; none: "auto", with every choice.
    OrAuto(std::optional<T> value) : value_(std::move(value)) {}  // NOLINT: as above

    /// Makes it "auto"; a search takes one of the choices, or any value where none is named.
    void open(std::vector<T> choices = {}) {
        value_.reset();
        choices_ = std::move(choices);
    }

    bool is_auto() const { return !value_.has_value(); }
    /// The value; it is not "auto".
    const T& operator*() const { return *value_; }
    /// A member of the value; it is not "auto".
    const T* operator->() const { return &*value_; }
    /// The value; for "auto" `otherwise`.
    T value_or(T otherwise) const { return value_.value_or(std::move(otherwise)); }
    /// The value; none for "auto".
    const std::optional<T>& known() const { return value_; }
    /// Values that "auto" stands for; empty: any.
    const std::vector<T>& choices() const { return choices_; }
    /// Whether it is `value`, or "auto" and may become that.
    bool allows(const T& value) const {
        return value_ ? *value_ == value
                      : choices_.empty() || std::ranges::find(choices_, value) != choices_.end();
    }

    bool operator==(const OrAuto&) const = default;
    /// Whether it is this value, and not "auto".
    template <class Value>
        requires std::convertible_to<Value, T> && (!std::same_as<Value, OrAuto>)
    bool operator==(const Value& value) const {
        return value_ && *value_ == value;
    }

  private:
    std::optional<T> value_;
    std::vector<T> choices_;
};

}  // namespace pipetwin

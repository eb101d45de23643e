// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <iterator>

namespace pipetwin {

/// The part of an input iterator over characters that nlohmann's parser needs and that is alike for
/// all inputs. `Derived` adds `current()`, `next()` and `==`.
template <class Derived>
class InputIterator {
  public:
    // The types that std::iterator_traits asks for.
    using iterator_category = std::input_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = const char*;
    using reference = const char&;

    reference operator*() const { return static_cast<const Derived&>(*this).current(); }
    Derived& operator++() {
        static_cast<Derived&>(*this).next();
        return static_cast<Derived&>(*this);
    }
    Derived operator++(int) {
        const Derived before = static_cast<const Derived&>(*this);
        ++*this;
        return before;
    }

  private:
    friend Derived;
    InputIterator() = default;
};

}  // namespace pipetwin

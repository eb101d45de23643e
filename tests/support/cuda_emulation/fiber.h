// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>

namespace pipetwin::cuda::emulation {

/// A function with a stack of its own that can stop in its midst and go on later. Its body may not
/// throw. The stack is made once and serves one body after the other; a body that is never resumed
/// is forgotten without unwinding.
class Fiber {
  public:
    Fiber();
    Fiber(const Fiber&) = delete;
    Fiber(Fiber&&) = delete;
    Fiber& operator=(const Fiber&) = delete;
    Fiber& operator=(Fiber&&) = delete;
    ~Fiber();

    void start(std::function<void()> body);
    /// Runs the body until it pauses or ends.
    void resume();
    /// Called by the body: gives way to whoever resumed it.
    void pause();

  private:
    static void enter(Fiber* self);

    std::byte* memory_ = nullptr;  ///< a page that must not be touched, then the stack
    std::function<void()> body_;
    bool ended_ = true;
    void* fiber_pointer_ = nullptr;  ///< the stack pointer where it stopped
    void* caller_pointer_ = nullptr;
    // What the address sanitizer wants to know.
    [[maybe_unused]] void* fiber_frames_ = nullptr;
    [[maybe_unused]] const void* caller_stack_ = nullptr;
    [[maybe_unused]] std::size_t caller_stack_bytes_ = 0;
};

}  // namespace pipetwin::cuda::emulation

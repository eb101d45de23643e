// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda_emulation/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#define PIPETWIN_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PIPETWIN_ADDRESS_SANITIZER 1
#endif
#endif

#ifdef PIPETWIN_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if !defined(__x86_64__)
#error "the emulation of CUDA switches stacks on x86-64 only"
#endif

// Saves what a function must preserve on this stack, stores its pointer, and goes on where the
// other stack stopped. The library's swapcontext does the same, with two system calls each time.
extern "C" void pipetwin_switch_stack(void** store, void* other);
asm(R"(
.text
.p2align 4
.type pipetwin_switch_stack, @function
pipetwin_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size pipetwin_switch_stack, . - pipetwin_switch_stack
.type pipetwin_enter_fiber, @function
pipetwin_enter_fiber:
    movq %r12, %rdi
    call *%r13
    ud2
.size pipetwin_enter_fiber, . - pipetwin_enter_fiber
)");
extern "C" void pipetwin_enter_fiber();

namespace pipetwin::cuda::emulation {
namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t stack_bytes = 64 * page_bytes;

}  // namespace

Fiber::Fiber() {
    void* const memory = mmap(nullptr,
                              page_bytes + stack_bytes,
                              PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                              -1,
                              0);
    if (memory == MAP_FAILED || mprotect(memory, page_bytes, PROT_NONE) != 0) {
        throw std::bad_alloc();
    }
    memory_ = static_cast<std::byte*>(memory);
}

Fiber::~Fiber() {
    munmap(memory_, page_bytes + stack_bytes);
}

void Fiber::start(std::function<void()> body) {
    body_ = std::move(body);
#ifdef PIPETWIN_ADDRESS_SANITIZER
    if (!ended_) {  // the frames of a body that was forgotten
        ASAN_UNPOISON_MEMORY_REGION(memory_ + page_bytes, stack_bytes);
    }
#endif
    ended_ = false;
    // What pipetwin_switch_stack pops: r15, r14, r13, r12, rbx, rbp and where to return to. A zero
    // above it ends the stack for debuggers, and a call there finds the stack aligned to 16 bytes.
    auto* top = reinterpret_cast<std::uintptr_t*>(memory_ + page_bytes + stack_bytes) - 9;
    fiber_pointer_ = top;
    *top++ = 0;
    *top++ = 0;
    *top++ = reinterpret_cast<std::uintptr_t>(&Fiber::enter);
    *top++ = reinterpret_cast<std::uintptr_t>(this);
    *top++ = 0;
    *top++ = 0;
    *top++ = reinterpret_cast<std::uintptr_t>(&pipetwin_enter_fiber);
    *top = 0;
    fiber_frames_ = nullptr;
}

void Fiber::resume() {
#ifdef PIPETWIN_ADDRESS_SANITIZER
    void* frames = nullptr;
    __sanitizer_start_switch_fiber(&frames, memory_ + page_bytes, stack_bytes);
#endif
    pipetwin_switch_stack(&caller_pointer_, fiber_pointer_);
#ifdef PIPETWIN_ADDRESS_SANITIZER
    __sanitizer_finish_switch_fiber(frames, nullptr, nullptr);
#endif
}

void Fiber::pause() {
#ifdef PIPETWIN_ADDRESS_SANITIZER
    __sanitizer_start_switch_fiber(&fiber_frames_, caller_stack_, caller_stack_bytes_);
#endif
    pipetwin_switch_stack(&fiber_pointer_, caller_pointer_);
#ifdef PIPETWIN_ADDRESS_SANITIZER
    __sanitizer_finish_switch_fiber(fiber_frames_, &caller_stack_, &caller_stack_bytes_);
#endif
}

void Fiber::enter(Fiber* self) {
#ifdef PIPETWIN_ADDRESS_SANITIZER
    __sanitizer_finish_switch_fiber(nullptr, &self->caller_stack_, &self->caller_stack_bytes_);
#endif
    self->body_();
    self->ended_ = true;
#ifdef PIPETWIN_ADDRESS_SANITIZER
    __sanitizer_start_switch_fiber(nullptr, self->caller_stack_, self->caller_stack_bytes_);
#endif
    pipetwin_switch_stack(&self->fiber_pointer_, self->caller_pointer_);
    std::abort();  // nobody resumes a body that has ended
}

}  // namespace pipetwin::cuda::emulation

// SPDX-License-Identifier: Apache-2.0
#pragma once

// How loops of a baseline build run at the speed of the machine they find themselves on.

/// Compiles a function once for each of these instruction sets; the best one is chosen when the
/// program starts. Every clone gives the same bits: without contraction and reassociation the width
/// of a vector changes nothing, and where a multiply-add is asked for, the oldest machine, which
/// has none, calls a function that rounds once as well. GCC only, and not under sanitizers, whose
/// run time is not there yet when the choice is made.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define PIPETWIN_SIMD_TARGETS \
    __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define PIPETWIN_SIMD_TARGETS
#endif

/// Before a loop whose output may be its input, element by element, and overlaps it in no other
/// way: without the promise the compiler checks at run time and takes the slow path.
#if defined(__clang__)
#define PIPETWIN_ELEMENTWISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define PIPETWIN_ELEMENTWISE _Pragma("GCC ivdep")
#endif

#define PIPETWIN_INLINE [[gnu::always_inline]] inline

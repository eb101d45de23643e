// SPDX-License-Identifier: Apache-2.0

/// What sanitizers ask a program that is built with them.

#if defined(__SANITIZE_THREAD__)

extern "C" const char* __tsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier)

/// oneDNN is not built with it, so what two threads do there looks as if nothing kept them apart.
extern "C" const char* __tsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
    return "race:libdnnl.so\n";
}

#endif

#if defined(__SANITIZE_ADDRESS__)

extern "C" const char* __asan_default_options();  // NOLINT(bugprone-reserved-identifier)

/// Where thread-local variables of modules lie it finds out by reading what comes before them,
/// which is not what it takes it for with glibc 2.36: looking for leaks then ends with a crash.
/// Where undefined behaviour traps (PIPETWIN_SANITIZER_TRAPS) it prints the stack.
extern "C" const char* __asan_default_options() {  // NOLINT(bugprone-reserved-identifier)
    return "intercept_tls_get_addr=0:handle_sigill=1";
}

extern "C" const char* __lsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier)

/// Libraries behind PDF and PNG keep what they know of fonts until the program ends.
extern "C" const char* __lsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
    return "leak:libfontconfig\nleak:libpango\nleak:librsvg\n";
}

#endif

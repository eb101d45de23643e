/// What sanitizers ask a program that is built with them.

#if defined(__SANITIZE_THREAD__)

extern "C" const char* __tsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier)

/// oneDNN is not built with it, so what two threads do there looks as if nothing kept them apart.
extern "C" const char* __tsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
    return "race:libdnnl.so\n";
}

#endif

#include "cli/base/exit.h"

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <new>
#include <system_error>
#include <utility>

namespace pipetwin::cli {

namespace {

/// Converts an exception to an Error: one that is not ours gets the kind that fits it best.
Error as_error(const std::exception& exception) {
    if (const auto* error = dynamic_cast<const Error*>(&exception)) {
        return *error;
    }
    if (dynamic_cast<const std::system_error*>(&exception) != nullptr) {
        return {ErrorKind::Io, "", exception.what()};
    }
    if (dynamic_cast<const std::bad_alloc*>(&exception) != nullptr) {
        return {ErrorKind::Other,
                "",
                "out of memory",
                "make the model or the batch smaller, or set cluster.memory_limit to be told "
                "before the start"};
    }
    return {ErrorKind::Other, "", exception.what()};
}

}  // namespace

/// The one table of exit codes; a contract, see docs/cli.md.
int exit_code(ErrorKind kind) {
    switch (kind) {
        case ErrorKind::Other:
            return 1;
        case ErrorKind::Usage:
            return 2;
        case ErrorKind::BadInput:
            return 3;
        case ErrorKind::Infeasible:
            return 4;
        case ErrorKind::Unavailable:
            return 5;
        case ErrorKind::Io:
            return 6;
        case ErrorKind::WorkerFailed:
            return 7;
        case ErrorKind::Hang:
            return 8;
        case ErrorKind::NotFinite:
            return 9;
        case ErrorKind::Disagreement:
            return 10;
    }
    return 1;
}

int exit_code_of(const std::exception_ptr& failure) {
    try {
        std::rethrow_exception(failure);
    } catch (const NothingLeft&) {
        return 0;
    } catch (const Stopped& stopped) {
        return 128 + stopped.signal();
    } catch (const ReportedByPeer& said) {
        return said.exit_code();
    } catch (const std::exception& exception) {
        return exit_code(as_error(exception).kind());
    }
}

int report_failure(std::exception_ptr failure, Console& console) {
    const int code = exit_code_of(failure);
    try {
        std::rethrow_exception(std::move(failure));
    } catch (const ReportedByPeer&) {
        return code;
    } catch (const NothingLeft& nothing) {
        console.note(nothing.what());
        return code;
    } catch (const Stopped& stopped) {
        console.note(stopped.what());
        return code;
    } catch (const std::exception& exception) {
        console.error(as_error(exception));
        return code;
    }
}

void end_program(int code) {
    if (code != exit_code(ErrorKind::Hang)) {
        std::exit(code);
    }
    std::cout.flush();
    std::cerr.flush();
    std::fflush(nullptr);
    std::_Exit(code);
}

}  // namespace pipetwin::cli

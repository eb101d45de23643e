// SPDX-License-Identifier: Apache-2.0
#include "cli/base/exit.h"

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/base/io_hint.h"
#include "core/base/undertaking.h"

namespace pipetwin::cli {

namespace {

/// What can be done about a failure of a kind where nothing better is known.
std::string hint_of(ErrorKind kind) {
    switch (kind) {
        case ErrorKind::Usage:
            return "'pipetwin --help' lists the commands, 'pipetwin COMMAND --help' their options";
        case ErrorKind::BadInput:
            return "correct it there; docs/formats.md and docs/scenario.md say what is expected";
        case ErrorKind::Infeasible:
            return "change what it names; 'pipetwin plan' finds plans that can be run";
        case ErrorKind::Unavailable:
            return "'pipetwin devices' lists what this machine has";
        case ErrorKind::Io:
            return "'ls -ld' shows whether the file is there, and who may read and write it";
        case ErrorKind::WorkerFailed:
        case ErrorKind::Hang:
        case ErrorKind::NotFinite:
        case ErrorKind::Disagreement:
            return "--resume continues from the last checkpoint once the cause is gone";
        case ErrorKind::Other:
            break;
    }
    return "this should not happen: please report it, with the command and its files";
}

/// Names what was too large, and what would do.
Error out_of_memory() {
    FailedUndertaking failed = take_failed_undertaking();
    if (failed.what.empty()) {
        return {ErrorKind::Other,
                "",
                "out of memory",
                "make the model, the batch or the file smaller, or set cluster.memory_limit, which "
                "refuses before the start what does not fit"};
    }
    return {ErrorKind::Other,
            "",
            fmt::format("out of memory: there is not enough for {}", failed.what),
            std::move(failed.remedy)};
}

/// Whether the system gave no further thread; oneTBB says so in words alone.
bool is_lack_of_threads(const std::exception& exception) {
    const auto* system = dynamic_cast<const std::system_error*>(&exception);
    return system != nullptr
               ? system->code() == std::errc::resource_unavailable_try_again
               : std::string_view(exception.what()).starts_with("pthread_create has failed");
}

/// The kind of a failure, ours or not.
ErrorKind kind_of(const std::exception& exception) {
    if (const auto* error = dynamic_cast<const Error*>(&exception)) {
        return error->kind();
    }
    if (is_lack_of_threads(exception)) {
        return ErrorKind::Unavailable;
    }
    return dynamic_cast<const std::system_error*>(&exception) != nullptr ? ErrorKind::Io
                                                                         : ErrorKind::Other;
}

/// Converts an exception to an Error: one that is not ours gets the kind that fits it best.
Error as_error(const std::exception& exception) {
    if (const auto* error = dynamic_cast<const Error*>(&exception)) {
        return *error;
    }
    if (is_lack_of_threads(exception)) {
        return {ErrorKind::Unavailable,
                "",
                fmt::format("the system starts no more threads or processes: {}", exception.what()),
                "raise the limit ('ulimit -u' shows it, 'ulimit -v' that of memory), or use fewer "
                "stages and replicas"};
    }
    if (const auto* error = dynamic_cast<const std::system_error*>(&exception)) {
        return {ErrorKind::Io, "", error->what(), io_hint(error->code().value())};
    }
    if (dynamic_cast<const std::bad_alloc*>(&exception) != nullptr ||
        dynamic_cast<const std::length_error*>(&exception) != nullptr) {
        return out_of_memory();
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
    } catch (const GateError& gate) {
        return gate.exit_code();
    } catch (const std::exception& exception) {
        return exit_code(kind_of(exception));
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
    } catch (const GateError& gate) {
        console.error(gate.error());
        return code;
    } catch (const std::exception& exception) {
        const Error error = as_error(exception);
        console.error(error.hint().empty() ? error.with_hint(hint_of(error.kind())) : error);
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

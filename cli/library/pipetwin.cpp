// SPDX-License-Identifier: Apache-2.0
#include "cli/library/pipetwin.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "cli/library/question.h"
#include "core/base/as_index.h"
#include "core/base/version.h"
#include "core/schedule/action.h"
#include "core/svg/svg.h"

// The functions of pipetwin.h. None lets an exception out.

struct pipetwin_question {
    explicit pipetwin_question(std::string command) : asked(std::move(command)) {}

    pipetwin::cli::Question asked;
};

struct pipetwin_answer {
    pipetwin::cli::Answer given;
};

namespace pipetwin::cli {

namespace {

/// Handles that are alive, so that others can be told from them.
template <class Handle>
class Handles {
  public:
    std::shared_ptr<Handle> find(const Handle* handle) {
        const std::scoped_lock lock(mutex_);
        const auto found = alive_.find(handle);
        return found == alive_.end() ? nullptr : *found;
    }
    Handle* add(std::shared_ptr<Handle> handle) {
        const std::scoped_lock lock(mutex_);
        return alive_.insert(std::move(handle)).first->get();
    }
    void remove(const Handle* handle) {
        std::shared_ptr<Handle> last;  // destroyed behind the lock
        const std::scoped_lock lock(mutex_);
        if (const auto found = alive_.find(handle); found != alive_.end()) {
            last = *found;
            alive_.erase(found);
        }
    }
    std::mutex& mutex() { return mutex_; }

  private:
    struct ByAddress {
        using is_transparent = void;
        static const Handle* address(const Handle* handle) { return handle; }
        static const Handle* address(const std::shared_ptr<Handle>& handle) { return handle.get(); }
        bool operator()(const auto& a, const auto& b) const {
            return std::less<>()(address(a), address(b));
        }
    };

    std::mutex mutex_;
    std::set<std::shared_ptr<Handle>, ByAddress> alive_;
};

/// Never destroyed: threads of the caller may outlive the end of main.
Handles<pipetwin_question>& questions() {
    static auto* const all = new Handles<pipetwin_question>;
    return *all;
}

Handles<pipetwin_answer>& answers() {
    static auto* const all = new Handles<pipetwin_answer>;
    return *all;
}

/// Held while a picture is drawn.
std::mutex& drawing() {
    static auto* const mutex = new std::mutex;
    return *mutex;
}

void take_locks() {
    drawing().lock();
    questions().mutex().lock();
    answers().mutex().lock();
}

void release_locks() {
    answers().mutex().unlock();
    questions().mutex().unlock();
    drawing().unlock();
}

/// Takes the locks of the library around a fork, so that none is held in the new process by a
/// thread that is not in it.
[[maybe_unused]] const int fork_handlers =
    pthread_atfork(&take_locks, &release_locks, &release_locks);

/// What `act` returns; `otherwise` where there is no memory.
template <class Value, class Act>
Value guarded(Value otherwise, const Act& act) noexcept {
    try {
        return act();
    } catch (...) {
        return otherwise;
    }
}

/// Changes a question that no thread asks; returns as pipetwin_question_word.
template <class Change>
int changed(pipetwin_question* question, const Change& change) noexcept {
    return guarded(-1, [&] {
        const std::shared_ptr<pipetwin_question> found = questions().find(question);
        if (found == nullptr || !found->asked.take()) {
            return -1;
        }
        int result = -1;
        try {
            result = change(found->asked) ? 0 : -1;
        } catch (const std::bad_alloc&) {
            result = -1;
        }
        found->asked.leave();
        return result;
    });
}

/// What `read` says of an answer; `otherwise` for a handle that is none.
template <class Value, class Read>
Value of_answer(const pipetwin_answer* answer, Value otherwise, const Read& read) noexcept {
    return guarded(otherwise, [&] {
        const std::shared_ptr<pipetwin_answer> found = answers().find(answer);
        return found == nullptr ? otherwise : read(found->given);
    });
}

const char* text_of(const std::string& text, std::size_t* size) {
    if (size != nullptr) {
        *size = text.size();
    }
    return text.c_str();
}

const std::string& part_of(const ErrorParts& error, pipetwin_error_part part) {
    switch (part) {
        case PIPETWIN_ERROR_KIND:
            return error.kind;
        case PIPETWIN_ERROR_PLACE:
            return error.place;
        case PIPETWIN_ERROR_FILE:
            return error.file;
        case PIPETWIN_ERROR_KEY:
            return error.key;
        case PIPETWIN_ERROR_HINT:
            return error.hint;
        case PIPETWIN_ERROR_REASON:
            break;
    }
    return error.reason;
}

/// Threads of the search are not there in a process that was forked behind the first question.
bool is_first_process() {
    static std::atomic<pid_t> first = 0;  // 0: nothing was asked yet
    const pid_t own = getpid();
    pid_t found = 0;
    return first.compare_exchange_strong(found, own) || found == own;
}

Answer answer_to(Question& question) {
    if (!is_first_process()) {
        return refused({ErrorKind::Unavailable,
                        "",
                        "this process was forked from one that had asked before, so the threads of "
                        "the library are not in it",
                        "start it anew (in Python: multiprocessing with 'spawn'), or ask only "
                        "behind the fork"});
    }
    if (!question.take()) {
        return refused({ErrorKind::Usage,
                        "",
                        "another thread is asking this question",
                        "make a question for each thread"});
    }
    try {
        Answer answer = question.ask();
        question.leave();
        return answer;
    } catch (...) {
        question.leave();
        throw;
    }
}

// A span is given away as it lies in memory.
static_assert(sizeof(pipetwin_span) == sizeof(Span) && alignof(pipetwin_span) == alignof(Span));
static_assert(sizeof(Op) == sizeof(std::int32_t) && sizeof(Duration) == sizeof(std::int64_t));
static_assert(offsetof(pipetwin_span, kind) == offsetof(Span, action) + offsetof(Action, op));
static_assert(offsetof(pipetwin_span, stage) == offsetof(Action, stage));
static_assert(offsetof(pipetwin_span, micro_batch) == offsetof(Action, micro_batch));
static_assert(offsetof(pipetwin_span, with_next) == offsetof(Action, with_next));
static_assert(offsetof(pipetwin_span, hop) == offsetof(Action, hop));
static_assert(offsetof(pipetwin_span, begin) == offsetof(Span, begin));
static_assert(offsetof(pipetwin_span, ready) == offsetof(Span, ready));
static_assert(offsetof(pipetwin_span, end) == offsetof(Span, end));

}  // namespace

}  // namespace pipetwin::cli

using pipetwin::cli::Answer;
using pipetwin::cli::Question;

const char* pipetwin_version(void) {
    return pipetwin::program_version().data();
}

pipetwin_question* pipetwin_question_new(const char* command) {
    return pipetwin::cli::guarded<pipetwin_question*>(nullptr, [&] {
        return pipetwin::cli::questions().add(
            std::make_shared<pipetwin_question>(command == nullptr ? "" : command));
    });
}

void pipetwin_question_free(pipetwin_question* question) {
    pipetwin::cli::guarded(0, [&] {
        pipetwin::cli::questions().remove(question);
        return 0;
    });
}

int pipetwin_question_word(pipetwin_question* question, const char* word) {
    return pipetwin::cli::changed(question, [&](Question& asked) {
        if (word == nullptr) {
            return false;
        }
        asked.add_word(word);
        return true;
    });
}

int pipetwin_question_file(pipetwin_question* question,
                           const char* name,
                           const char* content,
                           size_t size) {
    return pipetwin::cli::changed(question, [&](Question& asked) {
        return name != nullptr && (content != nullptr || size == 0) &&
               asked.add_file(name, size == 0 ? std::string() : std::string(content, size));
    });
}

int pipetwin_question_output(pipetwin_question* question, const char* name) {
    return pipetwin::cli::changed(
        question, [&](Question& asked) { return name != nullptr && asked.add_output(name); });
}

int pipetwin_question_on_progress(pipetwin_question* question,
                                  pipetwin_progress progress,
                                  void* user) {
    return pipetwin::cli::changed(question, [&](Question& asked) {
        if (progress == nullptr) {
            asked.on_progress(nullptr);
            return true;
        }
        asked.on_progress([progress, user](double share, const std::string& what) {
            const int wish = progress(share, what.c_str(), user);
            return wish == 0   ? Question::Wish::GoOn
                   : wish == 1 ? Question::Wish::EndWithBest
                               : Question::Wish::GiveUp;
        });
        return true;
    });
}

void pipetwin_question_cancel(pipetwin_question* question) {
    pipetwin::cli::guarded(0, [&] {
        if (const auto found = pipetwin::cli::questions().find(question)) {
            found->asked.cancel();
        }
        return 0;
    });
}

pipetwin_answer* pipetwin_ask(pipetwin_question* question) {
    return pipetwin::cli::guarded<pipetwin_answer*>(nullptr, [&]() -> pipetwin_answer* {
        const std::shared_ptr<pipetwin_question> found = pipetwin::cli::questions().find(question);
        if (found == nullptr) {
            return nullptr;
        }
        const auto answer = std::make_shared<pipetwin_answer>();
        answer->given = pipetwin::cli::answer_to(found->asked);
        return pipetwin::cli::answers().add(answer);
    });
}

void pipetwin_answer_free(pipetwin_answer* answer) {
    pipetwin::cli::guarded(0, [&] {
        pipetwin::cli::answers().remove(answer);
        return 0;
    });
}

int pipetwin_answer_code(const pipetwin_answer* answer) {
    return pipetwin::cli::of_answer(answer, -1, [](const Answer& given) { return given.code; });
}

const char* pipetwin_answer_result(const pipetwin_answer* answer, size_t* size) {
    return pipetwin::cli::of_answer<const char*>(answer, nullptr, [&](const Answer& given) {
        return pipetwin::cli::text_of(given.result, size);
    });
}

const char* pipetwin_answer_notes(const pipetwin_answer* answer, size_t* size) {
    return pipetwin::cli::of_answer<const char*>(answer, nullptr, [&](const Answer& given) {
        return pipetwin::cli::text_of(given.notes, size);
    });
}

const char* pipetwin_answer_file(const pipetwin_answer* answer, const char* name, size_t* size) {
    return pipetwin::cli::of_answer<const char*>(
        answer, nullptr, [&](const Answer& given) -> const char* {
            const auto file =
                name == nullptr ? given.files.end() : given.files.find(std::string_view(name));
            return file == given.files.end() ? nullptr : pipetwin::cli::text_of(file->second, size);
        });
}

const char* pipetwin_answer_error(const pipetwin_answer* answer, pipetwin_error_part part) {
    return pipetwin::cli::of_answer<const char*>(
        answer, nullptr, [&](const Answer& given) -> const char* {
            return given.error ? pipetwin::cli::part_of(*given.error, part).c_str() : nullptr;
        });
}

int pipetwin_answer_error_line(const pipetwin_answer* answer) {
    return pipetwin::cli::of_answer(
        answer, 0, [](const Answer& given) { return given.error ? given.error->line : 0; });
}

int pipetwin_answer_error_column(const pipetwin_answer* answer) {
    return pipetwin::cli::of_answer(
        answer, 0, [](const Answer& given) { return given.error ? given.error->column : 0; });
}

int pipetwin_answer_ranks(const pipetwin_answer* answer) {
    return pipetwin::cli::of_answer(answer, 0, [](const Answer& given) {
        return given.timeline ? static_cast<int>(given.timeline->ranks.size()) : 0;
    });
}

const pipetwin_span* pipetwin_answer_row(const pipetwin_answer* answer, int rank, size_t* count) {
    return pipetwin::cli::of_answer<const pipetwin_span*>(
        answer, nullptr, [&](const Answer& given) -> const pipetwin_span* {
            if (!given.timeline || rank < 0 ||
                pipetwin::as_index(rank) >= given.timeline->ranks.size()) {
                return nullptr;
            }
            const auto& row = given.timeline->ranks[pipetwin::as_index(rank)];
            if (count != nullptr) {
                *count = row.size();
            }
            return reinterpret_cast<const pipetwin_span*>(row.data());
        });
}

const char* pipetwin_answer_picture(pipetwin_answer* answer, size_t* size) {
    return pipetwin::cli::guarded<const char*>(nullptr, [&]() -> const char* {
        const std::shared_ptr<pipetwin_answer> found = pipetwin::cli::answers().find(answer);
        if (found == nullptr || !found->given.timeline) {
            return nullptr;
        }
        Answer& given = found->given;
        const std::scoped_lock lock(pipetwin::cli::drawing());
        if (given.picture.empty()) {
            given.picture = pipetwin::render_svg(*given.timeline, {});
        }
        return pipetwin::cli::text_of(given.picture, size);
    });
}

const char* pipetwin_kind_name(int kind) {
    return kind < 0 || kind >= pipetwin::op_count
               ? nullptr
               : pipetwin::op_text(static_cast<pipetwin::Op>(kind)).data();
}

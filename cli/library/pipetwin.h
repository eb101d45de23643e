// SPDX-License-Identifier: Apache-2.0
#ifndef PIPETWIN_H
#define PIPETWIN_H

#include <stddef.h>
#include <stdint.h>

/* The questions of the command line `pipetwin` as functions of C. docs/python.md describes them,
 * and the Python package that is built on them.
 *
 * A question is made of the words of a command line ("plan", "llama-3-70b", "--cluster",
 * "dgx-h100"), and of files that are given as text. Its answer has what the program would print, to
 * the byte, its exit code, and the parts of its error.
 *
 * Several threads may ask at once, each a question of its own. No function exits, prints, waits for
 * input, or changes signals, locale or working folder. A null handle, or one that was freed, is
 * answered with null, -1 or 0. Texts are UTF-8, end with a 0, and live as long as their handle. */

#ifdef __cplusplus
extern "C" {
#endif

/* A command line, before and while it is answered. */
typedef struct pipetwin_question pipetwin_question;
/* What came of it. */
typedef struct pipetwin_answer pipetwin_answer;

/* Exit codes of answers, beside those of docs/cli.md: 0 for success. */
#define PIPETWIN_CANCELLED 130

/* "0.2.0". */
const char* pipetwin_version(void);

/* Starts a question; `command` is its first word: calibrate, check, compare, devices, export,
 * import, plan, simulate or sweep. Null where there is no memory. */
pipetwin_question* pipetwin_question_new(const char* command);
void pipetwin_question_free(pipetwin_question* question);

/* Adds a word of the command line. These four return 0, or -1 for a handle that is none, a null
 * text, a name with a '/', and a question that is being answered. */
int pipetwin_question_word(pipetwin_question* question, const char* word);
/* Gives a file by its content, `size` bytes. Words that are its name name this file; so do keys of
 * other given files. The library keeps given files in a folder in TMPDIR until the answer is
 * there. */
int pipetwin_question_file(pipetwin_question* question,
                           const char* name,
                           const char* content,
                           size_t size);
/* Says that words that are this name name a file or a folder which the command writes. It comes
 * with the answer, as does what the command writes beside it. */
int pipetwin_question_output(pipetwin_question* question, const char* name);

/* What a long task is doing: `share` from 0 to 1. Called by the thread that asks. 0: go on; 1: end
 * with the best that is found; 2: give up, as pipetwin_question_cancel. */
typedef int (*pipetwin_progress)(double share, const char* what, void* user);
int pipetwin_question_on_progress(pipetwin_question* question,
                                  pipetwin_progress progress,
                                  void* user);

/* Gives the question up, from any thread: its answer has the code PIPETWIN_CANCELLED. A search
 * (`plan`) answers within a second, any other command when it is done. */
void pipetwin_question_cancel(pipetwin_question* question);

/* Answers. Null for a handle that is none, and where there is no memory. Answers of the same
 * question are alike. */
pipetwin_answer* pipetwin_ask(pipetwin_question* question);
void pipetwin_answer_free(pipetwin_answer* answer);

/* The exit code of the command. */
int pipetwin_answer_code(const pipetwin_answer* answer);
/* What it prints on stdout, and its remarks on stderr, an error among them. `size` (may be null):
 * its bytes. */
const char* pipetwin_answer_result(const pipetwin_answer* answer, size_t* size);
const char* pipetwin_answer_notes(const pipetwin_answer* answer, size_t* size);
/* The content of an output, of a folder's file "FOLDER/FILE"; null where it was not written. */
const char* pipetwin_answer_file(const pipetwin_answer* answer, const char* name, size_t* size);

typedef enum pipetwin_error_part {
    PIPETWIN_ERROR_KIND,   /* "usage", "bad input", "infeasible", "unavailable", "io", "other" */
    PIPETWIN_ERROR_PLACE,  /* "scenario.toml:3:10", "--nodes", or empty */
    PIPETWIN_ERROR_FILE,   /* "scenario.toml", or empty */
    PIPETWIN_ERROR_KEY,    /* "pipeline.stages", or empty */
    PIPETWIN_ERROR_REASON, /* what is wrong, and what was expected */
    PIPETWIN_ERROR_HINT    /* what to do */
} pipetwin_error_part;
/* A part of the error; null where there was none. */
const char* pipetwin_answer_error(const pipetwin_answer* answer, pipetwin_error_part part);
/* Line and column in the file, from 1; 0: not known. */
int pipetwin_answer_error_line(const pipetwin_answer* answer);
int pipetwin_answer_error_column(const pipetwin_answer* answer);

/* An action of a predicted step, as it lies in memory; nanoseconds since the step's begin. */
typedef struct pipetwin_span {
    int32_t kind; /* index into pipetwin_kind_name */
    int32_t stage;
    int32_t micro_batch; /* 0 for actions without one */
    uint8_t with_next;   /* 1: issued together with the next */
    uint8_t unused;
    int16_t hop;   /* of messages: stages between both ends */
    int64_t begin; /* the rank turns to the action */
    int64_t ready; /* it has waited for what it needs */
    int64_t end;
} pipetwin_span;
/* Ranks of the timeline that `simulate` predicted for one plan; 0 where there is none. */
int pipetwin_answer_ranks(const pipetwin_answer* answer);
/* The row of a rank, `count` spans in their order, without a copy; null where there is none. */
const pipetwin_span* pipetwin_answer_row(const pipetwin_answer* answer, int rank, size_t* count);
/* The timeline as a picture, an SVG; null where there is none. */
const char* pipetwin_answer_picture(pipetwin_answer* answer, size_t* size);
/* "F", "B", "SEND_F", ... for kind = 0, 1, ...; null behind the last. */
const char* pipetwin_kind_name(int kind);

#ifdef __cplusplus
}
#endif

#endif

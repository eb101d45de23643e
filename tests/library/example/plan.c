/* SPDX-License-Identifier: Apache-2.0 */
#include <pipetwin.h>
#include <stdio.h>

int main(void) {
    const char *words[] = {"--stages", "4", "--micro-batches", "8", "--schedule", "1f1b",
                           "--forward-ms", "1", "--backward-ms", "2", "--json"};
    pipetwin_question *question = pipetwin_question_new("simulate");
    for (size_t i = 0; i < sizeof words / sizeof words[0]; ++i) {
        pipetwin_question_word(question, words[i]);
    }
    pipetwin_answer *answer = pipetwin_ask(question);
    int code = pipetwin_answer_code(answer);
    if (code != 0) {
        fputs(pipetwin_answer_notes(answer, NULL), stderr); /* the error, and a hint */
    } else {
        size_t count = 0;
        const pipetwin_span *row = pipetwin_answer_row(answer, 3, &count);
        fputs(pipetwin_answer_result(answer, NULL), stdout); /* JSON, as the program prints it */
        fprintf(stderr, "rank 3 ends its %zu actions after %g ms\n", count, (double)row[count - 1].end / 1e6);
    }
    pipetwin_answer_free(answer);
    pipetwin_question_free(question);
    return code;
}

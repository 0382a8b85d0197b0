// SPDX-License-Identifier: Apache-2.0
/* Chat templates to recognise, and conversations to render in every family. Input: template text,
 * or, after a first byte of 0xFF, role and content strings each ended by NUL. What must hold: a
 * recognised family exists, the runs that came from messages ascend, a refusal says why. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "subject.h"
#include "text/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 8 };

static void render_all(char *text, size_t size) {
    ftk_message messages[MOST];
    size_t n = 0, at = 0;
    while (n < MOST && at < size) {
        const char *role = text + at;
        at += strlen(role) + 1;
        const char *content = at < size ? text + at : "";
        if (at < size) at += strlen(content) + 1;
        messages[n++] = (ftk_message){role, content};
    }
    char names[256];
    strncpy(names, ftki_chat_families(), sizeof names - 1);
    names[sizeof names - 1] = '\0';
    for (char *name = strtok(names, ", "); name; name = strtok(NULL, ", "))
        for (int add = 0; add < 2; add++) {
            ftki_chat_text out = {0};
            ftk_error e = {0};
            if (ftki_chat_render(&out, name, "<s>", "</s>", messages, n, add != 0, &e) != FTK_OK) {
                subject_must(out.text == NULL && out.plain == NULL && e.message[0] != '\0');
                continue;
            }
            size_t end = 0;
            for (size_t i = 0; i < out.n_plain; i++) {
                subject_must(out.plain[i].start >= end && out.plain[i].end > out.plain[i].start);
                end = out.plain[i].end;
            }
            subject_must(end <= out.len);
            ftki_chat_free(&out);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    char *copy = malloc(size);
    subject_must(copy != NULL);
    memcpy(copy, data + 1, size - 1);
    copy[size - 1] = '\0';
    if (data[0] == 0xFF) render_all(copy, size);
    else {
        const char *family = ftki_chat_recognise(copy, size - 1);
        subject_must(!family || ftki_chat_family(family) == family);
    }
    subject_must(ftki_utf8_complete(copy, size - 1) <= size - 1);
    free(copy);
    return 0;
}

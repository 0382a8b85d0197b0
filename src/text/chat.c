// SPDX-License-Identifier: Apache-2.0
/* Rendering a conversation: checks, the growing text, and picking the family. See chat.h. */
#include "text/chat.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "text/chat_families.h"
#include "text/utf8.h"

const char *ftki_chat_family(const char *name) {
    for (size_t i = 0; i < ftki_chat_table_size; i++)
        if (strcmp(ftki_chat_table[i].name, name) == 0) return ftki_chat_table[i].name;
    return NULL;
}

const char *ftki_chat_families(void) {
    return "chatml, smollm2, qwen2, qwen2.5, qwen3, qwen3-nothink, llama2, llama3, llama3.1, "
           "gemma, gemma3, zephyr, mistral";
}

/* Makes room for `more` elements after `used`; doubles, so that appending stays linear. */
static void *grow(void *data, size_t *room, size_t used, size_t more, size_t size) {
    size_t wanted;
    if (!ftki_add_size(used, more, &wanted)) return NULL;
    if (wanted <= *room) return data;
    size_t larger = *room * 2 > wanted ? *room * 2 : wanted + 256;
    void *moved = ftki_realloc(data, larger, size);
    if (moved) *room = larger;
    return moved;
}

static void append(ftki_chat *c, const char *text, size_t len) {
    if (c->status != FTK_OK || len == 0) return;
    ftki_chat_text *out = &c->out;
    char *moved = grow(out->text, &out->room, out->len, len, 1);
    if (!moved) {
        c->status = ftki_fail(c->e, FTK_OUT_OF_MEMORY, "no memory for a conversation of %zu bytes",
                              out->len + len);
        return;
    }
    out->text = moved;
    memcpy(out->text + out->len, text, len);
    out->len += len;
}

void ftki_chat_put(ftki_chat *c, const char *template_text) {
    append(c, template_text, strlen(template_text));
}

void ftki_chat_put_plain(ftki_chat *c, const char *text, size_t len) {
    ftki_chat_text *out = &c->out;
    if (c->status != FTK_OK || len == 0) return;
    ftki_plain *moved = grow(out->plain, &out->plain_room, out->n_plain, 1, sizeof *moved);
    if (!moved) {
        c->status = ftki_fail(c->e, FTK_OUT_OF_MEMORY, "no memory for a conversation");
        return;
    }
    out->plain = moved;
    out->plain[out->n_plain++] = (ftki_plain){out->len, out->len + len};
    append(c, text, len);
}

static ftk_status check(const ftk_message *messages, size_t n, ftk_error *e) {
    if (n == 0 || !messages)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "a conversation needs at least one message");
    for (size_t i = 0; i < n; i++) {
        if (!messages[i].role || !messages[i].content)
            return ftki_fail(e, FTK_INVALID_ARGUMENT, "message %zu has no %s (NULL)", i,
                             messages[i].role ? "content" : "role");
        size_t len = strlen(messages[i].content), wrong = ftki_utf8_invalid(messages[i].content, len);
        if (wrong != len)
            return ftki_fail_at(e, FTK_INVALID_ARGUMENT, (int64_t)wrong, "the content of message "
                                "%zu is not valid UTF-8 at byte %zu", i, wrong);
        len = strlen(messages[i].role);
        if (ftki_utf8_invalid(messages[i].role, len) != len)
            return ftki_fail(e, FTK_INVALID_ARGUMENT, "the role of message %zu is not valid UTF-8",
                             i);
    }
    return FTK_OK;
}

ftk_status ftki_chat_render(ftki_chat_text *out, const char *family, const char *bos,
                            const char *eos, const ftk_message *messages, size_t n,
                            bool add_generation_prompt, ftk_error *e) {
    FTKI_TRY(check(messages, n, e));
    size_t which = 0;
    while (which < ftki_chat_table_size && strcmp(ftki_chat_table[which].name, family) != 0) which++;
    if (which == ftki_chat_table_size)
        return ftki_fail(e, FTK_UNSUPPORTED, "there is no chat template '%.32s'; those that are: "
                         "%s", family, ftki_chat_families());
    ftki_chat c = {.family = family, .bos = bos, .eos = eos, .messages = messages, .n = n,
                   .add_generation_prompt = add_generation_prompt, .e = e};
    ftki_chat_table[which].write(&c);
    if (c.status == FTK_OK) *out = c.out;
    else ftki_chat_free(&c.out);
    return c.status;
}

void ftki_chat_free(ftki_chat_text *text) {
    ftki_free(text->text);
    ftki_free(text->plain);
    *text = (ftki_chat_text){0};
}

// SPDX-License-Identifier: Apache-2.0
/* The tokenizer of a GGUF file behind a pipe, for the Python oracles: requests on standard input,
 * answers on standard output, integers as 32-bit little-endian.
 *   E flags len text      -> status n ids[n]             (status not 0: n is the error's offset)
 *   D special n ids[n]    -> status len text
 *   I                     -> n_vocab bos eos is_end[n_vocab] is_special[n_vocab] as bytes
 *   C family bos eos add n {role content}[n], each text as len and bytes
 *                         -> status len text n_plain {start end}[n_plain] (or the message, none)
 *   N template            -> len family ("" unknown), template as len and bytes
 *   T len text repeats    -> microseconds of the fastest of `repeats` encodings
 * `text_tool FILE` is that pipe, FILE "-" without a tokenizer; `text_tool FILE open` prints the
 * seconds opening takes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "text/chat.h"
#include "text/tokenizer.h"

static uint32_t get(void) {
    uint32_t v;
    if (fread(&v, sizeof v, 1, stdin) != 1) exit(2);
    return v;
}

static char *get_bytes(uint32_t len) {
    char *p = malloc((size_t)len + 1);
    if (!p || fread(p, 1, len, stdin) != len) exit(2);
    p[len] = '\0';
    return p;
}

static void put(uint32_t v) { fwrite(&v, sizeof v, 1, stdout); }

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void encode(const ftki_tokenizer *t) {
    ftk_error e = {0};
    uint32_t flags = get(), len = get();
    char *text = get_bytes(len);
    size_t n = 0;
    ftk_token *ids = malloc(((size_t)len + 8) * 2 * sizeof *ids);
    ftk_status s = ftki_tokenizer_encode(t, text, len, (int)flags, ids, 2 * ((size_t)len + 8), &n, &e);
    put(s);
    put(s ? (uint32_t)e.offset : (uint32_t)n);
    if (!s) fwrite(ids, sizeof *ids, n, stdout);
    free(text);
    free(ids);
}

static void decode(const ftki_tokenizer *t) {
    ftk_error e = {0};
    uint32_t special = get(), n = get();
    ftk_token *ids = (ftk_token *)(void *)get_bytes(n * 4);
    size_t len = 0;
    ftk_status s = ftki_tokenizer_decode(t, ids, n, special != 0, NULL, 0, &len, &e);
    char *text = malloc(len + 1);
    if (!s) s = ftki_tokenizer_decode(t, ids, n, special != 0, text, len, &len, &e);
    put(s);
    put((uint32_t)len);
    fwrite(text, 1, len, stdout);
    free(text);
    free(ids);
}

static void info(const ftki_tokenizer *t) {
    int32_t n = ftki_tokenizer_size(t);
    put((uint32_t)n);
    put((uint32_t)ftki_tokenizer_bos(t));
    put((uint32_t)ftki_tokenizer_eos(t));
    for (int32_t i = 0; i < n; i++) putchar(ftki_tokenizer_is_end(t, i));
    for (int32_t i = 0; i < n; i++) putchar(ftki_tokenizer_is_special(t, i));
}

static void measure(const ftki_tokenizer *t) {
    uint32_t len = get();
    char *text = get_bytes(len);
    uint32_t repeats = get();
    double best = 1e9;
    for (uint32_t i = 0; i < repeats; i++) {
        size_t n;
        double start = now();
        if (ftki_tokenizer_encode(t, text, len, 0, NULL, 0, &n, NULL)) exit(3);
        if (now() - start < best) best = now() - start;
    }
    put((uint32_t)(best * 1e6));
    free(text);
}

static char *get_text(void) { return get_bytes(get()); }

static void chat(void) {
    ftk_error e = {0};
    char *family = get_text(), *bos = get_text(), *eos = get_text();
    uint32_t add = get(), n = get();
    ftk_message *messages = malloc(((size_t)n + 1) * sizeof *messages);
    for (uint32_t i = 0; i < n; i++) {
        messages[i].role = get_text();
        messages[i].content = get_text();
    }
    ftki_chat_text out = {0};
    ftk_status s = ftki_chat_render(&out, family, bos, eos, messages, n, add != 0, &e);
    put(s);
    put(s ? (uint32_t)strlen(e.message) : (uint32_t)out.len);
    fwrite(s ? e.message : out.text, 1, s ? strlen(e.message) : out.len, stdout);
    put((uint32_t)out.n_plain);
    for (size_t i = 0; i < out.n_plain; i++) {
        put((uint32_t)out.plain[i].start);
        put((uint32_t)out.plain[i].end);
    }
    ftki_chat_free(&out);
    for (uint32_t i = 0; i < n; i++) {
        free((char *)messages[i].role);
        free((char *)messages[i].content);
    }
    free(messages);
    free(family);
    free(bos);
    free(eos);
}

static void recognise(void) {
    uint32_t len = get();
    char *text = get_bytes(len);
    const char *family = ftki_chat_recognise(text, len);
    put(family ? (uint32_t)strlen(family) : 0);
    fputs(family ? family : "", stdout);
    free(text);
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    ftk_error e = {0};
    ftki_gguf g = {0};
    ftki_tokenizer *t = NULL;
    bool alone = strcmp(argv[1], "-") == 0;
    if (!alone && ftki_gguf_open(&g, argv[1], &e)) goto fail;
    double start = now();
    if (!alone && ftki_tokenizer_open(&t, &g, &e)) goto fail;
    if (!alone) ftki_gguf_close(&g);
    if (argc > 2) {
        printf("%.6f\n", now() - start);
        ftki_tokenizer_close(t);
        return 0;
    }
    for (int command; (command = getchar()) != EOF; fflush(stdout)) {
        if (command == 'C') chat();
        else if (command == 'N') recognise();
        else if (alone) return 2;
        else if (command == 'E') encode(t);
        else if (command == 'D') decode(t);
        else if (command == 'I') info(t);
        else if (command == 'T') measure(t);
        else return 2;
    }
    ftki_tokenizer_close(t);
    return 0;
fail:
    fprintf(stderr, "%s\n", e.message);
    ftki_gguf_close(&g);
    return 1;
}

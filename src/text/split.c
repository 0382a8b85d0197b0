// SPDX-License-Identifier: Apache-2.0
/* Pre-tokenizers: see split.h.
 *
 * The patterns of the published tokenizers ask three things of a character beyond ASCII: is it a
 * letter, a number or white space. So text beyond ASCII is first written as one class byte a
 * character and PCRE2 runs over the bytes: no UTF mode, Unicode tables from utf8proc (15.0) in
 * place of PCRE2's (14.0), exactly Unicode's White_Space, and ASCII text is matched in place.
 * Every repeat in the patterns is of one character class, so neither the compiled code nor the
 * interpreter needs memory that grows with the text. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/split.h"

#include <pcre2.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "base/memory.h"
#include "text/utf8.h"

/* Class bytes of characters beyond ASCII; within it a character is its own class. */
#define LETTER_CLASS '\x80'
#define NUMBER_CLASS '\x81'
#define SPACE_CLASS '\x82'
#define OTHER_CLASS '\x83'

/* \p{L}, \p{N}, \s and \r\n as members of a bracket. */
#define L "A-Za-z\\x80"
#define N "0-9\\x81"
#define S "\\t-\\r \\x82"
#define CRLF "\\r\\n"

#define CONTRACTION_ANY_CASE "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"

/* GPT-2. */
#define GPT2_WORDS(number) \
    "'(?:[stmd]|re|ve|ll)| ?[" L "]+|" number "| ?[^" S L N "]+"
static const char gpt2_pattern[] =
    GPT2_WORDS(" ?[" N "]+") "|[" S "]+(?![^" S "])|[" S "]+";
/* The same after the text was cut at every digit: white space before a digit is at an end. */
static const char digits_gpt2_pattern[] =
    GPT2_WORDS("[" N "]") "|[" S "]+(?![^" S N "])|[" S "]+";

/* Llama 3 and Qwen 2 differ in how many digits stay together. */
#define LLAMA3_PATTERN(digits)                                                                 \
    CONTRACTION_ANY_CASE "|[^" CRLF L N "]?[" L "]+|[" N "]{1," digits "}| ?[^" S L N "]+"     \
    "[" CRLF "]*|[" S "]*[" CRLF "]+|[" S "]+(?![^" S "])|[" S "]+"
static const char llama3_pattern[] = LLAMA3_PATTERN("3");
static const char qwen2_pattern[] = LLAMA3_PATTERN("1");

static const struct {
    const char *name, *pattern;
    bool ignore_merges, add_bos;
} known[] = {
    {"smollm", digits_gpt2_pattern, false, false},
    {"llama-bpe", llama3_pattern, true, true},
    {"llama3", llama3_pattern, true, true},
    {"llama-v3", llama3_pattern, true, true},
    {"smaug-bpe", llama3_pattern, false, false},
    {"qwen2", qwen2_pattern, false, false},
    {"deepseek-r1-qwen", qwen2_pattern, false, false},
    {"megrez", qwen2_pattern, false, false},
    {"gpt-2", gpt2_pattern, false, false},
    {"mpt", gpt2_pattern, false, false},
    {"starcoder", digits_gpt2_pattern, false, false},
    {"refact", digits_gpt2_pattern, false, false},
};
#define N_KNOWN (sizeof known / sizeof *known)

struct ftki_splitter {
    pcre2_general_context *memory;
    pcre2_code *code;
    bool jit;
};

static void *pcre_alloc(size_t size, void *ctx) {
    (void)ctx;
    return ftki_alloc(1, size);
}

static void pcre_free(void *p, void *ctx) {
    (void)ctx;
    ftki_free(p);
}

static ftk_status refuse(ftki_text name, ftk_error *e) {
    char list[200] = "";
    size_t at = 0;
    for (size_t i = 0; i < N_KNOWN; i++) {
        int n = snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", known[i].name);
        if (n < 0 || (size_t)n >= sizeof list - at) break;
        at += (size_t)n;
    }
    list[at] = '\0';
    if (!name.len || (name.len == 7 && memcmp(name.data, "default", 7) == 0))
        return ftki_fail(e, FTK_UNSUPPORTED, "the file does not say how its tokenizer cuts words "
                         "(tokenizer.ggml.pre is %s): convert it again, or set the key to one of: "
                         "%s", name.len ? "'default'" : "missing", list);
    return ftki_fail(e, FTK_UNSUPPORTED, "the pre-tokenizer '%.*s' (tokenizer.ggml.pre) is not "
                     "supported; those that are: %s", (int)(name.len < 32 ? name.len : 32),
                     name.data, list);
}

ftk_status ftki_splitter_open(ftki_splitter **out, ftki_text name, ftki_split_rules *rules,
                              ftk_error *e) {
    size_t which = 0;
    while (which < N_KNOWN && (strlen(known[which].name) != name.len ||
                               memcmp(known[which].name, name.data, name.len) != 0))
        which++;
    if (which == N_KNOWN) return refuse(name, e);

    ftki_splitter *s = ftki_alloc(1, sizeof *s);
    if (!s) goto fail;
    s->memory = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    if (!s->memory) goto fail;
    pcre2_compile_context *context = pcre2_compile_context_create(s->memory);
    if (!context) goto fail;
    int code;
    PCRE2_SIZE offset;
    s->code = pcre2_compile((PCRE2_SPTR)known[which].pattern, PCRE2_ZERO_TERMINATED, PCRE2_ANCHORED,
                            &code, &offset, context);
    pcre2_compile_context_free(context);
    if (!s->code) goto fail;
    /* Without a compiler for this CPU, or where writable code is forbidden, it is interpreted. */
    s->jit = pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE) == 0;
    rules->ignore_merges = known[which].ignore_merges;
    rules->add_bos = known[which].add_bos;
    *out = s;
    return FTK_OK;
fail:
    ftki_splitter_close(s);
    return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for the pre-tokenizer");
}

void ftki_splitter_close(ftki_splitter *s) {
    if (!s) return;
    pcre2_code_free(s->code);
    pcre2_general_context_free(s->memory);
    ftki_free(s);
}

static char class_of(uint32_t character) {
    if (character < 0x80) return (char)character;
    /* The long s folds to "s" where a pattern ignores case, and is a letter where not: so is S. */
    if (character == 0x17F) return 'S';
    switch (utf8proc_category((utf8proc_int32_t)character)) {
    case UTF8PROC_CATEGORY_LU: case UTF8PROC_CATEGORY_LL: case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM: case UTF8PROC_CATEGORY_LO:
        return LETTER_CLASS;
    case UTF8PROC_CATEGORY_ND: case UTF8PROC_CATEGORY_NL: case UTF8PROC_CATEGORY_NO:
        return NUMBER_CLASS;
    case UTF8PROC_CATEGORY_ZS: case UTF8PROC_CATEGORY_ZL: case UTF8PROC_CATEGORY_ZP:
        return SPACE_CLASS;
    default: return character == 0x85 ? SPACE_CLASS : OTHER_CLASS;
    }
}

ftk_status ftki_split_begin(ftki_split *s, const ftki_splitter *splitter, const char *text,
                            size_t len, ftk_error *e) {
    if (!s->match) {
        s->match = pcre2_match_data_create(1, splitter->memory);
        if (!s->match) return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory to cut text into words");
    }
    s->splitter = splitter;
    s->text = text;
    s->len = len;
    s->at = s->class_at = 0;
    size_t first = 0;
    while (first < len && !((unsigned char)text[first] & 0x80)) first++;
    s->ascii = first == len;
    if (s->ascii) {
        s->classes = text;
        s->n_classes = len;
        return FTK_OK;
    }
    if (len > s->buffer_size) {
        char *larger = ftki_realloc(s->buffer, len, 1);
        if (!larger) return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory to cut %zu bytes of text "
                                      "into words", len);
        s->buffer = larger;
        s->buffer_size = len;
    }
    memcpy(s->buffer, text, first);
    s->n_classes = first;
    for (size_t at = first, size; at < len; at += size)
        s->buffer[s->n_classes++] = class_of(ftki_utf8_read(text + at, &size));
    s->classes = s->buffer;
    return FTK_OK;
}

ftk_status ftki_split_next(ftki_split *s, const char **word, size_t *len, ftk_error *e) {
    *word = s->text + s->at;
    *len = 0;
    if (s->class_at == s->n_classes) return FTK_OK;
    /* Anchored here, and some branch of every pattern takes any character. */
    const ftki_splitter *splitter = s->splitter;
    int found = (splitter->jit ? pcre2_jit_match : pcre2_match)(
        splitter->code, (PCRE2_SPTR)s->classes, s->n_classes, s->class_at, 0, s->match, NULL);
    if (found < 0)
        return ftki_fail(e, found == PCRE2_ERROR_NOMEMORY ? FTK_OUT_OF_MEMORY : FTK_INTERNAL,
                         "cutting text into words failed at byte %zu (PCRE2 error %d)", s->at,
                         found);
    size_t end = pcre2_get_ovector_pointer(s->match)[1], start = s->at;
    if (s->ascii) s->at = end;
    else
        for (size_t i = s->class_at; i < end; i++)
            s->at += ftki_utf8_size((unsigned char)s->text[s->at]);
    s->class_at = end;
    *len = s->at - start;
    return FTK_OK;
}

void ftki_split_end(ftki_split *s) {
    pcre2_match_data_free(s->match);
    ftki_free(s->buffer);
    *s = (ftki_split){0};
}

// SPDX-License-Identifier: Apache-2.0
/* Telling which family a chat template belongs to, by what it prints. See chat.h.
 *
 * A template is read as far as its string literals and the text outside its tags: what can reach
 * the prompt. A family asks for literals it always has; a simple family also lists all it may
 * have, so that a template with a system text of its own is not taken for one without. */
#include <string.h>

#include "text/chat_families.h"

#define MAX_LITERAL 160 /* longer ones are in no list */

typedef struct literal {
    char text[MAX_LITERAL]; /* escapes undone */
    size_t len;
    bool whole; /* it fitted */
} literal;

typedef struct scanner {
    const char *at, *end;
    bool in_tag;
} scanner;

static void add_char(literal *l, char c) {
    if (l->len < MAX_LITERAL) l->text[l->len++] = c;
    else l->whole = false;
}

/* The rest of a quoted string; s->at is behind the opening quote. */
static void read_string(scanner *s, char quote, literal *l) {
    while (s->at < s->end && *s->at != quote) {
        char c = *s->at++;
        if (c == '\\' && s->at < s->end) {
            c = *s->at++;
            c = c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
        }
        add_char(l, c);
    }
    if (s->at < s->end) s->at++;
}

static bool tag_here(const scanner *s, char first, const char *seconds) {
    return s->end - s->at >= 2 && s->at[0] == first && strchr(seconds, s->at[1]) != NULL &&
           s->at[1] != '\0';
}

static bool blank(const literal *l) {
    for (size_t i = 0; i < l->len; i++)
        if (!strchr(" \t\r\n", l->text[i]) || l->text[i] == '\0') return false;
    return true;
}

/* The next literal or text between tags that is not blank; false at the end. */
static bool next_literal(scanner *s, literal *l) {
    while (s->at < s->end) {
        *l = (literal){.whole = true};
        if (!s->in_tag) {
            while (s->at < s->end && !tag_here(s, '{', "{%#")) add_char(l, *s->at++);
            if (s->at < s->end) {
                bool comment = s->at[1] == '#';
                s->at += 2;
                s->in_tag = !comment;
                while (comment && s->at < s->end && !tag_here(s, '#', "}")) s->at++;
                if (comment) s->at = s->end - s->at >= 2 ? s->at + 2 : s->end;
            }
            if (!blank(l)) return true;
        } else if (tag_here(s, '}', "}") || tag_here(s, '%', "}")) {
            s->in_tag = false;
            s->at += 2;
        } else if (*s->at == '\'' || *s->at == '"') {
            char quote = *s->at++;
            read_string(s, quote, l);
            if (l->len > 0) return true;
        } else {
            s->at++;
        }
    }
    return false;
}

static bool equals(const literal *l, const char *text) {
    return l->whole && strlen(text) == l->len && memcmp(l->text, text, l->len) == 0;
}

#define MAX_LIST 16
typedef struct signature {
    const char *family;
    const char *needs[MAX_LIST];  /* literals */
    const char *may[MAX_LIST];    /* the other literals; none listed: any */
    const char *code[4];          /* words of the template */
    const char *not_code[4];      /* words it must not have */
} signature;

#define ROLES "role", "content", "system", "user", "assistant"
#define CHATML_MAY                                                                            \
    ROLES, "\n", "<|im_end|>", "<|im_end|>\n", "<|im_start|>user\n", "<|im_start|>system\n"
#define ALTERNATE "Conversation roles must alternate user/assistant/user/assistant/..."

/* Special ones before general ones. */
static const signature signatures[] = {
    {"qwen3",
     {"<|im_start|>assistant\n", "<think>\n\n</think>\n\n", "\n</think>\n\n", "</think>",
      "<tool_response>"},
     {NULL}, {"last_query_index", "enable_thinking is false"},
     {"bos_token", "raise_exception"}},
    {"qwen2.5",
     {"You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
      "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
      "assistant.<|im_end|>\n", "<|im_start|>assistant\n", "\n<tool_response>\n"},
     {NULL}, {"tools"}, {"think", "trim", "raise_exception"}},
    {"qwen2",
     {"<|im_start|>", "<|im_start|>assistant\n",
      "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"},
     {CHATML_MAY}, {"loop.first"}, {"trim", "strip", "bos_token", "eos_token"}},
    {"smollm2",
     {"<|im_start|>", "<|im_start|>assistant\n",
      "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
      "Face<|im_end|>\n"},
     {CHATML_MAY}, {"loop.first"}, {"trim", "strip", "bos_token", "eos_token"}},
    {"chatml", {"<|im_start|>", "<|im_start|>assistant\n"}, {CHATML_MAY}, {"message"},
     {"trim", "strip", "bos_token", "eos_token"}},
    {"llama3.1",
     {"<|start_header_id|>system<|end_header_id|>\n\n", "Cutting Knowledge Date: December 2023\n",
      "Today Date: ", "26 Jul 2024", "<|eot_id|>",
      "<|start_header_id|>assistant<|end_header_id|>\n\n"},
     {NULL}, {"bos_token", "trim"}, {NULL}},
    {"llama3",
     {"<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>",
      "<|start_header_id|>assistant<|end_header_id|>\n\n"},
     {ROLES}, {"bos_token", "trim"}, {"eos_token"}},
    {"gemma3", {"<start_of_turn>", "<end_of_turn>\n", "<start_of_turn>model\n", ALTERNATE}, {NULL},
     {"bos_token", "first_user_prefix", "trim"}, {NULL}},
    {"gemma",
     {"<start_of_turn>", "<end_of_turn>\n", "<start_of_turn>model\n", ALTERNATE,
      "System role not supported"},
     {ROLES, "model", "\n"}, {"bos_token", "trim"}, {NULL}},
    {"llama2", {"[INST] ", " [/INST]", "<<SYS>>\n", "\n<</SYS>>\n\n", ALTERNATE, " "}, {ROLES},
     {"bos_token + '[INST] '", "content.strip()", "eos_token"}, {NULL}},
    {"mistral",
     {"[INST] ", " [/INST]", ALTERNATE, "Only user and assistant roles are supported!"}, {ROLES},
     {"bos_token", "eos_token"}, {"strip", "trim"}},
    {"zephyr", {"<|user|>\n", "<|system|>\n", "<|assistant|>\n", "<|assistant|>"}, {ROLES},
     {"eos_token", "loop.last and add_generation_prompt"}, {"strip", "trim", "bos_token"}},
};
#define N_SIGNATURES (sizeof signatures / sizeof *signatures)

/* The place of a literal in a list, -1: not there. */
static int place(const char *const list[MAX_LIST], const literal *l) {
    for (int i = 0; i < MAX_LIST && list[i]; i++)
        if (equals(l, list[i])) return i;
    return -1;
}

static bool fits(const signature *g, const char *text, size_t len) {
    for (int i = 0; i < 4 && g->code[i]; i++)
        if (!memmem(text, len, g->code[i], strlen(g->code[i]))) return false;
    for (int i = 0; i < 4 && g->not_code[i]; i++)
        if (memmem(text, len, g->not_code[i], strlen(g->not_code[i]))) return false;
    bool found[MAX_LIST] = {false};
    scanner s = {text, text + len, false};
    for (literal l; next_literal(&s, &l);) {
        int at = place(g->needs, &l);
        if (at >= 0) found[at] = true;
        else if (g->may[0] && place(g->may, &l) < 0) return false;
    }
    for (int i = 0; i < MAX_LIST && g->needs[i]; i++)
        if (!found[i]) return false;
    return true;
}

const char *ftki_chat_recognise(const char *template_text, size_t len) {
    for (size_t i = 0; i < N_SIGNATURES; i++)
        if (fits(&signatures[i], template_text, len)) return ftki_chat_family(signatures[i].family);
    return NULL;
}

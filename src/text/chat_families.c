// SPDX-License-Identifier: Apache-2.0
/* How each family writes a conversation: the templates of the published models, in C. Templates
 * that know tools and images are followed for what can reach them here: messages of text. */
#include "text/chat_families.h"

#include <string.h>

#include "text/utf8.h"

/* ----------------------------------------------------------------- helpers */

static void put(ftki_chat *c, const char *template_text) { ftki_chat_put(c, template_text); }
static void put_role(ftki_chat *c, size_t i) {
    ftki_chat_put_plain(c, c->messages[i].role, strlen(c->messages[i].role));
}
static void put_content(ftki_chat *c, size_t i) {
    ftki_chat_put_plain(c, c->messages[i].content, strlen(c->messages[i].content));
}
static void put_trimmed(ftki_chat *c, size_t i) {
    size_t len = strlen(c->messages[i].content);
    const char *text = ftki_utf8_trim(c->messages[i].content, &len);
    ftki_chat_put_plain(c, text, len);
}

static bool has_role(const ftki_chat *c, size_t i, const char *role) {
    return i < c->n && strcmp(c->messages[i].role, role) == 0;
}

static void template_error(ftki_chat *c, size_t i, const char *words) {
    if (c->status == FTK_OK)
        c->status = ftki_fail(c->e, FTK_INVALID_ARGUMENT, "message %zu: the %s template says: %s",
                              i, c->family, words);
}

/* A role the template would print nothing for: the message must not vanish unnoticed. */
static void refuse_role(ftki_chat *c, size_t i, const char *known) {
    if (c->status == FTK_OK)
        c->status = ftki_fail(c->e, FTK_INVALID_ARGUMENT, "message %zu has the role '%.32s', which "
                              "the %s template does not write; it knows %s", i,
                              c->messages[i].role, c->family, known);
}

/* Roles must alternate from `first` on, the user beginning. */
static bool alternates(ftki_chat *c, size_t i, size_t first, const char *words) {
    if (has_role(c, i, "user") == ((i - first) % 2 == 0)) return true;
    template_error(c, i, words);
    return false;
}
static const char alternate_words[] =
    "Conversation roles must alternate user/assistant/user/assistant/...";

static void refuse_lone_system(ftki_chat *c) {
    if (c->status == FTK_OK)
        c->status = ftki_fail(c->e, FTK_INVALID_ARGUMENT, "message 0: the %s template writes a "
                              "system message only together with a user message after it",
                              c->family);
}

/* ------------------------------------------------------------------ ChatML */

static void chatml_turn(ftki_chat *c, size_t i) {
    put(c, "<|im_start|>");
    put_role(c, i);
    put(c, "\n");
    put_content(c, i);
    put(c, "<|im_end|>\n");
}

static void chatml(ftki_chat *c, const char *default_system) {
    if (default_system && !has_role(c, 0, "system")) put(c, default_system);
    for (size_t i = 0; i < c->n; i++) chatml_turn(c, i);
    if (c->add_generation_prompt) put(c, "<|im_start|>assistant\n");
}

static void write_chatml(ftki_chat *c) { chatml(c, NULL); }
static void write_smollm2(ftki_chat *c) {
    chatml(c, "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
              "Face<|im_end|>\n");
}
static void write_qwen2(ftki_chat *c) {
    chatml(c, "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n");
}

/* ------------------------------------------------------- Qwen 2.5, Qwen 3 */

static const char qwen_roles[] = "system, user, assistant, tool";

/* Results of tools are a user turn; those that follow each other share one. */
static void qwen_tool(ftki_chat *c, size_t i) {
    if (i == 0 || !has_role(c, i - 1, "tool")) put(c, "<|im_start|>user");
    put(c, "\n<tool_response>\n");
    put_content(c, i);
    put(c, "\n</tool_response>");
    if (!has_role(c, i + 1, "tool")) put(c, "<|im_end|>\n");
}

static void write_qwen25(ftki_chat *c) {
    if (!has_role(c, 0, "system"))
        put(c, "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
               "assistant.<|im_end|>\n");
    for (size_t i = 0; i < c->n; i++) {
        if (has_role(c, i, "system") || has_role(c, i, "user") || has_role(c, i, "assistant"))
            chatml_turn(c, i);
        else if (has_role(c, i, "tool")) qwen_tool(c, i);
        else refuse_role(c, i, qwen_roles);
    }
    if (c->add_generation_prompt) put(c, "<|im_start|>assistant\n");
}

static bool starts_with(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}
static bool ends_with(const char *text, const char *end) {
    size_t len = strlen(text), end_len = strlen(end);
    return len >= end_len && strcmp(text + len - end_len, end) == 0;
}
/* The last place of `what` in text [len], NULL: nowhere. */
static const char *find_last(const char *text, size_t len, const char *what) {
    const char *found = NULL, *next = text;
    while ((next = memmem(next, len - (size_t)(next - text), what, strlen(what))) != NULL) {
        found = next;
        next += strlen(what);
    }
    return found;
}
static const char *skip_newlines(const char *text) { return text + strspn(text, "\n"); }

/* The last turn of the user proper; results of tools dressed as one do not count. */
static size_t qwen3_last_query(const ftki_chat *c) {
    for (size_t i = c->n; i-- > 0;)
        if (has_role(c, i, "user") && !(starts_with(c->messages[i].content, "<tool_response>") &&
                                        ends_with(c->messages[i].content, "</tool_response>")))
            return i;
    return c->n - 1;
}

/* Thoughts of earlier answers are left out; of those since the last query they are kept. */
static void qwen3_assistant(ftki_chat *c, size_t i, size_t last_query) {
    static const char open[] = "<think>", close[] = "</think>";
    const char *content = c->messages[i].content, *thought = "";
    size_t thought_len = 0;
    const char *first = strstr(content, close);
    if (first) {
        thought = content;
        thought_len = (size_t)(first - content);
        content = skip_newlines(find_last(content, strlen(content), close) + strlen(close));
        while (thought_len > 0 && thought[thought_len - 1] == '\n') thought_len--;
        const char *start = find_last(thought, thought_len, open);
        if (start) {
            start += strlen(open);
            thought_len -= (size_t)(start - thought);
            thought = start;
        }
        while (thought_len > 0 && *thought == '\n') {
            thought++;
            thought_len--;
        }
    }
    put(c, "<|im_start|>");
    put_role(c, i);
    put(c, "\n");
    if (i > last_query && (i + 1 == c->n || thought_len > 0)) {
        put(c, "<think>\n");
        ftki_chat_put_plain(c, thought, thought_len);
        put(c, "\n</think>\n\n");
        content = skip_newlines(content);
    }
    ftki_chat_put_plain(c, content, strlen(content));
    put(c, "<|im_end|>\n");
}

static void qwen3(ftki_chat *c, const char *answer_start) {
    size_t last_query = qwen3_last_query(c);
    for (size_t i = 0; i < c->n; i++) {
        if (has_role(c, i, "system") || has_role(c, i, "user")) chatml_turn(c, i);
        else if (has_role(c, i, "assistant")) qwen3_assistant(c, i, last_query);
        else if (has_role(c, i, "tool")) qwen_tool(c, i);
        else refuse_role(c, i, qwen_roles);
    }
    if (c->add_generation_prompt) put(c, answer_start);
}

static void write_qwen3(ftki_chat *c) { qwen3(c, "<|im_start|>assistant\n"); }
/* What the template does with enable_thinking=false: an empty thought is put in its mouth. */
static void write_qwen3_nothink(ftki_chat *c) {
    qwen3(c, "<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

/* ------------------------------------------------------------------- Llama */

/* The system block and the message are trimmed as one. */
static void llama2_system(ftki_chat *c) {
    const char *content = c->messages[1].content;
    size_t kept = strlen(content);
    const char *start = ftki_utf8_trim(content, &kept);
    put(c, "<<SYS>>\n");
    put_content(c, 0);
    put(c, "\n<</SYS>>");
    if (kept == 0) return;
    put(c, "\n\n");
    ftki_chat_put_plain(c, content, (size_t)(start - content) + kept);
}

static void write_llama2(ftki_chat *c) {
    size_t first = has_role(c, 0, "system") ? 1 : 0;
    if (first == c->n) refuse_lone_system(c);
    for (size_t i = first; i < c->n && c->status == FTK_OK; i++) {
        if (!alternates(c, i, first, alternate_words)) return;
        if (has_role(c, i, "user")) {
            put(c, c->bos);
            put(c, "[INST] ");
            if (i == 1 && first == 1) llama2_system(c);
            else put_trimmed(c, i);
            put(c, " [/INST]");
        } else if (has_role(c, i, "assistant")) {
            put(c, " ");
            put_trimmed(c, i);
            put(c, " ");
            put(c, c->eos);
        } else {
            refuse_role(c, i, "system (first), user, assistant");
        }
    }
}

static void llama3_turns(ftki_chat *c, size_t first) {
    for (size_t i = first; i < c->n; i++) {
        put(c, "<|start_header_id|>");
        put_role(c, i);
        put(c, "<|end_header_id|>\n\n");
        put_trimmed(c, i);
        put(c, "<|eot_id|>");
    }
    if (c->add_generation_prompt) put(c, "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

static void write_llama3(ftki_chat *c) {
    put(c, c->bos);
    llama3_turns(c, 0);
}

/* 3.1, 3.2 and 3.3. The date is the one the templates fall back to: today's would change the
 * prompt, and with it every cached prefix, each midnight. */
static void write_llama31(ftki_chat *c) {
    put(c, c->bos);
    put(c, "<|start_header_id|>system<|end_header_id|>\n\n"
           "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n");
    size_t first = has_role(c, 0, "system") ? 1 : 0;
    if (first) put_trimmed(c, 0);
    put(c, "<|eot_id|>");
    for (size_t i = first; i < c->n; i++)
        if (has_role(c, i, "tool") || has_role(c, i, "ipython"))
            refuse_role(c, i, "system, user, assistant (tools are not supported)");
    llama3_turns(c, first);
}

/* ------------------------------------------------------------------- Gemma */

static void gemma_turns(ftki_chat *c, size_t first) {
    for (size_t i = first; i < c->n && c->status == FTK_OK; i++) {
        if (!alternates(c, i, first, alternate_words)) return;
        put(c, "<start_of_turn>");
        if (has_role(c, i, "assistant")) put(c, "model");
        else put_role(c, i);
        put(c, "\n");
        if (i == 1 && first == 1) { /* Gemma 3: the system message begins the user's first */
            put_content(c, 0);
            put(c, "\n\n");
        }
        put_trimmed(c, i);
        put(c, "<end_of_turn>\n");
    }
    if (c->add_generation_prompt) put(c, "<start_of_turn>model\n");
}

static void write_gemma(ftki_chat *c) {
    if (has_role(c, 0, "system")) template_error(c, 0, "System role not supported");
    put(c, c->bos);
    gemma_turns(c, 0);
}

static void write_gemma3(ftki_chat *c) {
    size_t first = has_role(c, 0, "system") ? 1 : 0;
    if (first == c->n) refuse_lone_system(c);
    put(c, c->bos);
    gemma_turns(c, first);
}

/* --------------------------------------------------------- Zephyr, Mistral */

static void write_zephyr(ftki_chat *c) {
    for (size_t i = 0; i < c->n; i++) {
        if (has_role(c, i, "user")) put(c, "<|user|>\n");
        else if (has_role(c, i, "system")) put(c, "<|system|>\n");
        else if (has_role(c, i, "assistant")) put(c, "<|assistant|>\n");
        else refuse_role(c, i, "system, user, assistant");
        put_content(c, i);
        put(c, c->eos);
        put(c, "\n");
    }
    if (c->add_generation_prompt) put(c, "<|assistant|>\n");
}

static void write_mistral(ftki_chat *c) {
    put(c, c->bos);
    for (size_t i = 0; i < c->n && c->status == FTK_OK; i++) {
        if (!alternates(c, i, 0, alternate_words)) return;
        if (has_role(c, i, "user")) {
            put(c, "[INST] ");
            put_content(c, i);
            put(c, " [/INST]");
        } else if (has_role(c, i, "assistant")) {
            put_content(c, i);
            put(c, c->eos);
        } else {
            template_error(c, i, "Only user and assistant roles are supported!");
        }
    }
}

const ftki_chat_family_entry ftki_chat_table[] = {
    {"chatml", write_chatml},   {"smollm2", write_smollm2}, {"qwen2", write_qwen2},
    {"qwen2.5", write_qwen25},  {"qwen3", write_qwen3},     {"qwen3-nothink", write_qwen3_nothink},
    {"llama2", write_llama2},   {"llama3", write_llama3},   {"llama3.1", write_llama31},
    {"gemma", write_gemma},     {"gemma3", write_gemma3},   {"zephyr", write_zephyr},
    {"mistral", write_mistral},
};
const size_t ftki_chat_table_size = sizeof ftki_chat_table / sizeof *ftki_chat_table;

// SPDX-License-Identifier: Apache-2.0
/* The tokens with a part to play: begin, end and unknown, and the set that ends generation.
 * Files name one end token; chat models stop at others too, which are known by their text. */
#include <string.h>

#include "text/vocab.h"

/* Ends of turn, of text and of file. A file that types one of them as ordinary text is corrected:
 * as text they would be cut into bytes and never be seen by the model. */
static const char *const end_texts[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<|endoftext|>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
    "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    "<｜end▁of▁sentence｜>", "[e~[",
    /* Code models: the text of one file is over. */
    "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]",
    "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>",
};

/* Not ends, but control tokens whatever the file says: the holes of fill-in-the-middle. */
static const char *const control_texts[] = {
    "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>",
    "<|code_prefix|>", "<|prefix|>",
    "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>",
    "<|code_suffix|>", "<|suffix|>",
    "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>",
    "<|code_middle|>", "<|middle|>",
};

static ftk_token find_text(const ftki_vocab *v, const char *text) {
    return ftki_vocab_find(v, text, strlen(text), FTKI_TYPES_ANY);
}

static ftk_status read_id(const ftki_vocab *v, const ftki_gguf *g, const char *key, ftk_token *id,
                          ftk_error *e) {
    if (!ftki_gguf_key(g, key)) return FTK_OK;
    uint32_t value;
    FTKI_TRY(ftki_gguf_u32(g, key, &value, e));
    if (value >= (uint32_t)v->n_tokens)
        return ftki_fail(e, FTK_FORMAT, "%s is %u, outside the vocabulary of %d tokens", key, value,
                         v->n_tokens);
    *id = (ftk_token)value;
    return FTK_OK;
}

ftk_status ftki_vocab_read_markers(ftki_vocab *v, const ftki_gguf *g, ftk_error *e) {
    bool spm = v->kind == FTKI_VOCAB_SPM;
    v->unknown = spm ? 0 : -1; /* SentencePiece's own defaults */
    v->bos = spm && v->n_tokens > 1 ? 1 : -1;
    v->eos = spm && v->n_tokens > 2 ? 2 : -1;
    if (v->kind == FTKI_VOCAB_WPM) { /* what BERT calls them, by name and by llama.cpp's keys */
        v->unknown = find_text(v, "[UNK]");
        v->bos = find_text(v, "[CLS]");
        v->eos = find_text(v, "[SEP]");
        FTKI_TRY(read_id(v, g, "tokenizer.ggml.cls_token_id", &v->bos, e));
        FTKI_TRY(read_id(v, g, "tokenizer.ggml.seperator_token_id", &v->eos, e)); /* spelled so in GGUF */
        v->add_bos = v->bos >= 0;
        v->add_eos = v->eos >= 0;
    }
    ftk_token end_of_turn = -1, end_of_message = -1;
    FTKI_TRY(read_id(v, g, "tokenizer.ggml.bos_token_id", &v->bos, e));
    FTKI_TRY(read_id(v, g, "tokenizer.ggml.eos_token_id", &v->eos, e));
    FTKI_TRY(read_id(v, g, "tokenizer.ggml.unknown_token_id", &v->unknown, e));
    FTKI_TRY(read_id(v, g, "tokenizer.ggml.eot_token_id", &end_of_turn, e));
    FTKI_TRY(read_id(v, g, "tokenizer.ggml.eom_token_id", &end_of_message, e));

    if (v->kind == FTKI_VOCAB_WPM) {
        if (v->unknown < 0)
            return ftki_fail(e, FTK_FORMAT, "the WordPiece vocabulary has no token for unknown words "
                             "(tokenizer.ggml.unknown_token_id, \"[UNK]\"); convert the model again");
        const ftk_token markers[] = {v->unknown, v->bos, v->eos, find_text(v, "[MASK]"), find_text(v, "[PAD]")};
        for (size_t i = 0; i < sizeof markers / sizeof *markers; i++)
            if (markers[i] >= 0) v->types[markers[i]] = FTKI_TOKEN_CONTROL;
    }
    v->add_bos = v->add_bos && v->bos >= 0;
    FTKI_TRY(ftki_gguf_bool_or(g, "tokenizer.ggml.add_bos_token", &v->add_bos, e));
    FTKI_TRY(ftki_gguf_bool_or(g, "tokenizer.ggml.add_eos_token", &v->add_eos, e));
    if (v->add_bos && v->bos < 0)
        return ftki_fail(e, FTK_FORMAT, "tokenizer.ggml.add_bos_token is set without a "
                         "tokenizer.ggml.bos_token_id");
    if (v->add_eos && v->eos < 0)
        return ftki_fail(e, FTK_FORMAT, "tokenizer.ggml.add_eos_token is set without a "
                         "tokenizer.ggml.eos_token_id");

    for (size_t i = 0; i < sizeof end_texts / sizeof *end_texts; i++) {
        ftk_token id = find_text(v, end_texts[i]);
        if (id < 0) continue;
        v->is_end[id] = 1;
        v->types[id] = FTKI_TOKEN_CONTROL;
    }
    for (size_t i = 0; i < sizeof control_texts / sizeof *control_texts; i++) {
        ftk_token id = find_text(v, control_texts[i]);
        if (id >= 0) v->types[id] = FTKI_TOKEN_CONTROL;
    }
    /* "</s>" is also an HTML tag: it ends the text only where it is a control token. */
    ftk_token slash_s = find_text(v, "</s>");
    if (slash_s >= 0 && v->types[slash_s] == FTKI_TOKEN_CONTROL) v->is_end[slash_s] = 1;
    if (v->eos >= 0) v->is_end[v->eos] = 1;
    if (end_of_turn >= 0) v->is_end[end_of_turn] = 1;
    if (end_of_message >= 0) v->is_end[end_of_message] = 1;

    /* A model with separate "return" and "call" ends uses "end" between parts of one answer. */
    ftk_token end = find_text(v, "<|end|>");
    bool calls = find_text(v, "<|call|>") >= 0 || find_text(v, "<|calls|>") >= 0;
    bool returns = find_text(v, "<|return|>") >= 0 || find_text(v, "<|flush|>") >= 0;
    if (end >= 0 && calls && returns) v->is_end[end] = 0;
    return FTK_OK;
}

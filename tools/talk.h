// SPDX-License-Identifier: Apache-2.0
/* One conversation with a model: prompts built turn by turn, answers streamed, figures kept.
 * Used by one-shot `run` and by the chat.
 *
 * What has been said is kept as tokens, exactly those the session holds, not as text: a new turn
 * appends to them, so that nothing said before is ever computed twice. */
#ifndef FREETOKEN_TOOLS_TALK_H
#define FREETOKEN_TOOLS_TALK_H

#include "args.h"
#include "reduce_flags.h"
#include "text.h"

typedef struct talk_options {
    const char *word;   /* model: path or name */
    const char *isa;    /* NULL: default */
    const char *system; /* NULL: none, or the template's own */
    const char *family; /* chat template, NULL: the model's own */
    bool chat;          /* a chat template is a must */
    bool raw;           /* no chat template */
    bool json, special, ignore_end;
    int64_t max_tokens; /* negative: until the model ends or the context is full */
    int64_t context;    /* 0: default, grown to fit the first prompt */
    int64_t threads, chunk;
    int kv;
    ftk_sampler_opts sampling;
    text_list stop;
    reduce_flags reduce;
    const char *explain; /* after each prompt: "" on stderr, or a .html or .json file; NULL: not at all */
} talk_options;

typedef struct talk_turn {
    size_t prompt_tokens;
    double first_token_seconds; /* from the request to the first token, 0: none came */
    double decode_seconds;
    size_t decode_tokens;       /* computed one by one */
    ftk_generated generated;
    ftk_stats stats;
    ftk_reduced reduced;        /* of the prompt; without its lists */
    double kv_share;            /* entries that the cache held after it, of those a dense one has */
} talk_turn;

typedef struct talk {
    const talk_options *o;
    ftk_model *model;
    ftk_model_info info;
    ftk_session *session;
    ftk_sampler *sampler;
    reduce_setting reduction;
    bool templated;
    token_list held;      /* the conversation, without the last answer's end token */
    double load_seconds;
    double started;       /* clock when the turn's text was taken */
    size_t turns;
    talk_turn last;
} talk;

/* All report and return an exit status, STATUS_GO_ON when fine. */
int talk_open(talk *t, const talk_options *o);
/* The tokens of the whole conversation with this text as its next turn. */
int talk_prompt(talk *t, const char *data, size_t len, token_list *prompt);
/* Opens the session, large enough for a first prompt of n tokens (0: not known). */
int talk_open_session(talk *t, size_t n);
/* Reads the prompt and streams the answer to stdout. STATUS_INTERRUPTED: the answer was stopped
 * by Ctrl-C; what came of it is part of the conversation. */
int talk_answer(talk *t, const token_list *prompt);
/* The line of figures on stderr, or the summary object. */
void talk_report(const talk *t);
void talk_forget(talk *t);
int talk_save(talk *t, const char *path);
/* Takes over the tokens of a file; `as_conversation`: the next turn goes on from there, otherwise
 * they only spare work where a prompt begins alike. */
int talk_restore(talk *t, const char *path, bool as_conversation);
void talk_close(talk *t);

#endif

// SPDX-License-Identifier: Apache-2.0
/* freetoken.h: the whole public interface of FreeToken, an inference engine for
 * Transformers on edge CPUs. Compiles alone as C17 and as C++17.
 *
 * Two nouns. A MODEL is a file's weights: immutable after open, shared by threads.
 * A SESSION is one timeline over a model: KV cache, scratch, statistics; one thread
 * at a time, except for ftk_session_cancel, which any thread may call.
 *
 * Conventions
 *   - Functions that can fail return ftk_status and fill an optional ftk_error.
 *   - Results go to out-parameters, which are untouched on failure.
 *   - Option structs start with `size` (set to sizeof the struct, or 0 for "current
 *     version"); a field of zero means its default.
 *   - Shapes are written in brackets, row-major: logits [n_vocab].
 *   - The library never prints, exits or aborts because of input.
 */
#ifndef FREETOKEN_H
#define FREETOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FTK_VERSION_MAJOR 0
#define FTK_VERSION_MINOR 1
#define FTK_VERSION_PATCH 0

#if defined(_WIN32)
#define FTK_API
#else
#define FTK_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ errors */

/* One list makes the enum, the names and the texts. */
#define FTK_STATUS_LIST(X)                                                        \
    X(OK, 0, "success")                                                           \
    X(INVALID_ARGUMENT, 1, "an argument is out of its range")                     \
    X(OUT_OF_MEMORY, 2, "memory could not be had")                                \
    X(IO, 3, "a file could not be read or written")                               \
    X(FORMAT, 4, "a file is damaged or not of the expected kind")                 \
    X(UNSUPPORTED, 5, "the file or request needs something that is not supported")\
    X(CONTEXT_FULL, 6, "the context is full")                                     \
    X(CANCELLED, 7, "cancelled by the caller")                                    \
    X(MISMATCH, 8, "two things that must belong together do not")                 \
    X(INTERNAL, 9, "a defect in the library")

typedef enum ftk_status {
#define FTK_STATUS_ENUM_(name, value, text) FTK_##name = value,
    FTK_STATUS_LIST(FTK_STATUS_ENUM_)
#undef FTK_STATUS_ENUM_
} ftk_status;

typedef struct ftk_error {
    ftk_status code;
    int64_t offset;    /* byte position in the input the error speaks of; -1: none */
    int32_t layer;     /* layer the error speaks of; -1: none */
    char message[256]; /* NUL-terminated UTF-8, one line, says what to do next */
} ftk_error;

FTK_API const char *ftk_status_name(ftk_status s); /* "FORMAT"; static */
FTK_API const char *ftk_status_text(ftk_status s); /* one sentence; static */
FTK_API const char *ftk_version(void);             /* "0.1.0"; static */

/* ------------------------------------------------------------------- model */

typedef struct ftk_model ftk_model;
typedef struct ftk_session ftk_session;
typedef int32_t ftk_token;

/* Called now and then during long work; return false to cancel (the call then ends with
 * FTK_CANCELLED). `done` of `total` in units of the phase; `phase` is a static string
 * such as "packing" or "prefill". May be called from the calling thread only. */
typedef bool (*ftk_progress_fn)(void *ctx, const char *phase, uint64_t done, uint64_t total);

typedef struct ftk_model_opts {
    size_t size;
    int32_t n_threads;        /* threads used to pack the weights; default: online cores */
    ftk_progress_fn progress; /* may be NULL */
    void *progress_ctx;
    const char *isa;          /* "scalar", "avx2", "avx512", "neon", "i8mm"; NULL: best of the machine,
                                 or what the environment variable FREETOKEN_ISA says */
    bool vocab_only;          /* read metadata and tokenizer, no weights: such a model cannot
                                 open sessions */
} ftk_model_opts;

/* Opens a GGUF file and packs its weights for this CPU's dot-product layout.
 * The caller owns *out and closes it with ftk_model_close after its last session. */
FTK_API ftk_status ftk_model_open(ftk_model **out, const char *path, const ftk_model_opts *o,
                                  ftk_error *e);
FTK_API void ftk_model_close(ftk_model *m); /* NULL is fine */

typedef struct ftk_model_info {
    const char *architecture; /* "llama", "qwen2", "qwen3", "gemma3", or an encoder's; lives as long as the model */
    const char *name;         /* general.name or "" */
    const char *weight_type;  /* most common tensor type by bytes, e.g. "Q4_1" */
    const char *chat_template;/* recognised family ("chatml", "llama3", ...) or "" */
    const char *isa;          /* kernel level in use */
    uint64_t n_params;
    uint64_t file_bytes;
    uint64_t weight_bytes;    /* packed weights in memory */
    int32_t n_layers, n_heads, n_kv_heads, head_dim, hidden, ffn, n_vocab;
    int32_t train_context;    /* context length the model was trained with, tokens */
    int32_t sliding_window;   /* tokens; 0: none */
} ftk_model_info;
FTK_API void ftk_model_get_info(const ftk_model *m, ftk_model_info *out);

/* --------------------------------------------------------------- tokenizer */

typedef enum ftk_tokenize_flags {
    FTK_TOKENIZE_SPECIAL = 1, /* parse special tokens written in the text */
    FTK_TOKENIZE_BOS_EOS = 2  /* add BOS/EOS as the model's file asks */
} ftk_tokenize_flags;

/* Writes at most `cap` ids to ids [cap] and the full count to *n (so cap = 0 measures).
 * `text` is `len` bytes of UTF-8, not NUL-terminated; invalid bytes are an error that
 * names the offset. */
FTK_API ftk_status ftk_tokenize(const ftk_model *m, const char *text, size_t len, int flags,
                                ftk_token *ids, size_t cap, size_t *n, ftk_error *e);

/* The bytes of one token (not NUL-terminated, may be part of a character); borrowed from
 * the model. Special tokens give "" unless `special`. Invalid ids give NULL and *len 0. */
FTK_API const char *ftk_token_bytes(const ftk_model *m, ftk_token id, bool special, size_t *len);

/* The text of ids [n]: writes at most cap bytes, the full length to *len. Removes the
 * leading space that SentencePiece-style encoding added when `ids` starts the text. */
FTK_API ftk_status ftk_detokenize(const ftk_model *m, const ftk_token *ids, size_t n, bool special,
                                  char *text, size_t cap, size_t *len, ftk_error *e);
FTK_API bool ftk_token_is_end(const ftk_model *m, ftk_token id);     /* end of generation */
FTK_API bool ftk_token_is_special(const ftk_model *m, ftk_token id); /* control or marker */
FTK_API ftk_token ftk_token_bos(const ftk_model *m);                 /* -1: none */
FTK_API ftk_token ftk_token_eos(const ftk_model *m);                 /* -1: none */

typedef struct ftk_message {
    const char *role;    /* "system", "user", "assistant" */
    const char *content; /* UTF-8, NUL-terminated */
} ftk_message;

/* Renders messages [n] through the model's chat template into text (at most cap bytes, full
 * length to *len). `family` overrides what was recognised ("chatml", "smollm2", "qwen2",
 * "qwen2.5", "qwen3", "qwen3-nothink", "llama2", "llama3", "llama3.1", "gemma", "gemma3",
 * "zephyr", "mistral"; NULL: the model's own). `add_generation_prompt` opens the assistant's
 * turn. Unknown templates are refused (FTK_UNSUPPORTED) with the list of what is supported; where
 * the template raises an error, it is FTK_INVALID_ARGUMENT with the template's own words.
 * The result is to be tokenized with FTK_TOKENIZE_SPECIAL, and then a message that spells a
 * control token becomes one: for messages by others use ftk_chat_tokens. */
FTK_API ftk_status ftk_chat_render(const ftk_model *m, const char *family,
                                   const ftk_message *messages, size_t n,
                                   bool add_generation_prompt, char *text, size_t cap, size_t *len,
                                   ftk_error *e);

/* Renders and tokenizes at once: the ids a chat starts a session with, at most `cap` of them to
 * ids [cap], the full count to *n_ids. Control tokens come from the template alone: a message
 * that says "<|im_end|>" is that text, cut into ordinary tokens. BOS comes from the template, or
 * is put in front if the model's file asks for it. */
FTK_API ftk_status ftk_chat_tokens(const ftk_model *m, const char *family,
                                   const ftk_message *messages, size_t n,
                                   bool add_generation_prompt, ftk_token *ids, size_t cap,
                                   size_t *n_ids, ftk_error *e);

/* ----------------------------------------------------------------- session */

typedef enum ftk_kv_type { FTK_KV_INT8 = 0, FTK_KV_F16 = 1, FTK_KV_F32 = 2 } ftk_kv_type;

typedef struct ftk_session_opts {
    size_t size;
    int32_t context;     /* most positions the session may hold; default: min(4096, what the
                            model was trained with). Pages are taken as they fill. */
    int32_t n_threads;   /* default: online cores */
    ftk_kv_type kv_type; /* default INT8 */
    int32_t chunk;       /* tokens computed at once in prefill; default 256 */
    ftk_progress_fn progress; /* prefill progress in tokens; may be NULL */
    void *progress_ctx;
    uint64_t max_bytes;  /* refuse to open if the plan needs more; 0: no limit */
} ftk_session_opts;

/* Bytes the session may take at most (scratch at once, KV pages as the context fills). The
 * sum is what ftk_session_open plans with the same options. */
typedef struct ftk_memory {
    uint64_t weights;  /* of the model, shared by its sessions */
    uint64_t scratch;  /* activations, logits */
    uint64_t kv;       /* KV pages at full context */
    uint64_t total;
} ftk_memory;
FTK_API ftk_status ftk_memory_estimate(const ftk_model *m, const ftk_session_opts *o,
                                       ftk_memory *out, ftk_error *e);

FTK_API ftk_status ftk_session_open(ftk_session **out, const ftk_model *m,
                                    const ftk_session_opts *o, ftk_error *e);
FTK_API void ftk_session_close(ftk_session *s); /* NULL is fine */

/* Makes the session's content exactly tokens [n] and computes the logits after the last one.
 * The common prefix with what the session already holds is reused, at least the last token
 * is always computed. FTK_CONTEXT_FULL (before any work) when n exceeds the context. After
 * FTK_CANCELLED the session holds the chunks finished so far. */
FTK_API ftk_status ftk_prefill(ftk_session *s, const ftk_token *tokens, size_t n, ftk_error *e);

/* Appends one token and computes the logits after it. Nothing is allocated except, when a
 * page of 32 positions is full, the next page from the session's reserve. */
FTK_API ftk_status ftk_decode(ftk_session *s, ftk_token token, ftk_error *e);

/* Logits after the last token, [n_vocab]; borrowed until the next call on the session.
 * NULL before the first prefill. *n may be NULL. */
FTK_API const float *ftk_logits(const ftk_session *s, size_t *n);

/* Appends tokens [n] and, in `logits` [n, n_vocab] (caller's memory), the logits after each.
 * For evaluation. Same arithmetic as ftk_prefill. */
FTK_API ftk_status ftk_score(ftk_session *s, const ftk_token *tokens, size_t n, float *logits,
                             ftk_error *e);

FTK_API size_t ftk_session_length(const ftk_session *s);   /* positions held */
FTK_API size_t ftk_session_context(const ftk_session *s);  /* positions it may hold */
/* The tokens held, [ftk_session_length]; borrowed until the next call. */
FTK_API const ftk_token *ftk_session_tokens(const ftk_session *s);
/* Forgets all but the first n positions. The logits become NULL until the next call. */
FTK_API ftk_status ftk_session_rewind(ftk_session *s, size_t n, ftk_error *e);

/* Asks the call running on the session, if any, to end with FTK_CANCELLED; from any thread or
 * a signal handler. A request made while nothing runs ends the next call at once. */
FTK_API void ftk_session_cancel(ftk_session *s);

/* Snapshot: header, model fingerprint, tokens, KV pages, checksum. Written beside the target
 * and renamed, so that a full disk leaves the old file. Restoring refuses (FTK_MISMATCH,
 * FTK_FORMAT) anything that was cut, flipped, or made for another model or KV type, and leaves
 * the session as it was. The logits are part of the snapshot. */
FTK_API ftk_status ftk_session_save(const ftk_session *s, const char *path, ftk_error *e);
FTK_API ftk_status ftk_session_restore(ftk_session *s, const char *path, ftk_error *e);

typedef struct ftk_stats {
    uint64_t prefill_tokens;  /* computed by the last ftk_prefill */
    uint64_t reused_tokens;   /* taken over from the common prefix by the last ftk_prefill */
    uint64_t decode_tokens;   /* since open */
    double prefill_seconds;   /* of the last ftk_prefill */
    double decode_seconds;    /* since open */
    uint64_t kv_bytes;        /* pages in use now */
    uint64_t kv_peak_bytes;
    uint64_t weight_bytes;    /* read per decoded token */
    uint64_t scratch_bytes;
    uint64_t multiply_adds;   /* since open, matrix products and attention */
    const char *isa;          /* kernel level in use */
} ftk_stats;
FTK_API void ftk_session_stats(const ftk_session *s, ftk_stats *out);

/* Debugging: after each layer `fn` gets the hidden state, activations [n_tokens, hidden], of the
 * chunk just computed; layer -1 is the embedding, layer n_layers the final norm. NULL: off. */
typedef void (*ftk_tap_fn)(void *ctx, int32_t layer, const float *activations, size_t n_tokens,
                           size_t hidden);
FTK_API void ftk_session_tap(ftk_session *s, ftk_tap_fn fn, void *ctx);

/* --------------------------------------------------------- token reduction */

/* What a session may leave out. Everything zero is dense and exact. Reduction happens in ftk_prefill,
 * per SEGMENT: the tokens one call adds are reduced together and what was held before stays as it
 * is, so a second question, a continued chat and a rewind to a segment's start stay correct.
 * Evicted entries are not stored: their pages go back, and decode does not read them.
 *
 * THIS VERSION carries out the KV cache's part: kv_keep, kv_bytes, budgets, every scorer and budget
 * shape, kv_shared, protection. Fields marked [later] are checked, and anything but their zero is then
 * FTK_UNSUPPORTED by name: no setting is quietly ignored. */

typedef enum ftk_reduce_how {
    FTK_REDUCE_MERGE = 0, /* similar tokens become one, weighted */
    FTK_REDUCE_DROP = 1,  /* the least attended leave */
    FTK_REDUCE_SHARE = 2  /* shared updates: all tokens keep residual, key and value; only
                             representatives compute attention and feed-forward, the tokens they
                             stand for get the same update times share_scale */
} ftk_reduce_how;

typedef enum ftk_similarity { FTK_SIMILARITY_COSINE = 0, FTK_SIMILARITY_EUCLIDEAN = 1 } ftk_similarity;
typedef enum ftk_similar_what { FTK_SIMILAR_HIDDEN = 0, FTK_SIMILAR_KEYS = 1 } ftk_similar_what; /* keys: before rotation */
typedef enum ftk_pairing { FTK_PAIRING_ADJACENT = 0, FTK_PAIRING_BLOCK = 1 } ftk_pairing; /* BLOCK: any two of a block */
typedef enum ftk_merge_weight {
    FTK_WEIGHT_SIZE = 0,     /* by the number of tokens each stands for */
    FTK_WEIGHT_MEAN = 1,     /* plain mean of the two */
    FTK_WEIGHT_ATTENTION = 2 /* by attention received */
} ftk_merge_weight;
typedef enum ftk_position_rule {
    FTK_POSITION_EARLIEST = 0,  /* of the members */
    FTK_POSITION_MEAN = 1,      /* rounded down */
    FTK_POSITION_CONTIGUOUS = 2 /* survivors are counted through from the segment's start */
} ftk_position_rule;

/* How KV entries are scored for eviction; the first is ours, the others are the field's, under their
 * own names. All keep the protected. */
typedef enum ftk_scorer {
    FTK_SCORER_VALUE = 0,     /* attention received from the last `observe` queries x value norm */
    FTK_SCORER_SNAPKV = 1,    /* the same without norms, pooled over neighbours (SnapKV) */
    FTK_SCORER_H2O = 2,       /* attention accumulated over all queries of the segment (H2O) */
    FTK_SCORER_RECENT = 3,    /* sinks and the most recent (StreamingLLM) */
    FTK_SCORER_KEY_NORM = 4,  /* small key norms stay (L2 norm-based compression) */
    FTK_SCORER_RANDOM = 5,
    FTK_SCORER_MEAN = 6       /* all queries, each column divided by the number of queries that saw it, x value norm */
} ftk_scorer;

typedef enum ftk_budget_shape {
    FTK_BUDGET_UNIFORM = 0,  /* every layer and head the same share */
    FTK_BUDGET_PYRAMID = 1,  /* falls linearly from the first to the last layer, 1.5x to 0.5x (PyramidKV) */
    FTK_BUDGET_ADAPTIVE = 2, /* a layer's budget goes to its heads by their scores (AdaKV) */
    FTK_BUDGET_WEIGHTS = 3   /* shares in `budgets` */
} ftk_budget_shape;

typedef struct ftk_range {
    int32_t begin, end; /* tokens [begin, end) of the session */
} ftk_range;

typedef struct ftk_reduction {
    size_t size;
    /* In prefill: hidden states. */
    float keep;              /* [later] share of the segment's tokens left after the last event, in (0, 1]; 0: 1 */
    int32_t keep_tokens;     /* [later] or their number; 0: by `keep` */
    ftk_reduce_how how;
    int32_t first_layer;     /* events come after this layer at the earliest; 0: a third of the layers */
    int32_t interval;        /* layers between events; 0: 4 */
    const int32_t *layers;   /* or an explicit ascending list [n_layers_listed], copied */
    size_t n_layers_listed;
    ftk_similarity similarity;
    ftk_similar_what similar_what;
    ftk_pairing pairing;
    int32_t block;           /* tokens among which BLOCK pairs; 2..64; 0: 32 */
    ftk_merge_weight weight;
    ftk_position_rule position;
    bool no_size_bias;       /* do not add log(size) to the scores of merged entries */
    bool ignore_importance;  /* pair by similarity alone, whatever attention a token receives */
    float share_scale;       /* of FTK_REDUCE_SHARE; 0: 1 */
    int32_t min_length;      /* segments shorter than this are dense; 0: 256 */
    int32_t full_length;     /* the share removed grows from 0 at min_length to all of it here; 0: at once */
    /* Letting go: after this layer only `let_go_keep` of the segment's tokens, the most attended, go on. */
    int32_t let_go_layer;    /* [later] 0: never */
    float let_go_keep;       /* in (0, 1]; 0: 0.1 */
    /* The KV cache, once per segment. */
    float kv_keep;           /* average share of entries kept, in (0, 1]; 0: 1 */
    uint64_t kv_bytes;       /* or a budget for the segment's pages; 0: by kv_keep */
    ftk_scorer scorer;
    ftk_budget_shape budget;
    const float *budgets;    /* [n_layers][n_kv_heads] shares in [0, 1], copied; scaled in proportion, none above 1,
                                to meet kv_keep or kv_bytes when one is given */
    bool kv_merge;           /* [later] evicted entries are merged into neighbours instead: similar and little attended first */
    bool kv_shared;          /* one choice for all KV heads of a layer */
    int32_t pool;            /* neighbours (odd) whose scores are pooled by maximum; 0: what the scorer's paper has; 1: none */
    /* Near readers. */
    const int32_t *windows;  /* [later] [n_layers][n_kv_heads] entries a head reads beside the sinks, 0: all of them; copied */
    /* Sparse reading without loss of entries. */
    float read_keep;         /* [later] decode reads at most this share of each head's pages, those with the highest bounds
                                (Quest); in (0, 1]; 0: 1 */
    int32_t read_pages;      /* [later] or their number, at least 2; 0: by read_keep */
    float prefill_blocks;    /* [later] prefill reads the sinks, the local band and this share of the other pages, in (0, 1]; 0: 1 */
    /* What stays whatever happens. */
    int32_t sinks;           /* first tokens of the session; 0: 4; -1: none */
    int32_t recent;          /* last tokens of the segment; 0: 32; -1: none */
    const ftk_range *protect;/* [n_protect], copied */
    size_t n_protect;
    bool merge_special;      /* special tokens may be merged and evicted too */
    bool protect_digits;     /* tokens with digits, and words around them without a space */
    int32_t observe;         /* last queries of the segment whose attention counts; 1..64; 0: 16 (SnapKV: 32) */
    uint64_t seed;           /* of FTK_SCORER_RANDOM */
    int32_t segment;         /* tokens reduced together at most: longer calls are cut into several; 0: 8192 */
} ftk_reduction;

/* A named starting point: "streamingllm", "h2o", "snapkv", "pyramid", "keynorm", "random", "plain-merge" (adjacent,
 * cosine, plain mean, earlier position, no size bias), "summary", "chat", "code", "math" (shares of the cache by
 * rule of thumb, not tuned to a model: `freetoken tune` does that). FTK_INVALID_ARGUMENT names what there is. */
FTK_API ftk_status ftk_reduction_preset(ftk_reduction *out, const char *name, ftk_error *e);

/* Sets the session's policy from the next ftk_prefill on; NULL: dense. What is held stays. Refused by name, before any
 * work: values out of range, lists past the last layer, what the model cannot do. */
FTK_API ftk_status ftk_session_reduce(ftk_session *s, const ftk_reduction *r, ftk_error *e);

/* What reduction did in the last ftk_prefill. */
typedef struct ftk_reduced {
    int32_t tokens_in;          /* of the segment(s) */
    int32_t tokens_out;         /* hidden states that reached the last layer */
    const int32_t *layer_tokens;/* [n_layers] hidden states computed in each; borrowed until the next call */
    const int32_t *kv_entries;  /* [n_layers][n_kv_heads] entries held now by the whole session; borrowed */
    double seconds;             /* spent in reduction itself, part of prefill_seconds */
    uint64_t multiply_adds_dense, multiply_adds; /* of the call */
    const char *dense_because;  /* why nothing was reduced ("shorter than min_length"); static; NULL: it was */
} ftk_reduced;
FTK_API void ftk_session_reduced(const ftk_session *s, ftk_reduced *out);

/* Survivors of one layer and KV head: owners [ftk_session_length] gets for each token the entry that stands for it, -1 for
 * none; positions [cap] and *n the position ids and number of the entries. Either may be NULL. */
FTK_API ftk_status ftk_session_survivors(const ftk_session *s, int32_t layer, int32_t head, int32_t *owners,
                                         int32_t *positions, size_t cap, size_t *n, ftk_error *e);

/* ---------------------------------------------------------------- encoders */

/* Models that read an input as a whole: images (architecture "vit"), text ("bert"), speech commands ("kwt")
 * and long audio ("whisper-encoder"), in GGUF files written by `python -m freetoken.convert`; keys and tensors
 * are in docs/MODEL-encoders.md. ftk_model_open opens them too; ftk_session_open refuses them, as
 * ftk_encoder_open refuses decoders.
 *
 * An ENCODER is a session over such a model: scratch, policy, results of the last call; one thread at a time. */

typedef enum ftk_input_kind {
    FTK_INPUT_TOKENS = 0,  /* ids [n], special tokens included, as ftk_tokenize with FTK_TOKENIZE_BOS_EOS gives them */
    FTK_INPUT_PIXELS = 1,  /* values [channels][rows][cols], normalised with the model's mean and deviation */
    FTK_INPUT_FEATURES = 2 /* values [rows][cols]: frames of MFCC (kwt) or log-mel (whisper-encoder) */
} ftk_input_kind;

/* One input; what it points at is read during the call only. NaN and infinities in `values` are
 * FTK_INVALID_ARGUMENT naming the index. */
typedef struct ftk_input {
    ftk_input_kind kind;
    const ftk_token *ids; /* TOKENS: [n] */
    size_t n;             /* TOKENS: at least 1 */
    const float *values;  /* PIXELS, FEATURES */
    int32_t rows, cols;   /* PIXELS: height and width, multiples of the patch; FEATURES: frames and features per frame.
                             kwt takes exactly its frames, whisper-encoder an even number up to its frames */
} ftk_input;

/* What a model's front end has to know. Strings and arrays live as long as the model. */
typedef struct ftk_encoder_info {
    ftk_input_kind input;
    int32_t max_tokens;        /* of one input, class and register tokens included */
    int32_t n_labels;          /* 0: the file has no classifier */
    int32_t dim;               /* width of an embedding */
    const char *pooling;       /* "cls", "mean" or "none": what ftk_embed gives */
    int32_t n_exits;           /* layers with an exit head in the file */
    int32_t n_scorers;         /* layers with a learned scorer */
    /* PIXELS */
    int32_t image_size, patch, channels;
    float mean[3], deviation[3];  /* of pixels in 0..1 */
    float crop;                   /* resize the short side to image_size / crop, then cut the centre */
    const char *interpolation;    /* "bicubic", "bilinear" */
    /* FEATURES */
    const char *features_kind;    /* "mfcc" (kwt), "log-mel" (whisper-encoder) */
    int32_t frames, features;     /* frames of the window, features per frame */
    int32_t sample_rate;          /* Hz */
    int32_t window, hop, fft;     /* samples */
    int32_t n_mels;               /* mel bands behind MFCC; = features for log-mel */
    float low_hz, high_hz;        /* of the mel bands */
} ftk_encoder_info;
/* FTK_INVALID_ARGUMENT when the model is a decoder. */
FTK_API ftk_status ftk_encoder_get_info(const ftk_model *m, ftk_encoder_info *out, ftk_error *e);
/* Name of label i, NUL-terminated; NULL past the end or when the file names none. */
FTK_API const char *ftk_encoder_label(const ftk_model *m, int32_t label);

typedef struct ftk_encoder ftk_encoder;

typedef struct ftk_encoder_opts {
    size_t size;
    int32_t n_threads;   /* default: online cores */
    int32_t max_tokens;  /* of all inputs of a call together; default: one input of the model's most */
    int32_t max_inputs;  /* of a call; default 1 */
    ftk_kv_type attention; /* keys and values: INT8 (default; models of float weights: F32), F16, F32 */
    bool exact_attention;  /* keep keys and values in F32 whatever the weights are */
    uint64_t max_bytes;  /* refuse to open if scratch needs more; 0: no limit */
} ftk_encoder_opts;

FTK_API ftk_status ftk_encoder_open(ftk_encoder **out, const ftk_model *m, const ftk_encoder_opts *o, ftk_error *e);
FTK_API void ftk_encoder_close(ftk_encoder *s); /* NULL is fine */
FTK_API void ftk_encoder_cancel(ftk_encoder *s); /* as ftk_session_cancel */

typedef struct ftk_score_of {
    int32_t label;
    float score; /* softmax probability */
} ftk_score_of;

/* Inputs [n] go through the model together, packed without padding; each gets the answer it gets alone.
 * Nothing is allocated. On failure (the error names the input) no output is written.
 *
 * ftk_classify: the k likeliest labels of each input, top [n][k], descending; k at most n_labels.
 * ftk_embed: embeddings out [n][dim], pooled as the model's file says, of length 1 when `normalise`.
 * ftk_encode: last hidden states after the final norm. Input i's states begin at offsets[i] tokens of
 *   states [cap][dim] and end at offsets[i + 1]; offsets [n + 1]. With reduction these are the survivors'.
 *   FTK_INVALID_ARGUMENT when they are more than `cap`. */
FTK_API ftk_status ftk_classify(ftk_encoder *s, const ftk_input *inputs, size_t n, ftk_score_of *top, size_t k,
                                ftk_error *e);
FTK_API ftk_status ftk_embed(ftk_encoder *s, const ftk_input *inputs, size_t n, bool normalise, float *out,
                             ftk_error *e);
FTK_API ftk_status ftk_encode(ftk_encoder *s, const ftk_input *inputs, size_t n, float *states, size_t cap,
                              size_t *offsets, ftk_error *e);

/* Classifier logits of the last ftk_classify, [n_labels] of input i; borrowed until the next call; NULL without. */
FTK_API const float *ftk_encoder_logits(const ftk_encoder *s, size_t i);

/* What the last call did for input i; arrays are borrowed until the next call. */
typedef struct ftk_encoded {
    int32_t tokens_in;           /* class and register tokens included */
    int32_t tokens_out;          /* that reached the end */
    int32_t layers;              /* computed; n_layers unless it left at an exit */
    bool exited;                 /* at the exit head after layer `layers` */
    float confidence;            /* what the exit rule measured last; 0 without exits */
    const int32_t *attention_tokens; /* [n_layers] tokens in each layer's attention */
    const int32_t *ffn_tokens;       /* [n_layers] and in its feed-forward */
    uint64_t multiply_adds_dense, multiply_adds;
    double seconds;              /* of the whole call */
    double reduction_seconds;    /* of it, in scoring, matching and gathering */
    const char *dense_because;   /* why nothing was reduced; static; NULL: it was, or nothing was asked */
} ftk_encoded;
FTK_API ftk_status ftk_encoder_result(const ftk_encoder *s, size_t i, ftk_encoded *out, ftk_error *e);
/* Where each of input i's tokens is after layer `layer`: owners [tokens_in] gets the number of the survivor (in the
 * order of their rows) that holds it, -1 when it was dropped. */
FTK_API ftk_status ftk_encoder_owners(const ftk_encoder *s, size_t i, int32_t layer, int32_t *owners, ftk_error *e);
/* Debugging: as ftk_session_tap, once for each input still under way; the last call is that of the last layer. */
FTK_API void ftk_encoder_tap(ftk_encoder *s, ftk_tap_fn fn, void *ctx);

/* How a token's worth is judged before a layer. The first and the second need nothing but the model. */
typedef enum ftk_select_by {
    FTK_SELECT_ATTENTION = 0, /* attention received in the layer before: from the class token, without one from all */
    FTK_SELECT_KEY_NORM = 1,  /* large norms of the layer before's keys */
    FTK_SELECT_DISTINCT = 2,  /* little cosine similarity to the neighbouring tokens */
    FTK_SELECT_LEARNED = 3    /* the file's scorer: a small layer over the token and the mean of all tokens */
} ftk_select_by;

typedef enum ftk_exit_by {
    FTK_EXIT_CONFIDENCE = 0, /* largest probability at least tau */
    FTK_EXIT_MARGIN = 1,     /* it exceeds the second by tau or more */
    FTK_EXIT_ENTROPY = 2     /* 1 - entropy / log(n_labels) at least tau */
} ftk_exit_by;

/* What an encoder may leave out. Everything zero is dense and exact. Class, distillation, register and [CLS]/[SEP]
 * tokens are never dropped or merged away. Layers are counted from 0. */
typedef struct ftk_encoder_reduction {
    size_t size;
    /* Two-stage selection. First stage: before a selecting layer, `by` chooses the candidates its attention is
     * computed among. Second stage: between attention and feed-forward, the attention the candidates received. */
    float keep;               /* share of the tokens that stay at each selecting layer, (0, 1]; 0: 1 */
    float fine_keep;          /* share of the candidates that go on to the feed-forward, (0, 1]; 0: 1 */
    float threshold;          /* > 0: those stay whose score is at least this times the mean score, `keep` being the
                                 least share then */
    float fine_threshold;
    ftk_select_by by;
    int32_t first_layer;      /* first selecting layer; 0: a quarter of the layers, at least 1 */
    int32_t interval;         /* layers between them; 0: a quarter of the layers (DynamicViT, EViT) */
    const float *keeps;       /* [n_layers] instead of the four above, 0 or 1: none; copied */
    const float *fine_keeps;  /* [n_layers]; copied */
    bool fuse;                /* what leaves together becomes one token, weighted by score (EViT) */
    /* Merging: bipartite soft matching of keys between attention and feed-forward (ToMe). */
    int32_t merge;            /* pairs merged in each layer; at most half of the tokens */
    const int32_t *merges;    /* [n_layers] instead; copied */
    bool merge_local;         /* only neighbours in time merge, order is kept: for audio */
    float merge_similarity;   /* pairs less similar than this stay apart, cosine; 0: all may merge */
    bool no_size_bias;        /* do not add log(size) to the scores of merged tokens */
    /* Exits: needs exit heads in the file. */
    float exit_tau;           /* in (0, 1]; 0: none */
    ftk_exit_by exit_by;
    int32_t patience;         /* heads in a row that agree on the label, in place of tau when exit_tau is 0, else both
                                 are asked; 0: 1 (PABEE) */
    int32_t min_layers;       /* computed before the first exit; 0: 1 */
    /* Sparse attention. */
    int32_t attend;           /* keys each query reads, rounded up to pages of 32: a block of up to 64 queries picks, per
                                 head, the pages whose mean key agrees most with its mean query; the first page
                                 always; 0: all. Inputs of fewer tokens read all */
    int32_t min_tokens;       /* inputs shorter than this are dense, exits aside; 0: 1 */
    int32_t tile;             /* keep counts are rounded up to multiples of this; 0: 1 */
} ftk_encoder_reduction;
/* From the next call on; NULL: dense. Refused by name: values out of range, heads or scorers the file lacks. */
FTK_API ftk_status ftk_encoder_reduce(ftk_encoder *s, const ftk_encoder_reduction *r, ftk_error *e);

/* ---------------------------------------------------------------- sampling */

typedef struct ftk_sampler ftk_sampler;

typedef struct ftk_logit_bias {
    ftk_token token;
    float bias; /* added to the logit; -INFINITY bans the token */
} ftk_logit_bias;

typedef struct ftk_sampler_opts {
    size_t size;
    float temperature;        /* 0: greedy; range 0..100 */
    int32_t top_k;            /* 0: off */
    float top_p;              /* 0 or 1: off; range 0..1 */
    float min_p;              /* 0: off; range 0..1 */
    float repetition_penalty; /* 0 or 1: off; range 0..100; divides positive and multiplies negative logits */
    float frequency_penalty;  /* 0: off; range -2..2 */
    float presence_penalty;   /* 0: off; range -2..2 */
    int32_t penalty_window;   /* last tokens looked at; default 64; -1: all */
    uint64_t seed;            /* same seed, threads and model: same text */
    const ftk_logit_bias *bias; /* [n_bias], copied */
    size_t n_bias;
} ftk_sampler_opts;

FTK_API ftk_status ftk_sampler_open(ftk_sampler **out, const ftk_model *m,
                                    const ftk_sampler_opts *o, ftk_error *e);
FTK_API void ftk_sampler_close(ftk_sampler *p);
/* Picks the next token from the session's logits; penalties look at the session's tokens. */
FTK_API ftk_status ftk_sample(ftk_sampler *p, const ftk_session *s, ftk_token *out, ftk_error *e);

/* -------------------------------------------------------------- generation */

typedef enum ftk_finish {
    FTK_FINISH_END = 0,      /* the model ended its turn */
    FTK_FINISH_STOP = 1,     /* a stop string came */
    FTK_FINISH_LENGTH = 2,   /* max_tokens reached */
    FTK_FINISH_CONTEXT = 3,  /* the context is full */
    FTK_FINISH_CANCELLED = 4 /* by the callback or ftk_session_cancel */
} ftk_finish;

/* Gets whole UTF-8 characters only, never text that is part of a stop string; return false
 * to stop. `len` bytes, not NUL-terminated. */
typedef bool (*ftk_text_fn)(void *ctx, const char *text, size_t len);

typedef struct ftk_generate_opts {
    size_t size;
    int32_t max_tokens;       /* 0: until the context is full */
    const char *const *stop;  /* [n_stop] stop strings, borrowed during the call */
    size_t n_stop;
    bool show_special;        /* emit the text of special tokens */
    bool ignore_end;          /* go on after end-of-generation tokens */
    ftk_text_fn on_text;      /* may be NULL */
    void *on_text_ctx;
} ftk_generate_opts;

typedef struct ftk_generated {
    ftk_finish finish;
    size_t n_tokens;        /* generated, the ending token included */
    double first_token_seconds; /* from the call to the first token's pick */
    double seconds;
} ftk_generated;

/* Continues the session from its logits. Tokens generated are part of the session afterwards. */
FTK_API ftk_status ftk_generate(ftk_session *s, ftk_sampler *p, const ftk_generate_opts *o,
                                ftk_generated *out, ftk_error *e);

/* --------------------------------------------------------------- quantising */

/* Writes a copy of the GGUF `in` with its matrices in `type` ("Q8_0", "Q4_0", "Q4_K"); tensors
 * whose rows do not fit the type's block, and one-dimensional ones, keep theirs. Written beside
 * the target and renamed. */
typedef struct ftk_quantize_opts {
    size_t size;
    const char *type;
    int32_t n_threads;
    ftk_progress_fn progress;
    void *progress_ctx;
} ftk_quantize_opts;
FTK_API ftk_status ftk_quantize_file(const char *in, const char *out, const ftk_quantize_opts *o,
                                     ftk_error *e);

/* --------------------------------------------------------------- inspection */

/* A GGUF file's directory, without opening it as a model. */
typedef struct ftk_file ftk_file;
typedef struct ftk_file_tensor {
    const char *name; /* borrowed from the file */
    const char *type; /* "Q4_1" */
    int32_t n_dims;
    uint64_t dims[4]; /* GGUF order: dims[0] is the contiguous one */
    uint64_t offset;  /* bytes from the start of the file */
    uint64_t bytes;
} ftk_file_tensor;
FTK_API ftk_status ftk_file_open(ftk_file **out, const char *path, ftk_error *e);
FTK_API void ftk_file_close(ftk_file *f);
FTK_API uint32_t ftk_file_version(const ftk_file *f);
FTK_API size_t ftk_file_n_keys(const ftk_file *f);
/* Key i, its type name ("u32", "string", "array of f32"), and its value as text, arrays
 * shortened; writes at most cap bytes to text, NUL-terminated. Returns NULL past the end. */
FTK_API const char *ftk_file_key(const ftk_file *f, size_t i, const char **type, char *text,
                                 size_t cap);
FTK_API size_t ftk_file_n_tensors(const ftk_file *f);
FTK_API bool ftk_file_get_tensor(const ftk_file *f, size_t i, ftk_file_tensor *out);

/* ------------------------------------------------------------------ machine */

typedef struct ftk_machine {
    const char *cpu;       /* features in words, e.g. "avx2 fma avx512 vnni"; static */
    const char *isa;       /* level chosen by default */
    int32_t n_cores;       /* online */
    uint64_t memory_bytes; /* physical */
    uint64_t memory_free;  /* available now */
    bool huge_pages;       /* transparent huge pages can be had by madvise */
} ftk_machine;
FTK_API void ftk_machine_get(ftk_machine *out);

/* Measures the roofline on n_threads threads, taking about `seconds` each: read bandwidth in
 * bytes/s from a 96 MiB buffer, INT8 dot-product peak in operations/s (a multiply and an add are
 * two). */
FTK_API ftk_status ftk_machine_measure(int32_t n_threads, double seconds, double *bytes_per_second,
                                       double *int8_ops_per_second, ftk_error *e);

#ifdef __cplusplus
}
#endif
#endif

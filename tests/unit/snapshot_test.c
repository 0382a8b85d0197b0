// SPDX-License-Identifier: Apache-2.0
/* Snapshot files: what comes back, and everything that must be refused. */
#include "e2e/support.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/hash.h"

enum { N_TOKENS = 37, CONTEXT = 64, VOCABULARY_PAST_ANY = 1 << 20 };

typedef struct bytes {
    unsigned char *data;
    size_t len;
} bytes;

static bytes read_file(const char *path) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    bytes b = {malloc(1 << 20), 0};
    assert_non_null(b.data);
    b.len = fread(b.data, 1, 1 << 20, f);
    fclose(f);
    assert_true(b.len > 0 && b.len < 1 << 20);
    return b;
}

static void write_file(const char *path, const unsigned char *data, size_t len) {
    remove(path); /* some systems flush a file that is cut to nothing and written anew */
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_true(fwrite(data, 1, len, f) == len);
    assert_int_equal(fclose(f), 0);
}

/* Makes the last 8 bytes the checksum of those before them. */
static void seal(unsigned char *data, size_t len) {
    ftki_hash h;
    ftki_hash_start(&h);
    ftki_hash_add(&h, data, len - 8);
    uint64_t sum = ftki_hash_end(&h);
    for (int i = 0; i < 8; i++) data[len - 8 + (size_t)i] = (unsigned char)(sum >> (8 * i));
}

static ftk_model *small_model(uint64_t seed) {
    return support_model(&(tiny_opts){.layers = 1, .heads = 2, .kv_heads = 1, .head_dim = 8, .hidden = 32,
                                      .ffn = 32, .seed = seed}, NULL);
}

static ftk_session *open_session(const ftk_model *m, int32_t context, ftk_kv_type type) {
    return support_session(m, &(ftk_session_opts){.context = context, .kv_type = type, .n_threads = 1, .chunk = 16});
}

/* A session that holds tokens of `seed`, and what it holds written down. */
typedef struct holder {
    ftk_session *session;
    ftk_token tokens[N_TOKENS];
    float *logits;
} holder;

static holder fill(ftk_session *s, const ftk_model *m, uint64_t seed) {
    holder h = {.session = s};
    support_tokens(m, h.tokens, N_TOKENS, seed);
    support_prefill(s, h.tokens, N_TOKENS);
    h.logits = support_logits(s);
    return h;
}

static void holds_still(const holder *h) {
    assert_int_equal(ftk_session_length(h->session), N_TOKENS);
    assert_memory_equal(ftk_session_tokens(h->session), h->tokens, sizeof h->tokens);
    support_same_logits(h->session, h->logits);
}

static void let_go(holder *h) {
    free(h->logits);
    ftk_session_close(h->session);
}

/* Refused with one of the allowed statuses and a message; the session as it was. */
static void refused(const holder *h, const char *path, ftk_status a, ftk_status b) {
    ftk_error e = {0};
    ftk_status got = ftk_session_restore(h->session, path, &e);
    if (got != a && got != b) fail_msg("status %s: %s", ftk_status_name(got), e.message);
    assert_int_equal(e.code, got);
    assert_true(e.message[0]);
    holds_still(h);
}

/* ------------------------------------------------------------ coming back */

static void continues_bit_for_bit(void **state) {
    (void)state;
    const ftk_kv_type types[] = {FTK_KV_INT8, FTK_KV_F16, FTK_KV_F32};
    ftk_model *m = support_model(NULL, NULL);
    for (int i = 0; i < 3; i++) {
        holder a = fill(open_session(m, CONTEXT, types[i]), m, 1);
        support_name path = support_path("continue.snap");
        ftk_error e = {0};
        assert_ok(ftk_session_save(a.session, path.text, &e), &e);
        holds_still(&a);
        /* Into a fresh session, a longer one, and one that holds something else. */
        for (int way = 0; way < 3; way++) {
            ftk_session *b = open_session(m, way == 1 ? 2 * CONTEXT : CONTEXT, types[i]);
            if (way == 2) {
                holder other = fill(b, m, 2);
                free(other.logits);
            }
            assert_ok(ftk_session_restore(b, path.text, &e), &e);
            holder back = {.session = b, .logits = a.logits};
            memcpy(back.tokens, a.tokens, sizeof a.tokens);
            holds_still(&back);
            ftk_stats stats, original;
            ftk_session_stats(b, &stats);
            ftk_session_stats(a.session, &original);
            assert_true(stats.kv_bytes == original.kv_bytes && stats.kv_bytes > 0);
            ftk_error quiet = {0};
            assert_ok(ftk_session_rewind(a.session, N_TOKENS, &quiet), &quiet);
            support_prefill(a.session, a.tokens, N_TOKENS);
            for (int step = 0; step < 20; step++) {
                ftk_token t = support_argmax(a.session);
                assert_int_equal(support_argmax(b), t);
                support_decode(a.session, t);
                support_decode(b, t);
                float *want = support_logits(a.session);
                support_same_logits(b, want);
                free(want);
            }
            assert_ok(ftk_session_rewind(a.session, N_TOKENS, &quiet), &quiet);
            ftk_session_close(b);
        }
        let_go(&a);
    }
    ftk_model_close(m);
}

/* K19: what was restored is used, and said to be. */
static void prefix_is_reused_after_restoring(void **state) {
    (void)state;
    ftk_model *m = small_model(1);
    holder a = fill(open_session(m, CONTEXT, FTK_KV_INT8), m, 1);
    support_name path = support_path("reuse.snap");
    ftk_error e = {0};
    assert_ok(ftk_session_save(a.session, path.text, &e), &e);
    ftk_session *b = open_session(m, CONTEXT, FTK_KV_INT8);
    assert_ok(ftk_session_restore(b, path.text, &e), &e);
    support_prefill(b, a.tokens, N_TOKENS);
    ftk_stats stats;
    ftk_session_stats(b, &stats);
    assert_int_equal(stats.reused_tokens, N_TOKENS - 1);
    assert_int_equal(stats.prefill_tokens, 1);
    support_same_logits(b, a.logits);
    ftk_session_close(b);
    let_go(&a);
    ftk_model_close(m);
}

static void empty_and_without_logits(void **state) {
    (void)state;
    ftk_model *m = small_model(1);
    support_name path = support_path("empty.snap");
    ftk_error e = {0};
    ftk_session *a = open_session(m, CONTEXT, FTK_KV_INT8);
    assert_ok(ftk_session_save(a, path.text, &e), &e);
    holder b = fill(open_session(m, CONTEXT, FTK_KV_INT8), m, 3);
    assert_ok(ftk_session_restore(b.session, path.text, &e), &e);
    assert_int_equal(ftk_session_length(b.session), 0);
    assert_null(ftk_logits(b.session, NULL));
    support_prefill(b.session, b.tokens, N_TOKENS);
    support_same_logits(b.session, b.logits);
    assert_ok(ftk_session_rewind(b.session, 5, &e), &e);
    assert_ok(ftk_session_save(b.session, path.text, &e), &e);
    assert_ok(ftk_session_restore(a, path.text, &e), &e);
    assert_int_equal(ftk_session_length(a), 5);
    assert_null(ftk_logits(a, NULL));
    support_prefill(a, b.tokens, N_TOKENS);
    support_same_logits(a, b.logits);
    ftk_session_close(a);
    let_go(&b);
    ftk_model_close(m);
}

/* --------------------------------------------------------------- refusals */

static void every_cut_and_flip_is_refused(void **state) {
    (void)state;
    ftk_model *m = small_model(1);
    holder a = fill(open_session(m, CONTEXT, FTK_KV_INT8), m, 1), b = fill(open_session(m, CONTEXT, FTK_KV_INT8), m, 2);
    support_name good = support_path("good.snap"), bad = support_path("bad.snap");
    ftk_error e = {0};
    assert_ok(ftk_session_save(a.session, good.text, &e), &e);
    bytes file = read_file(good.text);
    for (size_t len = 0; len < file.len; len++) {
        write_file(bad.text, file.data, len);
        refused(&b, bad.text, FTK_FORMAT, FTK_FORMAT);
    }
    for (size_t i = 0; i < file.len; i++) {
        for (int k = 0; k < 2; k++) {
            unsigned char mask = k ? 0xFF : (unsigned char)(1u << i % 8);
            file.data[i] ^= mask;
            write_file(bad.text, file.data, file.len);
            refused(&b, bad.text, FTK_FORMAT, FTK_FORMAT);
            file.data[i] ^= mask;
        }
    }
    /* One byte more. */
    file.data[file.len] = 0;
    write_file(bad.text, file.data, file.len + 1);
    refused(&b, bad.text, FTK_FORMAT, FTK_FORMAT);
    free(file.data);
    let_go(&a);
    let_go(&b);
    ftk_model_close(m);
}

/* A checksum can be made to hold: the fields behind it are not believed either. What is taken all
 * the same is a session that works. */
static void sealed_damage_does_no_harm(void **state) {
    (void)state;
    ftk_model *m = small_model(1);
    holder a = fill(open_session(m, CONTEXT, FTK_KV_INT8), m, 1);
    support_name good = support_path("good.snap"), bad = support_path("bad.snap");
    ftk_error e = {0};
    assert_ok(ftk_session_save(a.session, good.text, &e), &e);
    bytes file = read_file(good.text);
    size_t taken = 0, turned_down = 0;
    unsigned char *copy = malloc(file.len);
    assert_non_null(copy);
    ftk_session *s = open_session(m, CONTEXT, FTK_KV_INT8);
    for (size_t i = 0; i < file.len - 8; i++) {
        for (int k = 0; k < 3; k++) {
            memcpy(copy, file.data, file.len);
            copy[i] ^= k == 0 ? 0x80 : k == 1 ? 0xFF : 1;
            seal(copy, file.len);
            write_file(bad.text, copy, file.len);
            size_t held = ftk_session_length(s);
            ftk_status status = ftk_session_restore(s, bad.text, &e);
            if (status == FTK_OK) {
                taken++;
                support_decode(s, 1);
            } else {
                turned_down++;
                assert_int_equal(ftk_session_length(s), held);
                assert_true(status == FTK_FORMAT || status == FTK_MISMATCH || status == FTK_UNSUPPORTED ||
                            status == FTK_CONTEXT_FULL);
            }
        }
    }
    assert_true(taken > 0 && turned_down > 100); /* codes may differ, counts and positions may not */
    /* Sealed cuts. */
    for (size_t len = 56; len < file.len; len += 7) {
        memcpy(copy, file.data, len);
        seal(copy, len);
        write_file(bad.text, copy, len);
        assert_int_equal(ftk_session_restore(s, bad.text, &e), FTK_FORMAT);
    }
    support_prefill(s, a.tokens, N_TOKENS - 1); /* whatever it holds now, it works */
    ftk_session_close(s);
    free(copy);
    free(file.data);
    let_go(&a);
    ftk_model_close(m);
}

static void fields_are_named(void **state) {
    (void)state;
    ftk_model *m = small_model(1);
    holder a = fill(open_session(m, CONTEXT, FTK_KV_INT8), m, 1);
    support_name good = support_path("good.snap"), bad = support_path("bad.snap");
    ftk_error e = {0};
    assert_ok(ftk_session_save(a.session, good.text, &e), &e);
    bytes file = read_file(good.text);
    const struct {
        size_t at;
        uint32_t value;
        ftk_status status;
        const char *word;
    } cases[] = {{8, 2, FTK_UNSUPPORTED, "version"},
                 {12, 1, FTK_MISMATCH, "kv_type"},
                 {16, 1, FTK_MISMATCH, "model"},
                 {24, 9, FTK_MISMATCH, "n_layers"},
                 {28, 9, FTK_MISMATCH, "n_kv_heads"},
                 {32, 9, FTK_MISMATCH, "head_dim"},
                 {36, 9, FTK_MISMATCH, "n_vocab"},
                 {40, CONTEXT + 1, FTK_CONTEXT_FULL, "longer"},
                 {40, UINT32_MAX, FTK_CONTEXT_FULL, "longer"},
                 {44, 2, FTK_FORMAT, "has_logits"},
                 {48, VOCABULARY_PAST_ANY, FTK_FORMAT, "vocabulary"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char *field = file.data + cases[i].at, kept[4];
        memcpy(kept, field, 4);
        memcpy(field, &cases[i].value, 4);
        seal(file.data, file.len);
        write_file(bad.text, file.data, file.len);
        support_fails(ftk_session_restore(a.session, bad.text, &e), cases[i].status, &e, cases[i].word, NULL);
        assert_int_equal(e.offset, cases[i].at);
        memcpy(field, kept, 4);
        holds_still(&a);
    }
    free(file.data);
    let_go(&a);
    ftk_model_close(m);
}

static void other_sessions_are_refused(void **state) {
    (void)state;
    ftk_model *m = small_model(1), *other = small_model(2);
    holder a = fill(open_session(m, CONTEXT, FTK_KV_INT8), m, 1);
    support_name path = support_path("other.snap");
    ftk_error e = {0};
    assert_ok(ftk_session_save(a.session, path.text, &e), &e);

    holder b = fill(open_session(other, CONTEXT, FTK_KV_INT8), other, 2);
    support_fails(ftk_session_restore(b.session, path.text, &e), FTK_MISMATCH, &e, "model", NULL);
    holds_still(&b);
    let_go(&b);
    b = fill(open_session(m, CONTEXT, FTK_KV_F16), m, 2);
    support_fails(ftk_session_restore(b.session, path.text, &e), FTK_MISMATCH, &e, "INT8", "F16", "kv_type", NULL);
    holds_still(&b);
    let_go(&b);
    ftk_session *s = open_session(m, N_TOKENS - 1, FTK_KV_INT8);
    support_fails(ftk_session_restore(s, path.text, &e), FTK_CONTEXT_FULL, &e, "37", "36", NULL);
    assert_int_equal(ftk_session_length(s), 0);
    ftk_session_close(s);
    s = open_session(m, N_TOKENS, FTK_KV_INT8); /* exactly enough */
    assert_ok(ftk_session_restore(s, path.text, &e), &e);
    ftk_session_close(s);
    let_go(&a);
    ftk_model_close(m);
    ftk_model_close(other);
}

static void paths_that_cannot_be_read(void **state) {
    (void)state;
    ftk_model *m = small_model(1);
    holder a = fill(open_session(m, CONTEXT, FTK_KV_INT8), m, 1);
    ftk_error e = {0};
    support_name path = support_path("missing.snap");
    support_fails(ftk_session_restore(a.session, path.text, &e), FTK_IO, &e, "missing.snap", NULL);
    support_fails(ftk_session_restore(a.session, support_directory, &e), FTK_IO, &e, "directory", NULL);
    support_fails(ftk_session_save(a.session, support_directory, &e), FTK_IO, &e, "directory", NULL);
    path = support_path("no/such/folder.snap");
    support_fails(ftk_session_save(a.session, path.text, &e), FTK_IO, &e, "folder.snap", NULL);
    path = support_path("gguf.snap");
    assert_true(tiny_model_write(NULL, path.text));
    support_fails(ftk_session_restore(a.session, path.text, &e), FTK_FORMAT, &e, "snapshot", NULL);
    path = support_path("locked.snap");
    assert_ok(ftk_session_save(a.session, path.text, &e), &e);
    assert_int_equal(chmod(path.text, 0), 0);
    bool root = geteuid() == 0;
    if (root) assert_int_equal(seteuid(65534), 0); /* root may read anything */
    ftk_status status = ftk_session_restore(a.session, path.text, &e);
    if (root) assert_int_equal(seteuid(0), 0);
    support_fails(status, FTK_IO, &e, "locked.snap", NULL);
    assert_int_equal(ftk_session_restore(NULL, path.text, NULL), FTK_INVALID_ARGUMENT);
    assert_int_equal(ftk_session_restore(a.session, NULL, NULL), FTK_INVALID_ARGUMENT);
    assert_int_equal(ftk_session_save(a.session, NULL, NULL), FTK_INVALID_ARGUMENT);
    holds_still(&a);
    let_go(&a);
    ftk_model_close(m);
}

static int files_seen;
static int count_file(const char *path, const struct stat *st, int flag, struct FTW *where) {
    (void)path;
    (void)st;
    (void)where;
    files_seen += flag == FTW_F;
    return 0;
}

static int files_there(void) {
    files_seen = 0;
    nftw(support_directory, count_file, 8, FTW_PHYS);
    return files_seen;
}

/* The limit on file sizes stands for a full disk: writing fails part of the way. */
static void full_disk_leaves_the_old_file(void **state) {
    (void)state;
    ftk_model *m = small_model(1);
    holder a = fill(open_session(m, CONTEXT, FTK_KV_INT8), m, 1), b = fill(open_session(m, CONTEXT, FTK_KV_INT8), m, 2);
    support_name path = support_path("full.snap");
    ftk_error e = {0};
    assert_ok(ftk_session_save(a.session, path.text, &e), &e);
    bytes before = read_file(path.text);
    int files = files_there();
    struct rlimit usual;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &usual), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    for (rlim_t limit = 0; limit < before.len; limit += limit < 64 ? 16 : 500) {
        struct rlimit small = {limit, usual.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        ftk_status status = ftk_session_save(b.session, path.text, &e);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &usual), 0);
        support_fails(status, FTK_IO, &e, "full.snap", NULL);
        bytes after = read_file(path.text);
        assert_int_equal(after.len, before.len);
        assert_memory_equal(after.data, before.data, before.len);
        free(after.data);
        assert_int_equal(files_there(), files);
    }
    signal(SIGXFSZ, handler);
    holds_still(&b);
    assert_ok(ftk_session_save(b.session, path.text, &e), &e); /* there is room again */
    assert_ok(ftk_session_restore(a.session, path.text, &e), &e);
    assert_memory_equal(ftk_session_tokens(a.session), b.tokens, sizeof b.tokens);
    free(before.data);
    let_go(&a);
    let_go(&b);
    ftk_model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(continues_bit_for_bit),
        cmocka_unit_test(prefix_is_reused_after_restoring),
        cmocka_unit_test(empty_and_without_logits),
        cmocka_unit_test(every_cut_and_flip_is_refused),
        cmocka_unit_test(sealed_damage_does_no_harm),
        cmocka_unit_test(fields_are_named),
        cmocka_unit_test(other_sessions_are_refused),
        cmocka_unit_test(paths_that_cannot_be_read),
        cmocka_unit_test(full_disk_leaves_the_old_file)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

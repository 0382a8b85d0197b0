// SPDX-License-Identifier: Apache-2.0
/* Snapshot files: any bytes, as they are and with the model's fingerprint and a checksum that holds,
 * restored into a session that must work afterwards, whatever the answer was. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/hash.h"
#include "e2e/tiny_model.h"
#include "engine/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CONTEXT = 64 };

static void must(int holds) {
    if (!holds) abort();
}

/* A file in memory, and the path under which it can be opened again. */
typedef struct memory_file {
    int fd;
    char path[32];
} memory_file;

static memory_file file_of(const void *data, size_t size) {
    memory_file f = {.fd = memfd_create("fuzz", MFD_CLOEXEC)};
    must(f.fd >= 0 && write(f.fd, data, size) == (ssize_t)size);
    snprintf(f.path, sizeof f.path, "/proc/self/fd/%d", f.fd);
    return f;
}

static ftk_model *model(void) {
    static ftk_model *m;
    if (m) return m;
    tiny_gguf g;
    tiny_model(&g, &(tiny_opts){.layers = 1, .heads = 2, .kv_heads = 1, .head_dim = 8, .hidden = 32, .ffn = 32, .seed = 1});
    size_t len;
    unsigned char *bytes = tiny_gguf_bytes(&g, &len);
    memory_file f = file_of(bytes, len);
    must(ftk_model_open(&m, f.path, NULL, NULL) == FTK_OK);
    close(f.fd);
    free(bytes);
    tiny_gguf_free(&g);
    return m;
}

static void restore(const uint8_t *data, size_t size, ftk_kv_type type) {
    ftk_session *s = NULL;
    ftk_error e = {0};
    ftk_session_opts o = {.context = CONTEXT, .n_threads = 1, .chunk = 16, .kv_type = type};
    must(ftk_session_open(&s, model(), &o, NULL) == FTK_OK);
    must(ftk_prefill(s, (ftk_token[]){1, 2, 3}, 3, NULL) == FTK_OK);
    memory_file f = file_of(data, size);
    if (ftk_session_restore(s, f.path, &e) == FTK_OK) {
        must(ftk_session_length(s) <= CONTEXT);
    } else {
        must(e.code != FTK_OK && e.message[0] && ftk_session_length(s) == 3 && ftk_logits(s, NULL) != NULL);
    }
    close(f.fd);
    if (ftk_session_length(s) < CONTEXT) must(ftk_decode(s, 5, NULL) == FTK_OK);
    must(ftk_prefill(s, (ftk_token[]){1, 2, 3, 4}, 4, NULL) == FTK_OK);
    ftk_session_close(s);
}

static void put_u64(uint8_t *at, uint64_t v) {
    for (int i = 0; i < 8; i++) at[i] = (uint8_t)(v >> (8 * i));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ftk_kv_type type = size > 12 && data[12] < 3 ? (ftk_kv_type)data[12] : FTK_KV_INT8;
    restore(data, size, type);
    if (size < 32) return 0;
    uint8_t *sealed = malloc(size);
    must(sealed != NULL);
    memcpy(sealed, data, size);
    put_u64(sealed + 16, model()->fingerprint);
    ftki_hash h;
    ftki_hash_start(&h);
    ftki_hash_add(&h, sealed, size - 8);
    put_u64(sealed + size - 8, ftki_hash_end(&h));
    restore(sealed, size, type);
    free(sealed);
    return 0;
}

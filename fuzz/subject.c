// SPDX-License-Identifier: Apache-2.0
#include "subject.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "e2e/tiny_model.h"

void subject_must(bool holds) {
    if (!holds) abort();
}

subject_file subject_file_of(const void *data, size_t size) {
    subject_file f = {.fd = memfd_create("fuzz", MFD_CLOEXEC)};
    subject_must(f.fd >= 0 && write(f.fd, data, size) == (ssize_t)size);
    snprintf(f.path, sizeof f.path, "/proc/self/fd/%d", f.fd);
    return f;
}

void subject_file_close(subject_file *f) { close(f->fd); }

ftk_model *subject_model(void) {
    static ftk_model *m;
    if (m) return m;
    tiny_gguf g;
    tiny_model(&g, &(tiny_opts){.layers = 1, .heads = 2, .kv_heads = 1, .head_dim = 8, .hidden = 32, .ffn = 32, .seed = 1});
    size_t len;
    unsigned char *bytes = tiny_gguf_bytes(&g, &len);
    subject_file f = subject_file_of(bytes, len);
    subject_must(ftk_model_open(&m, f.path, &(ftk_model_opts){.n_threads = 1}, NULL) == FTK_OK);
    subject_file_close(&f);
    free(bytes);
    tiny_gguf_free(&g);
    return m;
}

ftk_session *subject_session(ftk_kv_type type) {
    ftk_session *s = NULL;
    ftk_session_opts o = {.context = SUBJECT_CONTEXT, .n_threads = 1, .chunk = SUBJECT_CHUNK, .kv_type = type};
    subject_must(ftk_session_open(&s, subject_model(), &o, NULL) == FTK_OK);
    return s;
}

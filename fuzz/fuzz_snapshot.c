// SPDX-License-Identifier: Apache-2.0
/* Snapshot files: any bytes, as they are and with the model's fingerprint and a checksum that holds,
 * restored into a session that must work afterwards, whatever the answer was. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "engine/model.h"
#include "subject.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void restore(const uint8_t *data, size_t size, ftk_kv_type type) {
    ftk_session *s = subject_session(type);
    ftk_error e = {0};
    subject_must(ftk_prefill(s, (ftk_token[]){1, 2, 3}, 3, NULL) == FTK_OK);
    subject_file f = subject_file_of(data, size);
    ftk_status status = ftk_session_restore(s, f.path, &e);
    if (status == FTK_OK) subject_must(ftk_session_length(s) <= SUBJECT_CONTEXT);
    else subject_must(e.code == status && e.message[0] && ftk_session_length(s) == 3 && ftk_logits(s, NULL) != NULL);
    subject_file_close(&f);
    if (ftk_session_length(s) < SUBJECT_CONTEXT) subject_must(ftk_decode(s, 5, NULL) == FTK_OK);
    subject_must(ftk_prefill(s, (ftk_token[]){1, 2, 3, 4}, 4, NULL) == FTK_OK);
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
    subject_must(sealed != NULL);
    memcpy(sealed, data, size);
    put_u64(sealed + 16, subject_model()->fingerprint);
    ftki_hash h;
    ftki_hash_start(&h);
    ftki_hash_add(&h, sealed, size - 8);
    put_u64(sealed + size - 8, ftki_hash_end(&h));
    restore(sealed, size, type);
    free(sealed);
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
/* Slots whose check is still to be written: they fall back to these until check_<slot> exists. */
#include "kernels/harness.h"

#define PENDING(slot)                                          \
    __attribute__((weak)) void check_##slot(ht *t) {           \
        if (!t->bench && t->table == t->scalar) printf("  " #slot ": no check yet\n"); \
    }
PENDING(rms_norm)
PENDING(rope)
PENDING(silu_mul)
PENDING(gelu_mul)
PENDING(add)
PENDING(kv_write)
PENDING(kv_read)
PENDING(attn_prepare)
PENDING(attn_segment)
PENDING(attn_merge)
PENDING(attn_finish)
PENDING(attn_columns)
PENDING(value_norms)

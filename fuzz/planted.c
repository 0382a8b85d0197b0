// SPDX-License-Identifier: Apache-2.0
/* A target that does not survive: what replay must notice. */
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    (void)data;
    if (size > 0) exit(1);
    return 0;
}

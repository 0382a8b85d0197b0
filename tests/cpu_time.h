// SPDX-License-Identifier: Apache-2.0
/* Seconds of processor time this process has used: what limits in tests are measured by, since a
 * busy machine stretches every other clock. */
#ifndef TEST_CPU_TIME_H
#define TEST_CPU_TIME_H

#include <time.h>

static inline double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif

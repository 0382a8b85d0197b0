// SPDX-License-Identifier: Apache-2.0
/* The same cases over the sleep for systems without futex. The definitions here come before the
 * library's, so the linker takes none of its threads.c. */
#define FTKI_NO_FUTEX
#include "base/threads.c"

#include "base_threads_test.c"

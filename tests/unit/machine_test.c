// SPDX-License-Identifier: Apache-2.0
/* What the machine says of itself, and that measuring gives plausible figures and refuses nonsense. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "freetoken/freetoken.h"

static void tells_the_machine(void **state) {
    (void)state;
    ftk_machine m;
    ftk_machine_get(&m);
    assert_true(m.cpu[0] != '\0');
    assert_true(m.n_cores >= 1);
    assert_true(m.memory_free > 0 && m.memory_free <= m.memory_bytes);
    assert_non_null(m.isa);
}

static void follows_the_environment(void **state) {
    (void)state;
    ftk_machine m;
    setenv("FREETOKEN_ISA", "scalar", 1);
    ftk_machine_get(&m);
    assert_string_equal(m.isa, "scalar");
    unsetenv("FREETOKEN_ISA");
}

static void measures(void **state) {
    (void)state;
    double bandwidth = 0, peak = 0;
    ftk_error e;
    assert_int_equal(ftk_machine_measure(1, 0.02, &bandwidth, &peak, &e), FTK_OK);
    assert_true(bandwidth > 1e8 && bandwidth < 1e13);
    assert_true(peak > 1e8 && peak < 1e15);
}

static void refuses(void **state) {
    (void)state;
    double bandwidth = -1, peak = -1;
    ftk_error e;
    assert_int_equal(ftk_machine_measure(1, -1.0, &bandwidth, &peak, &e), FTK_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, "seconds"));
    assert_int_equal(ftk_machine_measure(1000, 0.01, &bandwidth, &peak, &e), FTK_INVALID_ARGUMENT);
    assert_true(bandwidth == -1 && peak == -1);
    setenv("FREETOKEN_ISA", "mmx", 1);
    assert_int_equal(ftk_machine_measure(1, 0.01, &bandwidth, &peak, &e), FTK_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, "FREETOKEN_ISA"));
    unsetenv("FREETOKEN_ISA");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_the_machine),
        cmocka_unit_test(follows_the_environment),
        cmocka_unit_test(measures),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

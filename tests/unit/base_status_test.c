// SPDX-License-Identifier: Apache-2.0
/* Status names, and messages that stay one line of valid UTF-8 whatever is put into them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

static void names_and_texts(void **state) {
    (void)state;
    assert_string_equal(ftk_status_name(FTK_OK), "OK");
    assert_string_equal(ftk_status_name(FTK_CONTEXT_FULL), "CONTEXT_FULL");
    assert_string_equal(ftk_status_text(FTK_IO), "a file could not be read or written");
    assert_string_equal(ftk_status_name((ftk_status)99), "UNKNOWN");
    assert_non_null(ftk_status_text((ftk_status)-1));
    char expected[32];
    snprintf(expected, sizeof expected, "%d.%d.%d", FTK_VERSION_MAJOR, FTK_VERSION_MINOR,
             FTK_VERSION_PATCH);
    assert_string_equal(ftk_version(), expected);
}

static void fail_fills_every_field(void **state) {
    (void)state;
    ftk_error e;
    assert_int_equal(ftki_fail(&e, FTK_IO, "cannot open %s", "x"), FTK_IO);
    assert_int_equal(e.code, FTK_IO);
    assert_int_equal(e.offset, -1);
    assert_int_equal(e.layer, -1);
    assert_string_equal(e.message, "cannot open x");
    assert_int_equal(ftki_fail_at(&e, FTK_FORMAT, 17, "bad"), FTK_FORMAT);
    assert_int_equal(e.offset, 17);
    assert_int_equal(e.layer, -1);
    assert_int_equal(ftki_fail_layer(&e, FTK_INTERNAL, 3, "bad"), FTK_INTERNAL);
    assert_int_equal(e.layer, 3);
    assert_int_equal(e.offset, -1);
    assert_int_equal(ftki_fail(NULL, FTK_MISMATCH, "nobody listens"), FTK_MISMATCH);
}

static ftk_status forwards(ftk_status s) {
    FTKI_TRY(s);
    return FTK_INTERNAL;
}

static void try_forwards_failures_only(void **state) {
    (void)state;
    assert_int_equal(forwards(FTK_CANCELLED), FTK_CANCELLED);
    assert_int_equal(forwards(FTK_OK), FTK_INTERNAL);
}

static void messages_are_harmless(void **state) {
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"a\nb\tc\x1b[31md\x7f", "a?b?c?[31md?"},
        {"h\xc3\xa9 \xe4\xbd\xa0 \xf0\x9f\x98\x80", "h\xc3\xa9 \xe4\xbd\xa0 \xf0\x9f\x98\x80"},
        {"\xc3(", "?("},                   /* continuation missing */
        {"\xc0\xaf", "??"},                /* overlong */
        {"\xed\xa0\x80", "???"},           /* surrogate */
        {"\xf4\x90\x80\x80", "????"},      /* past U+10FFFF */
        {"\xc2\x9b" "31m", "?31m"},        /* C1 control: CSI */
        {"\xe2\x80\xae" "txt", "?txt"},    /* right-to-left override */
        {"\xe4\xbd", "??"},                /* cut character at the end */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ftk_error e;
        ftki_fail(&e, FTK_FORMAT, "%s", cases[i].in);
        assert_string_equal(e.message, cases[i].out);
        assert_string_equal(ftki_quote(cases[i].in, strlen(cases[i].in)).text, cases[i].out);
    }
}

static void long_messages_end_with_a_whole_character(void **state) {
    (void)state;
    char text[2048];
    for (int shift = 0; shift < 4; shift++) {
        memset(text, 'x', (size_t)shift);
        size_t n = (size_t)shift;
        while (n + 5 < sizeof text) {
            memcpy(text + n, "\xf0\x9f\x98\x80", 4);
            n += 4;
        }
        text[n] = '\0';
        ftk_error e;
        ftki_fail(&e, FTK_FORMAT, "%s", text);
        size_t len = strlen(e.message);
        assert_int_equal((len - (size_t)shift) % 4, 0);
        assert_in_range(len, sizeof e.message - 4, sizeof e.message - 1);
    }
}

static void quotes_shorten(void **state) {
    (void)state;
    char text[300];
    memset(text, 'n', sizeof text);
    ftki_quoted q = ftki_quote(text, sizeof text);
    assert_int_equal(strlen(q.text), 95);
    assert_string_equal(q.text + 90, "nn...");
    assert_string_equal(ftki_quote("a\0b", 3).text, "a?b");
    assert_string_equal(ftki_quote("", 0).text, "");
    /* A path keeps its end. */
    memset(text, '/', 280);
    strcpy(text + 280, "model.gguf");
    q = ftki_quote_path(text);
    assert_true(strlen(q.text) < sizeof q.text);
    assert_memory_equal(q.text, ".../", 4);
    assert_string_equal(q.text + strlen(q.text) - 11, "/model.gguf");
    assert_string_equal(ftki_quote_path("short").text, "short");
    for (int shift = 0; shift < 3; shift++) { /* cut inside a character: the character goes */
        text[0] = '\0';
        for (int i = 0; i < 60; i++) strcat(text, "\xe4\xbd\xa0");
        strcat(text, &"ab"[2 - shift]);
        q = ftki_quote_path(text);
        assert_null(strchr(q.text, '?'));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_texts),
        cmocka_unit_test(fail_fills_every_field),
        cmocka_unit_test(try_forwards_failures_only),
        cmocka_unit_test(messages_are_harmless),
        cmocka_unit_test(long_messages_end_with_a_whole_character),
        cmocka_unit_test(quotes_shorten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: Apache-2.0
/* Status names and texts, and the one place that writes an ftk_error. Owns the rule that a
 * message is one line of valid, harmless UTF-8 whatever a file put into it. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define STRINGIFY_(x) #x
#define STRINGIFY(x) STRINGIFY_(x)

const char *ftk_status_name(ftk_status s) {
    switch (s) {
#define CASE_(name, value, text) case FTK_##name: return #name;
        FTK_STATUS_LIST(CASE_)
#undef CASE_
    }
    return "UNKNOWN";
}

const char *ftk_status_text(ftk_status s) {
    switch (s) {
#define CASE_(name, value, text) case FTK_##name: return text;
        FTK_STATUS_LIST(CASE_)
#undef CASE_
    }
    return "a status this version does not know";
}

const char *ftk_version(void) {
    return STRINGIFY(FTK_VERSION_MAJOR) "." STRINGIFY(FTK_VERSION_MINOR) "." STRINGIFY(
        FTK_VERSION_PATCH);
}

size_t ftki_utf8_next(const char *text, size_t len, uint32_t *code) {
    const unsigned char *s = (const unsigned char *)text;
    if (len == 0) return 0;
    if (s[0] < 0x80) {
        *code = s[0];
        return 1;
    }
    size_t n = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    if (s[0] < 0xC2 || s[0] > 0xF4 || n > len) return 0;
    uint32_t c = s[0] & (0x7Fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80) return 0;
        c = (c << 6) | (s[i] & 0x3Fu);
    }
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (c < least[n] || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) return 0;
    *code = c;
    return n;
}

bool ftki_is_printable(uint32_t code) {
    return !(code < 0x20 || (code >= 0x7F && code < 0xA0) || /* C0, DEL, C1 */
             code == 0x2028 || code == 0x2029 ||             /* line separators */
             (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069)); /* bidi */
}

/* Copies src [len] to dst [cap], NUL-terminated: whole printable characters, '?' for any other
 * byte. Returns true when everything fitted. */
static bool copy_printable(char *dst, size_t cap, const char *src, size_t len) {
    size_t used = 0;
    for (size_t at = 0; at < len;) {
        uint32_t code = 0;
        size_t n = ftki_utf8_next(src + at, len - at, &code);
        bool shown = n > 0 && ftki_is_printable(code);
        size_t width = shown ? n : 1;
        if (used + width + 1 > cap) {
            dst[used] = '\0';
            return false;
        }
        if (shown) memcpy(dst + used, src + at, n);
        else dst[used] = '?';
        used += width;
        at += n > 0 ? n : 1;
    }
    dst[used] = '\0';
    return true;
}

ftki_quoted ftki_quote(const char *data, size_t len) {
    ftki_quoted q;
    if (!copy_printable(q.text, sizeof q.text - 3, data, len)) {
        size_t used = strlen(q.text);
        memcpy(q.text + used, "...", 4);
    }
    return q;
}

ftki_quoted ftki_quote_path(const char *path) {
    size_t len = strlen(path), room = sizeof(ftki_quoted) - 4;
    if (len <= room) return ftki_quote(path, len);
    const char *end = path + len - (room - 3);
    while (((unsigned char)*end & 0xC0) == 0x80) end++; /* start at a whole character */
    ftki_quoted q;
    memcpy(q.text, "...", 4);
    copy_printable(q.text + 3, sizeof q.text - 3, end, strlen(end));
    return q;
}

void ftki_note(ftk_error *e, ftk_status code, int64_t offset, int32_t layer, const char *format,
               ...) {
    if (e == NULL) return;
    char text[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    size_t len = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    e->code = code;
    e->offset = offset;
    e->layer = layer;
    copy_printable(e->message, sizeof e->message, text, len);
}

// SPDX-License-Identifier: Apache-2.0
/* UTF-8 for the tokenizers and chat templates: see utf8.h. Also owns ftki_utf8_complete of
 * chat.h, which streaming output uses to hold back half a character. */
#include "text/utf8.h"

#include <string.h>

#include "base/status.h"
#include "text/chat.h"

size_t ftki_utf8_invalid(const char *text, size_t len) {
    size_t at = 0;
    while (at < len) {
        uint64_t eight;
        if (len - at >= sizeof eight) {
            memcpy(&eight, text + at, sizeof eight);
            if (!(eight & 0x8080808080808080u)) {
                at += sizeof eight;
                continue;
            }
        }
        uint32_t code;
        size_t size = ftki_utf8_next(text + at, len - at, &code);
        if (!size) return at;
        at += size;
    }
    return len;
}

uint32_t ftki_utf8_read(const char *text, size_t *size) {
    const unsigned char *s = (const unsigned char *)text;
    switch (*size = ftki_utf8_size(s[0])) {
    case 1: return s[0];
    case 2: return (uint32_t)(s[0] & 0x1F) << 6 | (s[1] & 0x3F);
    case 3: return (uint32_t)(s[0] & 0x0F) << 12 | (uint32_t)(s[1] & 0x3F) << 6 | (s[2] & 0x3F);
    default:
        return (uint32_t)(s[0] & 0x07) << 18 | (uint32_t)(s[1] & 0x3F) << 12 |
               (uint32_t)(s[2] & 0x3F) << 6 | (s[3] & 0x3F);
    }
}

size_t ftki_utf8_write(uint32_t character, char out[4]) {
    if (character < 0x80) {
        out[0] = (char)character;
        return 1;
    }
    size_t size = character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
    for (size_t i = size - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (character & 0x3F));
        character >>= 6;
    }
    out[0] = (char)((0xF00u >> size) | character); /* 110x, 1110, 11110 in front */
    return size;
}

bool ftki_utf8_is_space(uint32_t c) {
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

const char *ftki_utf8_trim(const char *text, size_t *len) {
    size_t start = 0, end = *len, size;
    while (start < end && ftki_utf8_is_space(ftki_utf8_read(text + start, &size))) start += size;
    while (end > start) {
        size_t last = end - 1;
        while (last > start && ((unsigned char)text[last] & 0xC0) == 0x80) last--;
        if (!ftki_utf8_is_space(ftki_utf8_read(text + last, &size))) break;
        end = last;
    }
    *len = end - start;
    return text + start;
}

size_t ftki_utf8_complete(const char *text, size_t len) {
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        unsigned char c = (unsigned char)text[len - back];
        if ((c & 0xC0) == 0x80) continue; /* inside a character: look further left */
        if (c < 0xC2 || c > 0xF4 || ftki_utf8_size(c) <= back) return len;
        /* An unfinished character if what is there could still become one. */
        char full[4] = {(char)c, (char)(c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80), (char)0x80,
                        (char)0x80};
        memcpy(full + 1, text + len - back + 1, back - 1);
        uint32_t code;
        return ftki_utf8_next(full, ftki_utf8_size(c), &code) ? len - back : len;
    }
    return len;
}

// SPDX-License-Identifier: Apache-2.0
/* Resampling as Pillow does it, which is what models were trained with: each output pixel is a weighted
 * sum of the input pixels under a kernel that is widened when the picture shrinks; columns first, rounded to
 * 8 bits, then rows; weights in fixed point of 22 bits. */
#include "media/resize.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

enum { WEIGHT_BITS = 22 };

static double bilinear(double x) {
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

static double bicubic(double x) { /* Keys, a = -1/2 */
    const double a = -0.5;
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
    return 0;
}

/* For each of n output places: which inputs it reads and with what weights. */
typedef struct taps {
    int32_t room;     /* weights set aside for one place */
    int32_t *first;   /* [n] */
    int32_t *count;   /* [n] */
    int32_t *weights; /* [n][room] */
} taps;

static void taps_free(taps *t) {
    ftki_free(t->first);
    ftki_free(t->count);
    ftki_free(t->weights);
}

static ftk_status taps_make(taps *t, int32_t in, int32_t n, ftki_filter filter, ftk_error *e) {
    double (*kernel)(double) = filter == FTKI_FILTER_BICUBIC ? bicubic : bilinear;
    double scale = (double)in / n, stretch = scale > 1 ? scale : 1;
    double support = (filter == FTKI_FILTER_BICUBIC ? 2.0 : 1.0) * stretch;
    t->room = (int32_t)ceil(support) * 2 + 1;
    t->first = ftki_alloc((size_t)n, sizeof *t->first);
    t->count = ftki_alloc((size_t)n, sizeof *t->count);
    t->weights = ftki_alloc((size_t)n * (size_t)t->room, sizeof *t->weights);
    double *exact = ftki_alloc((size_t)t->room, sizeof *exact);
    if (!t->first || !t->count || !t->weights || !exact) {
        ftki_free(exact);
        return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for the weights of a resize from %d to %d", in, n);
    }
    for (int32_t i = 0; i < n; i++) {
        double centre = (i + 0.5) * scale, total = 0;
        int32_t low = (int32_t)(centre - support + 0.5), high = (int32_t)(centre + support + 0.5);
        if (low < 0) low = 0;
        if (high > in) high = in;
        for (int32_t k = 0; k < high - low; k++) total += exact[k] = kernel((k + low - centre + 0.5) * (1 / stretch));
        for (int32_t k = 0; k < high - low; k++) {
            double w = (total != 0 ? exact[k] * (1 / total) : exact[k]) * (1 << WEIGHT_BITS);
            t->weights[(size_t)i * (size_t)t->room + (size_t)k] = (int32_t)(w < 0 ? w - 0.5 : w + 0.5);
        }
        t->first[i] = low;
        t->count[i] = high - low;
    }
    ftki_free(exact);
    return FTK_OK;
}

static uint8_t rounded(int32_t sum) {
    int32_t v = sum >> WEIGHT_BITS;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* One output row of `n` values from rows `stride` values apart, or, along a row, from pixels so far apart. */
static int32_t weigh(const uint8_t *from, size_t stride, const int32_t *weights, int32_t count) {
    int32_t sum = 1 << (WEIGHT_BITS - 1);
    for (int32_t k = 0; k < count; k++) sum += from[(size_t)k * stride] * weights[k];
    return sum;
}

static void along_rows(uint8_t *to, const uint8_t *from, int32_t width, int32_t height, int32_t out_width, size_t channels,
                       const taps *t) {
    for (int32_t y = 0; y < height; y++) {
        const uint8_t *row = from + (size_t)y * (size_t)width * channels;
        for (int32_t x = 0; x < out_width; x++)
            for (size_t c = 0; c < channels; c++)
                *to++ = rounded(weigh(row + (size_t)t->first[x] * channels + c, channels,
                                      t->weights + (size_t)x * (size_t)t->room, t->count[x]));
    }
}

static void along_columns(uint8_t *to, const uint8_t *from, size_t row_values, int32_t out_height, const taps *t) {
    for (int32_t y = 0; y < out_height; y++)
        for (size_t i = 0; i < row_values; i++)
            *to++ = rounded(weigh(from + (size_t)t->first[y] * row_values + i, row_values,
                                  t->weights + (size_t)y * (size_t)t->room, t->count[y]));
}

ftk_status ftki_resize(uint8_t **to, const uint8_t *from, int32_t width, int32_t height, int32_t out_width,
                       int32_t out_height, int32_t channels, ftki_filter filter, ftk_error *e) {
    taps across = {0}, down = {0};
    size_t row = (size_t)out_width * (size_t)channels;
    uint8_t *middle = ftki_alloc((size_t)height, row), *out = ftki_alloc((size_t)out_height, row);
    ftk_status status = middle && out ? FTK_OK
                                      : ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for a picture of %d x %d",
                                                  out_width, out_height);
    if (status == FTK_OK) status = taps_make(&across, width, out_width, filter, e);
    if (status == FTK_OK) status = taps_make(&down, height, out_height, filter, e);
    if (status == FTK_OK) {
        /* A side that keeps its length is copied, as Pillow does: the weights would be 1 and 0 anyway. */
        along_rows(middle, from, width, height, out_width, (size_t)channels, &across);
        along_columns(out, middle, row, out_height, &down);
        *to = out;
        out = NULL;
    }
    taps_free(&across);
    taps_free(&down);
    ftki_free(middle);
    ftki_free(out);
    return status;
}

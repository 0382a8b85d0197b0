// SPDX-License-Identifier: Apache-2.0
/* Where an encoder begins and ends: tokens, patches and frames become first states; last states become a pooled
 * vector and logits. */
#include <math.h>
#include <string.h>

#include "model/encoder.h"

/* ------------------------------------------------------------------- checks */

static ftk_status check_values(const ftk_input *in, size_t n, ftk_error *e) {
    if (!in->values) return ftki_fail(e, FTK_INVALID_ARGUMENT, "the input has no values");
    for (size_t i = 0; i < n; i++)
        if (!isfinite(in->values[i]))
            return ftki_fail(e, FTK_INVALID_ARGUMENT, "value %zu of the input is not finite", i);
    return FTK_OK;
}

static ftk_status count_tokens(const ftki_encoder *m, const ftk_input *in, int32_t *n, ftk_error *e) {
    if (!in->ids || in->n == 0) return ftki_fail(e, FTK_INVALID_ARGUMENT, "the input has no tokens");
    if (in->n > (size_t)m->config.max_tokens)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "%zu tokens are more than the model's %d; cut the text", in->n,
                         m->config.max_tokens);
    for (size_t i = 0; i < in->n; i++)
        if (in->ids[i] < 0 || in->ids[i] >= m->config.n_vocab)
            return ftki_fail(e, FTK_INVALID_ARGUMENT, "token %d at index %zu is outside the vocabulary of %d", in->ids[i],
                             i, m->config.n_vocab);
    *n = (int32_t)in->n;
    return FTK_OK;
}

static ftk_status count_pixels(const ftki_encoder *m, const ftk_input *in, int32_t *n, ftk_error *e) {
    int32_t patch = m->config.info.patch;
    if (in->rows < patch || in->cols < patch || in->rows % patch != 0 || in->cols % patch != 0 || in->rows > 8192 ||
        in->cols > 8192)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "an image of %d x %d is not cut by patches of %d", in->cols, in->rows, patch);
    int64_t tokens = (int64_t)(in->rows / patch) * (in->cols / patch) + m->config.n_prefix;
    if (tokens > m->config.max_tokens)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "an image of %d x %d is %lld tokens, the model takes %d", in->cols,
                         in->rows, (long long)tokens, m->config.max_tokens);
    *n = (int32_t)tokens;
    return check_values(in, (size_t)in->rows * (size_t)in->cols * (size_t)m->config.info.channels, e);
}

static ftk_status count_frames(const ftki_encoder *m, const ftk_input *in, int32_t *n, ftk_error *e) {
    const ftk_encoder_info *f = &m->config.info;
    if (in->cols != f->features)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "frames have %d features, the model takes %d", in->cols, f->features);
    bool whisper = m->config.arch == FTKI_WHISPER;
    if (whisper ? in->rows < 2 || in->rows > f->frames || in->rows % 2 != 0 : in->rows != f->frames)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "the input has %d frames, the model takes %s%d", in->rows,
                         whisper ? "an even number up to " : "exactly ", f->frames);
    *n = m->config.n_prefix + (whisper ? in->rows / 2 : in->rows);
    return check_values(in, (size_t)in->rows * (size_t)in->cols, e);
}

ftk_status ftki_encoder_count(const ftki_encoder *m, const ftk_input *in, int32_t *n, ftk_error *e) {
    static const char *const kinds[] = {"tokens", "pixels", "features"};
    if (in->kind != m->config.info.input)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "the input is %s, a %s model takes %s",
                         in->kind <= FTK_INPUT_FEATURES ? kinds[in->kind] : "of an unknown kind", m->config.arch_name,
                         kinds[m->config.info.input]);
    switch (in->kind) {
    case FTK_INPUT_TOKENS: return count_tokens(m, in, n, e);
    case FTK_INPUT_PIXELS: return count_pixels(m, in, n, e);
    default: return count_frames(m, in, n, e);
    }
}

/* ------------------------------------------------------------- first states */

static void embed_tokens(ftki_encoder_run *r, const ftki_encoder_item *item, int32_t begin, int32_t end, float *x) {
    const ftki_encoder *m = r->model;
    int32_t d = m->config.hidden;
    for (int32_t t = begin; t < end; t++, x += d) {
        ftki_matrix_row(&m->tokens, item->input->ids[t], x);
        m->kernels->add(m->token_type, d, x);
        m->kernels->add(m->positions + (size_t)t * (size_t)d, d, x);
        m->kernels->layer_norm(x, m->embed_norm, m->embed_norm_bias, m->config.norm_eps, d, x);
    }
}

/* Pixels of patch (row, col) as [channel][y][x], the order of a convolution's weights. */
static void take_patch(const ftki_encoder_config *c, const ftk_input *in, int32_t row, int32_t col, float *to) {
    size_t patch = (size_t)c->info.patch, plane = (size_t)in->rows * (size_t)in->cols;
    for (size_t channel = 0; channel < (size_t)c->info.channels; channel++)
        for (size_t y = 0; y < patch; y++, to += patch)
            memcpy(to, in->values + channel * plane + ((size_t)row * patch + y) * (size_t)in->cols + (size_t)col * patch,
                   patch * sizeof *to);
}

/* The weight of sample i for a cubic resampling at distance x (Keys 1981, a = -0.75, as PyTorch has it). */
static float cubic(float x) {
    const float a = -0.75f;
    x = fabsf(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

/* x += the position of (row, col) of a grid of rows x cols; where it is not the grid the file was made for, the
 * embedding is resampled as timm and DINOv2 do: bicubic, half-pixel centres, edges repeated. */
static void add_position(const ftki_encoder *m, int32_t row, int32_t col, int32_t rows, int32_t cols, float *x) {
    int32_t d = m->config.hidden, grid = m->config.grid;
    if (rows == grid && cols == grid) {
        m->kernels->add(m->positions + (size_t)(row * grid + col) * (size_t)d, d, x);
        return;
    }
    float y = ((float)row + 0.5f) * (float)grid / (float)rows - 0.5f, z = ((float)col + 0.5f) * (float)grid / (float)cols - 0.5f;
    int32_t y0 = (int32_t)floorf(y), z0 = (int32_t)floorf(z);
    for (int32_t i = -1; i <= 2; i++)
        for (int32_t k = -1; k <= 2; k++) {
            int32_t yi = y0 + i < 0 ? 0 : y0 + i >= grid ? grid - 1 : y0 + i;
            int32_t zk = z0 + k < 0 ? 0 : z0 + k >= grid ? grid - 1 : z0 + k;
            float weight = cubic(y - (float)(y0 + i)) * cubic(z - (float)(z0 + k));
            const float *p = m->positions + (size_t)(yi * grid + zk) * (size_t)d;
            for (int32_t j = 0; j < d; j++) x[j] = fmaf(weight, p[j], x[j]);
        }
}

static const float *input_row(const ftki_encoder_run *r, const ftki_encoder_item *item, int32_t index, float *to) {
    const ftki_encoder_config *c = &r->model->config;
    if (c->arch == FTKI_VIT) {
        int32_t cols = item->input->cols / c->info.patch;
        take_patch(c, item->input, index / cols, index % cols, to);
    } else {
        memcpy(to, item->input->values + (size_t)index * (size_t)c->info.features, (size_t)c->info.features * sizeof *to);
    }
    return to;
}

static void embed_pieces(ftki_encoder_run *r, ftki_encoder_work *w, const ftki_encoder_item *item, int32_t begin,
                         int32_t end, float *x) {
    const ftki_encoder *m = r->model;
    const ftki_encoder_config *c = &m->config;
    size_t d = (size_t)c->hidden, wide = (size_t)c->input_cols;
    for (; begin < end && begin < c->n_prefix; begin++, x += d) memcpy(x, m->prefix + (size_t)begin * d, d * sizeof *x);
    int32_t rows = end - begin, first = begin - c->n_prefix;
    if (rows <= 0) return;
    memset(w->rows, 0, (size_t)rows * wide * sizeof *w->rows);
    for (int32_t i = 0; i < rows; i++) input_row(r, item, first + i, w->rows + (size_t)i * wide);
    for (size_t i = 0; i < (size_t)rows; i++) memcpy(x + i * d, m->input_bias, d * sizeof *x);
    ftki_encoder_product(r, w, &m->input, w->rows, wide, rows, x, d, true);
    for (int32_t i = 0; i < rows; i++) {
        int32_t at = first + i;
        if (c->arch == FTKI_VIT) {
            int32_t cols = item->input->cols / c->info.patch;
            add_position(m, at / cols, at % cols, item->input->rows / c->info.patch, cols, x + (size_t)i * d);
        } else {
            m->kernels->add(m->positions + (size_t)at * d, c->hidden, x + (size_t)i * d);
        }
    }
}

/* Rows of the first convolution of an item: a row of zeros before frame 0 and one after the last. */
static float *conv_of(const ftki_encoder_run *r, const ftki_encoder_item *item) {
    int32_t index = (int32_t)(item - r->items);
    return r->conv + ((size_t)item->first * 2 + (size_t)index * 2) * (size_t)r->model->config.hidden;
}

void ftki_encoder_conv_rows(ftki_encoder_run *r, ftki_encoder_work *w, int32_t index, int32_t begin, int32_t end) {
    const ftki_encoder *m = r->model;
    const ftki_encoder_item *item = &r->items[index];
    size_t d = (size_t)m->config.hidden, wide = (size_t)m->config.input_cols, features = (size_t)m->config.info.features;
    int32_t frames = 2 * item->tokens_in;
    float *out = conv_of(r, item);
    if (begin == 0) memset(out, 0, d * sizeof *out);
    if (end == item->tokens_in) memset(out + (size_t)(frames + 1) * d, 0, d * sizeof *out);
    for (int32_t at = 2 * begin; at < 2 * end; at += FTKI_ENCODER_BLOCK) {
        int32_t rows = 2 * end - at < FTKI_ENCODER_BLOCK ? 2 * end - at : FTKI_ENCODER_BLOCK;
        memset(w->rows, 0, (size_t)rows * wide * sizeof *w->rows);
        for (int32_t i = 0; i < rows; i++)
            for (int32_t tap = 0; tap < 3; tap++) {
                int32_t frame = at + i + tap - 1;
                if (frame >= 0 && frame < frames)
                    memcpy(w->rows + (size_t)i * wide + (size_t)tap * features, item->input->values + (size_t)frame * features,
                           features * sizeof(float));
            }
        float *y = out + (size_t)(at + 1) * d;
        ftki_encoder_product(r, w, &m->input, w->rows, wide, rows, y, d, false);
        for (size_t i = 0; i < (size_t)rows; i++) m->kernels->gelu(y + i * d, m->input_bias, m->config.hidden, y + i * d);
    }
}

/* The second convolution, of stride 2: its three taps are three neighbouring rows of the first's output. */
static void embed_convolved(ftki_encoder_run *r, ftki_encoder_work *w, const ftki_encoder_item *item, int32_t begin,
                            int32_t end, float *x) {
    const ftki_encoder *m = r->model;
    size_t d = (size_t)m->config.hidden;
    ftki_encoder_product(r, w, &m->conv, conv_of(r, item) + (size_t)(2 * begin) * d, 2 * d, end - begin, x, d, false);
    for (int32_t t = begin; t < end; t++, x += d) {
        m->kernels->gelu(x, m->conv_bias, m->config.hidden, x);
        m->kernels->add(m->positions + (size_t)t * d, m->config.hidden, x);
    }
}

void ftki_encoder_embed_rows(ftki_encoder_run *r, ftki_encoder_work *w, const ftki_encoder_item *item, int32_t begin,
                             int32_t end) {
    float *x = r->x + (size_t)(item->first + begin) * (size_t)r->model->config.hidden;
    switch (r->model->config.arch) {
    case FTKI_BERT: embed_tokens(r, item, begin, end, x); break;
    case FTKI_WHISPER: embed_convolved(r, w, item, begin, end, x); break;
    default: embed_pieces(r, w, item, begin, end, x); break;
    }
}

/* -------------------------------------------------------------- last states */

/* The mean of the rows after the prefix, each as often as tokens it stands for. */
static void pool_mean(const ftki_encoder_run *r, const ftki_encoder_item *item, float *out) {
    int32_t d = r->model->config.hidden, begin = r->model->config.n_prefix;
    float total = 0.0f;
    memset(out, 0, (size_t)d * sizeof *out);
    for (int32_t t = begin; t < item->n; t++) {
        const float *x = r->x + (size_t)(item->first + t) * (size_t)d;
        float size = r->size[item->first + t];
        total += size;
        for (int32_t i = 0; i < d; i++) out[i] = fmaf(size, x[i], out[i]);
    }
    for (int32_t i = 0; i < d; i++) out[i] /= total;
}

/* The pooled state, normed when `norm` says so, to out [hidden]. */
void ftki_encoder_head(const ftki_encoder_run *r, ftki_encoder_work *w, const ftki_encoder_item *item, const float *norm,
                       const float *norm_bias, float *out) {
    const ftki_encoder_config *c = &r->model->config;
    (void)w;
    if (c->pooling == FTKI_POOL_MEAN) pool_mean(r, item, out);
    else memcpy(out, r->x + (size_t)item->first * (size_t)c->hidden, (size_t)c->hidden * sizeof *out);
    if (norm) r->model->kernels->layer_norm(out, norm, norm_bias, c->norm_eps, c->hidden, out);
}

static void norm_all(const ftki_encoder_run *r, const ftki_encoder_item *item) {
    size_t d = (size_t)r->model->config.hidden;
    for (int32_t t = 0; t < item->n; t++) {
        float *x = r->x + (size_t)(item->first + t) * d;
        r->model->kernels->layer_norm(x, r->model->output_norm, r->model->output_norm_bias, r->model->config.norm_eps,
                                      (int32_t)d, x);
    }
}

void ftki_encoder_finish(ftki_encoder_run *r, ftki_encoder_work *w, int32_t index) {
    const ftki_encoder *m = r->model;
    const ftki_encoder_config *c = &m->config;
    ftki_encoder_item *item = &r->items[index];
    size_t d = (size_t)c->hidden;
    if (item->done) return; /* its exit head has spoken */
    bool all = m->output_norm && (!r->want_logits || c->pooling != FTKI_POOL_CLS);
    if (all) norm_all(r, item);
    float *pooled = r->pooled + (size_t)index * d, *logits = r->logits + (size_t)index * (size_t)c->n_labels;
    const float *norm = all ? NULL : m->output_norm;
    ftki_encoder_head(r, w, item, norm, m->output_norm_bias, pooled);
    if (!m->has_head || !r->want_logits) return;
    const float *in = pooled;
    if (m->has_pooler) {
        memcpy(w->rows, m->pooler_bias, d * sizeof *w->rows);
        ftki_encoder_product(r, w, &m->pooler, pooled, d, 1, w->rows, d, true);
        for (size_t i = 0; i < d; i++) w->rows[i] = tanhf(w->rows[i]);
        in = w->rows;
    }
    size_t labels = (size_t)c->n_labels;
    memcpy(logits, m->head_bias, labels * sizeof *logits);
    ftki_encoder_product(r, w, &m->head, in, d, 1, logits, labels, true);
    if (!m->has_head_dist) return;
    /* DeiT's two heads, averaged; the second reads the distillation token. */
    float *second = w->rows;
    memcpy(second, r->x + (size_t)(item->first + 1) * d, d * sizeof *second);
    if (norm) m->kernels->layer_norm(second, norm, m->output_norm_bias, c->norm_eps, c->hidden, second);
    m->kernels->add(m->head_dist_bias, (int32_t)labels, logits);
    ftki_encoder_product(r, w, &m->head_dist, second, d, 1, logits, labels, true);
    for (size_t i = 0; i < labels; i++) logits[i] *= 0.5f;
}

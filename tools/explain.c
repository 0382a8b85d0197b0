// SPDX-License-Identifier: Apache-2.0
/* Cards of HTML with SVG: pictures under their patches, spectrograms over their frames, texts as words. */
#include "explain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char head[] =
    "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\n"
    "<title>FreeToken: what was computed</title><style>\n"
    ":root{--bg:#f6f7f9;--card:#fff;--ink:#1b2130;--dim:#687086;--line:#e3e6ec;--keep:#2b7a5b;--merge:#d9892b;--drop:#20263a}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#12151d;--card:#1b1f2a;--ink:#e8ebf2;--dim:#98a1b5;--line:#2d3342;--drop:#05070c}}\n"
    "body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,sans-serif}\n"
    "main{max-width:1120px;margin:0 auto;padding:28px 20px}h1{font-size:21px;margin:0 0 4px}h2{font-size:16px;margin:0;overflow-wrap:anywhere}\n"
    "p{margin:0;color:var(--dim)}.card{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:18px 20px;margin-top:18px}\n"
    ".facts{display:flex;flex-wrap:wrap;gap:6px 18px;margin:4px 0 12px;color:var(--dim)}.facts b{color:var(--ink);font-weight:600}\n"
    ".bar{display:grid;grid-template-columns:minmax(80px,220px) 1fr 60px;gap:10px;align-items:center;margin:3px 0}\n"
    ".bar i{display:block;height:10px;border-radius:5px;background:var(--keep);min-width:2px}.bar span:last-child{text-align:right;color:var(--dim)}\n"
    ".layers{display:grid;grid-template-columns:repeat(auto-fill,minmax(168px,1fr));gap:14px;margin-top:14px}figure{margin:0}\n"
    "figcaption{font-size:12.5px;color:var(--dim);margin-top:4px}svg,img{display:block;width:100%;border-radius:6px}\n"
    ".strip{display:grid;grid-template-columns:74px 1fr 90px;gap:10px;align-items:center;font-size:12.5px;color:var(--dim);margin-top:4px}\n"
    ".strip svg{height:16px;border-radius:3px}.text{line-height:1.9;margin-top:2px}.k{border-radius:4px;padding:1px 0}\n"
    ".d{color:var(--dim);opacity:.38;text-decoration:line-through}.m{border-bottom:3px solid}\n"
    ".key span{display:inline-block;width:12px;height:12px;border-radius:3px;margin:0 5px 0 14px;vertical-align:-1px}\n"
    "</style><main><h1>What was computed, and what was left out</h1>\n"
    "<p class=\"key\">Each layer shows the tokens that are left after it.<span style=\"background:var(--keep)\"></span>kept"
    "<span style=\"background:var(--merge)\"></span>merged (one colour: one token)<span style=\"background:var(--drop)\"></span>dropped</p>\n";

void explain_begin(FILE *out)
{
    fputs(head, out);
}

void explain_end(FILE *out)
{
    fputs("</main></html>\n", out);
}

static void put_text(FILE *out, const char *s, size_t len)
{
    text_buffer valid = {0};
    if (text_add_valid(&valid, s, len))
        for (size_t i = 0; i < valid.len; i++) switch (valid.data[i]) {
            case '<': fputs("&lt;", out); break;
            case '>': fputs("&gt;", out); break;
            case '&': fputs("&amp;", out); break;
            case '"': fputs("&quot;", out); break;
            default: fputc(valid.data[i], out);
            }
    text_free(&valid);
}

/* An uncompressed BMP of rgb [height][width][3] as a data address. */
static void put_bitmap(FILE *out, const uint8_t *rgb, size_t width, size_t height)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t row = (3 * width + 3) / 4 * 4, len = 54 + row * height;
    uint8_t *b = calloc(len + 2, 1);
    if (!b) return;
    const uint32_t words[] = {(uint32_t)len, 0, 54, 40, (uint32_t)width, (uint32_t)height, 1 | 24u << 16};
    memcpy(b, "BM", 2);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (size_t k = 0; k < 4; k++) b[2 + 4 * i + k] = (uint8_t)(words[i] >> 8 * k);
    for (size_t y = 0; y < height; y++)
        for (size_t x = 0; x < width; x++)
            for (size_t c = 0; c < 3; c++) b[54 + (height - 1 - y) * row + 3 * x + c] = rgb[(y * width + x) * 3 + 2 - c];
    fputs("data:image/bmp;base64,", out);
    for (size_t i = 0; i < len; i += 3) {
        uint32_t v = (uint32_t)b[i] << 16 | (uint32_t)b[i + 1] << 8 | b[i + 2];
        for (size_t k = 0; k < 4; k++) fputc(k > len - i ? '=' : letters[v >> (18 - 6 * k) & 63], out);
    }
    free(b);
}

/* -------------------------------------------------------------- what became */

typedef struct fate {
    int32_t *owners; /* [n] survivor that holds a token, -1: dropped */
    int32_t *sizes;  /* [n] tokens a survivor holds */
    int32_t *firsts; /* [n] the first of them */
    int32_t n, kept;
} fate;

static bool read_fate(fate *f, const encode_job *job, int32_t layer)
{
    if (ftk_encoder_owners(job->encoder, 0, layer, f->owners, NULL) != FTK_OK) return false;
    memset(f->sizes, 0, (size_t)f->n * sizeof *f->sizes);
    f->kept = 0;
    for (int32_t t = 0; t < f->n; t++)
        if (f->owners[t] >= 0 && f->owners[t] < f->n && f->sizes[f->owners[t]]++ == 0) {
            f->firsts[f->owners[t]] = t;
            f->kept++;
        }
    return true;
}

static bool is_merged(const fate *f, int32_t t) { return f->owners[t] >= 0 && f->sizes[f->owners[t]] > 1; }
/* Neighbours get colours far apart, and a token that grows keeps its own from layer to layer. */
static int hue_of(const fate *f, int32_t t) { return (int)((unsigned)f->firsts[f->owners[t]] * 137u % 360u); }

/* ------------------------------------------------------------------ pictures */

static void add_picture(FILE *out, const encode_job *job, const encode_item *item, const ftk_encoded *done, fate *f)
{
    int32_t side = job->info.image_size, cells = side / job->info.patch, prefix = done->tokens_in - cells * cells;
    if (prefix < 0 || !item->shown) return;
    static unsigned number; /* addresses within the page */
    unsigned id = ++number;
    fprintf(out, "<svg width=\"0\" height=\"0\" style=\"position:absolute\"><defs><image id=\"p%u\" width=\"%d\" height=\"%d\" href=\"",
            id, side, side);
    put_bitmap(out, item->shown, (size_t)side, (size_t)side);
    fprintf(out, "\"/></defs></svg><div class=\"layers\"><figure><svg viewBox=\"0 0 %d %d\"><use href=\"#p%u\"/></svg>"
            "<figcaption>as the model sees it</figcaption></figure>\n", side, side, id);
    for (int32_t layer = 0; layer < done->layers && read_fate(f, job, layer); layer++) {
        fprintf(out, "<figure><svg viewBox=\"0 0 %d %d\"><use href=\"#p%u\"/>", side, side, id);
        for (int32_t c = 0; c < cells * cells; c++) {
            int32_t t = prefix + c, p = job->info.patch, x = c % cells * p, y = c / cells * p;
            if (f->owners[t] < 0)
                fprintf(out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"var(--drop)\" fill-opacity=\".85\"/>", x, y, p, p);
            else if (is_merged(f, t))
                fprintf(out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"hsl(%d 80%% 55%%)\" fill-opacity=\".5\"/>", x, y, p, p,
                        hue_of(f, t));
        }
        fprintf(out, "</svg><figcaption>layer %d · %d of %d tokens</figcaption></figure>\n", layer + 1, f->kept, f->n);
    }
    fputs("</div>\n", out);
}

/* -------------------------------------------------------------------- sounds */

/* Strength 0..1 as a colour from night blue over orange to light. */
static void heat(double v, uint8_t rgb[3])
{
    static const double stops[][3] = {{12, 14, 38}, {74, 29, 110}, {178, 54, 90}, {243, 138, 57}, {252, 240, 190}};
    double at = (v < 0 ? 0 : v > 1 ? 1 : v) * 4;
    int i = at >= 4 ? 3 : (int)at;
    for (int c = 0; c < 3; c++) rgb[c] = (uint8_t)(stops[i][c] + (at - i) * (stops[i + 1][c] - stops[i][c]));
}

/* MFCC are turned back into mel bands, as far as the coefficients go. */
static double band(const float *row, int32_t features, int32_t bands, int32_t b, bool mfcc)
{
    if (!mfcc) return (double)row[b];
    double sum = (double)row[0] * 0.5;
    for (int32_t k = 1; k < features; k++) sum += (double)row[k] * cos(3.14159265358979 / bands * (b + 0.5) * k);
    return sum;
}

static void add_sound(FILE *out, const encode_job *job, const encode_item *item, const ftk_encoded *done, fate *f)
{
    bool mfcc = strcmp(job->info.features_kind, "mfcc") == 0;
    int32_t frames = item->input.rows, features = item->input.cols, bands = mfcc ? job->info.n_mels : features;
    if (bands < 1) return;
    size_t n = (size_t)frames * (size_t)bands;
    double *levels = malloc(n * sizeof *levels), low = INFINITY, high = -INFINITY;
    uint8_t *rgb = malloc(n * 3);
    for (int32_t t = 0; levels && rgb && t < frames; t++)
        for (int32_t b = 0; b < bands; b++) {
            double v = band(item->input.values + (size_t)t * (size_t)features, features, bands, b, mfcc);
            levels[(size_t)(bands - 1 - b) * (size_t)frames + (size_t)t] = v;
            low = fmin(low, v);
            high = fmax(high, v);
        }
    for (size_t i = 0; levels && rgb && i < n; i++) heat(high > low ? (levels[i] - low) / (high - low) : 0, rgb + 3 * i);
    fputs("<div class=\"strip\"><span>mel bands</span><img style=\"height:150px\" alt=\"spectrogram\" src=\"", out);
    if (levels && rgb) put_bitmap(out, rgb, (size_t)frames, (size_t)bands);
    fputs("\"><span></span></div>\n", out);
    free(levels);
    free(rgb);
    int32_t prefix = mfcc ? 1 : 0; /* KWT's class token */
    for (int32_t layer = 0; layer < done->layers && read_fate(f, job, layer); layer++) {
        fprintf(out, "<div class=\"strip\"><span>layer %d</span><svg viewBox=\"0 0 %d 1\" preserveAspectRatio=\"none\">", layer + 1,
                f->n - prefix);
        for (int32_t t = prefix; t < f->n; t++) {
            fprintf(out, "<rect x=\"%d\" width=\"1.02\" height=\"1\" fill=\"", t - prefix);
            if (f->owners[t] < 0) fputs("var(--drop)", out);
            else if (is_merged(f, t)) fprintf(out, "hsl(%d 75%% 58%%)", hue_of(f, t));
            else fputs("var(--keep)", out);
            fputs("\"/>", out);
        }
        fprintf(out, "</svg><span>%d of %d</span></div>\n", f->kept, f->n);
    }
}

/* --------------------------------------------------------------------- texts */

static void add_text(FILE *out, const encode_job *job, const encode_item *item, const ftk_encoded *done, fate *f)
{
    int32_t before = -1;
    for (int32_t layer = 0; layer < done->layers && read_fate(f, job, layer); layer++) {
        if (f->kept == before && layer + 1 < done->layers) continue; /* nothing left in this layer */
        before = f->kept;
        fprintf(out, "<figcaption>layer %d · %d of %d tokens</figcaption><div class=\"text\">", layer + 1, f->kept, f->n);
        for (int32_t t = 0; t < f->n && (size_t)t < item->tokens.n; t++) {
            size_t len = 0;
            const char *bytes = ftk_token_bytes(job->model, item->tokens.ids[t], true, &len);
            if (f->owners[t] < 0) fputs("<span class=\"d\">", out);
            else if (is_merged(f, t)) fprintf(out, "<span class=\"m\" style=\"border-color:hsl(%d 75%% 50%%)\">", hue_of(f, t));
            else fputs("<span class=\"k\">", out);
            put_text(out, bytes ? bytes : "", len);
            fputs("</span>", out);
        }
        fputs("</div>\n", out);
    }
}

void explain_add(FILE *out, const encode_job *job, const encode_item *item, const ftk_score_of *top, size_t k,
                 const ftk_encoded *done)
{
    ftk_model_info model;
    ftk_model_get_info(job->model, &model);
    fputs("<section class=\"card\"><h2>", out);
    put_text(out, item->name, strlen(item->name));
    fprintf(out, "</h2><div class=\"facts\"><span>tokens <b>%d → %d</b></span><span>layers <b>%d of %d</b></span>"
            "<span>multiply-adds <b>%.0f %%</b> of dense</span><span><b>%.2f ms</b></span>", done->tokens_in, done->tokens_out,
            done->layers, model.n_layers,
            done->multiply_adds_dense ? 100.0 * (double)done->multiply_adds / (double)done->multiply_adds_dense : 100.0,
            done->seconds * 1e3);
    if (done->exited) fprintf(out, "<span>left at the exit after layer <b>%d</b>, confidence <b>%.3f</b></span>", done->layers,
                              (double)done->confidence);
    if (done->dense_because) {
        fputs("<span>computed whole: ", out);
        put_text(out, done->dense_because, strlen(done->dense_because));
        fputs("</span>", out);
    }
    fputs("</div>\n", out);
    for (size_t i = 0; i < k; i++) {
        char number[16];
        const char *name = ftk_encoder_label(job->model, top[i].label);
        if (!name) snprintf(number, sizeof number, "%d", top[i].label);
        fputs("<div class=\"bar\"><span>", out);
        put_text(out, name ? name : number, strlen(name ? name : number));
        fprintf(out, "</span><i style=\"width:%.1f%%\"></i><span>%.1f %%</span></div>\n", 100 * (double)top[i].score,
                100 * (double)top[i].score);
    }
    fate f = {.n = done->tokens_in};
    f.owners = calloc((size_t)f.n + 1, sizeof *f.owners);
    f.sizes = calloc((size_t)f.n + 1, sizeof *f.sizes);
    f.firsts = calloc((size_t)f.n + 1, sizeof *f.firsts);
    if (f.owners && f.sizes && f.firsts) {
        if (item->input.kind == FTK_INPUT_PIXELS) add_picture(out, job, item, done, &f);
        else if (item->input.kind == FTK_INPUT_FEATURES) add_sound(out, job, item, done, &f);
        else add_text(out, job, item, done, &f);
    }
    free(f.owners);
    free(f.sizes);
    free(f.firsts);
    fputs("</section>\n", out);
}

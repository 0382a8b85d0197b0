// SPDX-License-Identifier: Apache-2.0
/* freetoken bench: speed of prefill and decode at several lengths, memory, and how near both
 * come to what the machine can do. Settings take turns in every round, so that a machine that
 * drifts slows all of them alike. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "commands.h"
#include "interrupt.h"
#include "json_out.h"
#include "machine.h"
#include "models.h"
#include "reduce_flags.h"
#include "ui.h"

enum { MAX_CASES = 512, MAX_SETTINGS = 64 };

typedef struct bench_request {
    const char *word, *isa, *csv, *json;
    count_list prefill, depth, threads;
    const char *kv;
    int64_t decode_tokens, repeat, warmup, chunk;
    reduce_flags reduce;
} bench_request;

/* One session, and what its threads can do at most. */
typedef struct setting {
    int64_t threads;
    int kv;
    ftk_session *session;
    double bandwidth, int8_peak;
} setting;

typedef struct bench_case {
    const setting *s;
    bool decode;
    int64_t length;      /* tokens of the prompt, or depth */
    double *rates;       /* [n] tokens/s, sorted in the end */
    size_t n;
    uint64_t bytes;      /* decode: read per token, weights and KV */
    uint64_t operations; /* prefill: of the whole prompt, two per multiply-add */
    uint64_t rss, peak_rss; /* of the process, in the first round */
} bench_case;

typedef struct bench {
    const bench_request *r;
    ftk_model *model;
    ftk_model_info info;
    reduce_setting reduction;
    ftk_token *tokens;   /* [longest] */
    int64_t longest;
    setting settings[MAX_SETTINGS];
    size_t n_settings;
    bench_case cases[MAX_CASES];
    size_t n_cases;
    ui_progress progress;
    uint64_t done, total;
} bench;

static const char *const kv_names[] = {"int8", "f16", "f32"};

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const bench_case *c)
{
    return c->n == 0 ? 0 : c->n % 2 ? c->rates[c->n / 2] : (c->rates[c->n / 2 - 1] + c->rates[c->n / 2]) / 2;
}

/* Ordinary tokens in an order that repeats nothing, always the same. */
static bool make_tokens(bench *b)
{
    b->tokens = malloc((size_t)b->longest * sizeof *b->tokens);
    if (!b->tokens) return false;
    uint64_t state = 1;
    for (int64_t i = 0; i < b->longest; i++) {
        ftk_token id = 0;
        for (int tries = 0; tries < 64; tries++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            id = (ftk_token)((state >> 33) % (uint64_t)b->info.n_vocab);
            if (!ftk_token_is_special(b->model, id) && !ftk_token_is_end(b->model, id)) break;
        }
        b->tokens[i] = id;
    }
    return true;
}

/* --------------------------------------------------------------- measuring */

static int timed_prefill(const bench *b, setting *s, int64_t n, bool afresh, double *seconds)
{
    ftk_error e = {0};
    if (afresh && ftk_session_rewind(s->session, 0, &e) != FTK_OK) return ui_fail(NULL, &e);
    double start = ui_now();
    interrupt_watch(s->session);
    ftk_status status = ftk_prefill(s->session, b->tokens, (size_t)n, &e);
    interrupt_watch(NULL);
    *seconds = ui_now() - start;
    return status == FTK_OK ? STATUS_GO_ON : ui_fail(NULL, &e);
}

static int run_prefill(bench *b, bench_case *c, setting *s, double *rate)
{
    ftk_stats before, after;
    double seconds = 0;
    ftk_session_stats(s->session, &before);
    machine_reset_peak_rss();
    int status = timed_prefill(b, s, c->length, true, &seconds);
    ftk_session_stats(s->session, &after);
    *rate = (double)c->length / seconds;
    c->operations = 2 * (after.multiply_adds - before.multiply_adds);
    if (c->rss == 0) {
        c->rss = machine_rss();
        c->peak_rss = machine_peak_rss();
    }
    return status;
}

/* The prompt up to the depth is mostly there already: see the order in run_round. */
static int run_decode(bench *b, bench_case *c, setting *s, double *rate)
{
    int64_t depth = c->length > 0 ? c->length : 1;
    ftk_error e = {0};
    double ignored;
    int status = timed_prefill(b, s, depth, false, &ignored);
    ftk_stats stats;
    double start = ui_now();
    interrupt_watch(s->session);
    for (int64_t i = 0; status == STATUS_GO_ON && i < b->r->decode_tokens; i++)
        if (ftk_decode(s->session, b->tokens[depth + i], &e) != FTK_OK) status = ui_fail(NULL, &e);
    interrupt_watch(NULL);
    *rate = (double)b->r->decode_tokens / (ui_now() - start);
    ftk_session_stats(s->session, &stats);
    c->bytes = stats.weight_bytes + stats.kv_bytes;
    if (c->rss == 0) {
        c->rss = machine_rss();
        c->peak_rss = machine_peak_rss();
    }
    return status;
}

static uint64_t effort(const bench *b, const bench_case *c)
{
    return c->decode ? 8 * (uint64_t)b->r->decode_tokens : (uint64_t)c->length;
}

/* Prompts from short to long, so that memory is seen growing; then decode from deep to shallow,
 * where each depth is a beginning of what the session already holds. */
static int run_round(bench *b, bool keep)
{
    for (size_t i = 0; i < b->n_cases; i++) {
        bench_case *c = &b->cases[i];
        double rate = 0;
        setting *s = &b->settings[c->s - b->settings];
        int status = c->decode ? run_decode(b, c, s, &rate) : run_prefill(b, c, s, &rate);
        if (status != STATUS_GO_ON) return status;
        if (keep) c->rates[c->n++] = rate;
        b->done += effort(b, c);
        if (!ui_on_progress(&b->progress, "measuring", b->done, b->total)) return STATUS_INTERRUPTED;
    }
    return STATUS_GO_ON;
}

/* Best of what is seen before and after the rounds. */
static int measure_machine(bench *b)
{
    for (size_t i = 0; i < b->n_settings; i++) {
        ftk_error e = {0};
        double bandwidth = 0, peak = 0;
        setting *s = &b->settings[i];
        for (size_t j = 0; j < i; j++)
            if (b->settings[j].threads == s->threads) bandwidth = b->settings[j].bandwidth, peak = b->settings[j].int8_peak;
        if (bandwidth == 0 && ftk_machine_measure((int32_t)s->threads, 0.3, &bandwidth, &peak, &e) != FTK_OK)
            return ui_fail(NULL, &e);
        if (bandwidth > s->bandwidth) s->bandwidth = bandwidth;
        if (peak > s->int8_peak) s->int8_peak = peak;
    }
    return STATUS_GO_ON;
}

static int add_case(bench *b, const setting *s, bool decode, int64_t length)
{
    if (b->n_cases == MAX_CASES) return args_refuse("bench", "more than %d cases", MAX_CASES);
    bench_case *c = &b->cases[b->n_cases++];
    *c = (bench_case){.s = s, .decode = decode, .length = length};
    c->rates = calloc((size_t)b->r->repeat, sizeof *c->rates);
    return c->rates ? STATUS_GO_ON : STATUS_FAILURE;
}

static int plan(bench *b)
{
    const bench_request *r = b->r;
    qsort(r->prefill.items, r->prefill.n, sizeof(int64_t), by_size);
    qsort(r->depth.items, r->depth.n, sizeof(int64_t), by_size);
    int64_t prompt = r->prefill.n ? r->prefill.items[r->prefill.n - 1] : 1;
    int64_t deep = r->depth.n ? r->depth.items[r->depth.n - 1] : 0;
    int64_t held = (deep > 1 ? deep : 1) + r->decode_tokens;
    b->longest = prompt > held ? prompt : held;
    if (b->longest > b->info.train_context)
        ui_warn("%lld tokens are more than the model was trained for (%d)", (long long)b->longest, b->info.train_context);
    if (!make_tokens(b)) {
        ui_error("out of memory");
        return STATUS_FAILURE;
    }
    int status = STATUS_GO_ON;
    for (size_t i = 0; status == STATUS_GO_ON && i < b->n_settings; i++) {
        setting *s = &b->settings[i];
        ftk_error e = {0};
        ftk_session_opts o = {.size = sizeof o, .context = (int32_t)b->longest, .n_threads = (int32_t)s->threads,
                              .kv_type = (ftk_kv_type)s->kv, .chunk = (int32_t)r->chunk};
        if (ftk_session_open(&s->session, b->model, &o, &e) != FTK_OK) return ui_fail(NULL, &e);
        if (!b->reduction.dense && ftk_session_reduce(s->session, &b->reduction.r, &e) != FTK_OK) return ui_fail("reduction", &e);
        for (size_t j = 0; status == STATUS_GO_ON && j < r->prefill.n; j++)
            status = add_case(b, s, false, r->prefill.items[j]);
        for (size_t j = r->depth.n; status == STATUS_GO_ON && r->decode_tokens && j-- > 0;)
            status = add_case(b, s, true, r->depth.items[j]);
    }
    for (size_t i = 0; i < b->n_cases; i++) b->total += effort(b, &b->cases[i]) * (uint64_t)(r->warmup + r->repeat);
    return status;
}

/* --------------------------------------------------------------- reporting */

/* The share of the machine's limit that a case's median reaches. */
static double share(const bench_case *c)
{
    if (c->decode) return c->s->bandwidth > 0 ? median(c) * (double)c->bytes / c->s->bandwidth : 0;
    return c->s->int8_peak > 0 ? median(c) * (double)c->operations / (double)c->length / c->s->int8_peak : 0;
}

static const char row_format[] = "  %-10s%8s  %-17s%10s%12s%9s%12s%11s\n";

static void print_case(const bench_case *c)
{
    char a[UI_WORD], b[UI_WORD], d[UI_WORD], e[UI_WORD], length[UI_WORD], range[2 * UI_WORD + 4], reached[UI_WORD],
        part[UI_WORD], tok_s[UI_WORD];
    double rate = median(c);
    snprintf(length, sizeof length, "%lld", (long long)c->length);
    snprintf(range, sizeof range, "%s - %s", ui_number(a, c->rates[0]), ui_number(b, c->rates[c->n - 1]));
    snprintf(part, sizeof part, "%.0f %%", 100 * share(c));
    ui_number(tok_s, rate);
    if (c->decode) {
        snprintf(reached, sizeof reached, "%.1f GB/s", rate * (double)c->bytes / 1e9);
        printf(row_format, length, tok_s, range, ui_seconds(b, 1 / rate), reached, part, ui_bytes(d, (double)c->bytes),
               ui_bytes(e, (double)c->rss));
    } else {
        snprintf(reached, sizeof reached, "%.0f GOP/s", rate * (double)c->operations / (double)c->length / 1e9);
        printf(row_format, length, tok_s, range, ui_seconds(b, (double)c->length / rate), reached, part, "",
               ui_bytes(e, (double)c->peak_rss));
    }
}

static void print_text(const bench *b)
{
    const char *bold = ui_style(stdout, UI_BOLD), *plain = ui_style(stdout, UI_PLAIN);
    char cpu[256], a[UI_WORD];
    machine_cpu_name(cpu, sizeof cpu);
    printf("%s%s%s · %s · %.0f M parameters · weights %s · kernels %s\n%s\n", bold, b->r->word, plain,
           b->info.weight_type, (double)b->info.n_params / 1e6,
           ui_bytes(a, (double)b->info.weight_bytes), b->info.isa, cpu);
    if (!b->reduction.dense) printf("reduced: %s\n", b->reduction.name);
    for (size_t s = 0; s < b->n_settings; s++) {
        const setting *set = &b->settings[s];
        printf("\n%s%lld thread%s, KV %s%s · memory reads %.1f GB/s, INT8 peak %.0f GOP/s\n", bold,
               (long long)set->threads, set->threads == 1 ? "" : "s", kv_names[set->kv], plain, set->bandwidth / 1e9,
               set->int8_peak / 1e9);
        for (int decode = 0; decode < 2; decode++) {
            bool headed = false;
            for (size_t i = 0; i < b->n_cases; i++) {
                /* decode was measured from deep to shallow and is shown the other way */
                const bench_case *c = &b->cases[decode ? b->n_cases - 1 - i : i];
                if (c->s != set || c->decode != (decode == 1)) continue;
                if (!headed && decode) printf(row_format, "decode at", "tok/s", "min - max", "a token", "reads", "of limit", "a token", "RSS");
                if (!headed && !decode) printf(row_format, "prefill", "tok/s", "min - max", "in all", "computes", "of limit", "", "peak RSS");
                headed = true;
                print_case(c);
            }
        }
    }
}

static void write_csv(const bench *b, FILE *f)
{
    fprintf(f, "kind,length,threads,kv,median_tok_s,min_tok_s,max_tok_s,share_of_limit,rss_bytes,peak_rss_bytes,repeats,kernels\n");
    for (size_t i = 0; i < b->n_cases; i++) {
        const bench_case *c = &b->cases[i];
        fprintf(f, "%s,%lld,%lld,%s,%.3f,%.3f,%.3f,%.4f,%llu,%llu,%zu,%s\n", c->decode ? "decode" : "prefill",
                (long long)c->length, (long long)c->s->threads, kv_names[c->s->kv], median(c), c->rates[0],
                c->rates[c->n - 1], share(c), (unsigned long long)c->rss, (unsigned long long)c->peak_rss, c->n, b->info.isa);
    }
}

static json_t *json_of(const bench *b)
{
    json_t *j = json_object(), *model = json_object(), *list = json_array(), *limits = json_array();
    json_object_set_new(model, "path", json_text(b->r->word));
    json_object_set_new(model, "name", json_text(b->info.name));
    json_object_set_new(model, "architecture", json_text(b->info.architecture));
    json_object_set_new(model, "weight_type", json_text(b->info.weight_type));
    json_object_set_new(model, "parameters", json_integer((json_int_t)b->info.n_params));
    json_object_set_new(model, "weight_bytes", json_integer((json_int_t)b->info.weight_bytes));
    for (size_t i = 0; i < b->n_settings; i++) {
        json_t *row = json_object();
        json_object_set_new(row, "threads", json_integer(b->settings[i].threads));
        json_object_set_new(row, "read_bytes_per_second", json_number(b->settings[i].bandwidth));
        json_object_set_new(row, "int8_ops_per_second", json_number(b->settings[i].int8_peak));
        json_array_append_new(limits, row);
    }
    for (size_t i = 0; i < b->n_cases; i++) {
        const bench_case *c = &b->cases[i];
        json_t *row = json_object(), *rates = json_array();
        for (size_t k = 0; k < c->n; k++) json_array_append_new(rates, json_number(c->rates[k]));
        json_object_set_new(row, "kind", json_string(c->decode ? "decode" : "prefill"));
        json_object_set_new(row, c->decode ? "depth" : "tokens", json_integer(c->length));
        json_object_set_new(row, "threads", json_integer(c->s->threads));
        json_object_set_new(row, "kv", json_string(kv_names[c->s->kv]));
        json_object_set_new(row, "median_tok_s", json_number(median(c)));
        json_object_set_new(row, "min_tok_s", json_number(c->rates[0]));
        json_object_set_new(row, "max_tok_s", json_number(c->rates[c->n - 1]));
        json_object_set_new(row, "all_tok_s", rates);
        if (c->decode) json_object_set_new(row, "bytes_per_token", json_integer((json_int_t)c->bytes));
        else json_object_set_new(row, "operations", json_integer((json_int_t)c->operations));
        json_object_set_new(row, c->decode ? "share_of_bandwidth" : "share_of_int8_peak", json_number(share(c)));
        json_object_set_new(row, "rss_bytes", json_integer((json_int_t)c->rss));
        json_object_set_new(row, "peak_rss_bytes", json_integer((json_int_t)c->peak_rss));
        json_array_append_new(list, row);
    }
    json_object_set_new(j, "machine", machine_json());
    json_object_set_new(j, "kernels", json_text(b->info.isa));
    json_object_set_new(j, "model", model);
    json_object_set_new(j, "limits", limits);
    json_object_set_new(j, "reduction", b->reduction.dense ? json_null() : json_text(b->reduction.name));
    json_object_set_new(j, "decode_tokens", json_integer(b->r->decode_tokens));
    json_object_set_new(j, "cases", list);
    return j;
}

static int report(bench *b)
{
    const bench_request *r = b->r;
    int status = STATUS_OK;
    for (size_t i = 0; i < b->n_cases; i++) qsort(b->cases[i].rates, b->cases[i].n, sizeof(double), by_value);
    bool csv_out = r->csv && strcmp(r->csv, "-") == 0, json_out = r->json && strcmp(r->json, "-") == 0;
    if (!csv_out && !json_out) print_text(b);
    if (csv_out) write_csv(b, stdout);
    if (json_out) status = json_document(json_of(b));
    if (r->csv && !csv_out) {
        FILE *f = fopen(r->csv, "w");
        if (f) write_csv(b, f);
        if (!f || fclose(f) != 0) {
            ui_error("%s: %s", r->csv, strerror(errno));
            status = STATUS_FAILURE;
        }
    }
    if (r->json && !json_out) {
        json_t *j = json_of(b);
        if (json_dump_file(j, r->json, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) != 0) {
            ui_error("%s: %s", r->json, strerror(errno));
            status = STATUS_FAILURE;
        }
        json_decref(j);
    }
    return status;
}

/* ----------------------------------------------------------------- command */

static bool default_counts(count_list *l, const int64_t *items, size_t n)
{
    if (l->items) return true;
    l->items = malloc((n ? n : 1) * sizeof *items);
    if (!l->items) return false;
    memcpy(l->items, items, n * sizeof *items);
    l->n = n;
    return true;
}

/* Every number of threads with every kind of KV. */
static int make_settings(bench *b)
{
    const bench_request *r = b->r;
    for (size_t t = 0; t < r->threads.n; t++)
        for (const char *p = r->kv; *p;) {
            size_t len = strcspn(p, ",");
            int kv = 0;
            while (kv < 3 && (strlen(kv_names[kv]) != len || strncmp(kv_names[kv], p, len) != 0)) kv++;
            if (kv == 3) return args_refuse("bench", "--kv %s: must be int8, f16, f32 or a list of these", r->kv);
            if (b->n_settings == MAX_SETTINGS) return args_refuse("bench", "more than %d settings", MAX_SETTINGS);
            b->settings[b->n_settings++] = (setting){.threads = r->threads.items[t], .kv = kv};
            p += len + (p[len] == ',');
        }
    return b->n_settings ? STATUS_GO_ON : args_refuse("bench", "--kv: nothing given");
}

static int run_bench(bench *b)
{
    const bench_request *r = b->r;
    model_request open = {.word = r->word, .isa = r->isa};
    int status = models_open(&b->model, &open);
    if (status == STATUS_GO_ON) {
        ftk_model_get_info(b->model, &b->info);
        const reduce_target to = {"bench", r->word, b->model};
        status = reduce_setting_of_flags(&b->reduction, &to, &r->reduce);
        if (status == STATUS_GO_ON) status = plan(b);
    }
    if (status == STATUS_GO_ON) status = measure_machine(b);
    for (int64_t i = 0; status == STATUS_GO_ON && i < r->warmup + r->repeat; i++) status = run_round(b, i >= r->warmup);
    ui_progress_clear(&b->progress);
    if (status == STATUS_GO_ON) status = measure_machine(b);
    if (status == STATUS_GO_ON) status = report(b);
    return status;
}

int cmd_bench(int argc, char **argv)
{
    bench_request r = {.word = DEFAULT_MODEL, .kv = "int8", .decode_tokens = 32, .repeat = 5, .warmup = 1};
    const arg_flag flags[] = {
        {ARG_COUNTS, "prefill", 'p', &r.prefill, 1, 1e7, "LIST", "prompt lengths; default 512,2k,4k,8k as far as the model was trained"},
        {ARG_COUNTS, "depth", 'd', &r.depth, 0, 1e7, "LIST", "tokens held when decoding starts; default 0,2k,4k,8k likewise"},
        {ARG_COUNT, "decode-tokens", 'n', &r.decode_tokens, 0, 1e6, "N", "tokens decoded at each depth; 0: none; default 32"},
        {ARG_COUNT, "repeat", 'r', &r.repeat, 1, 10000, "N", "rounds; default 5"},
        {ARG_COUNT, "warmup", 0, &r.warmup, 0, 100, "N", "rounds before that are not counted; default 1"},
        {ARG_COUNTS, "threads", 't', &r.threads, 1, 256, "LIST", "default: online cores"},
        {ARG_TEXT, "kv", 0, &r.kv, 0, 0, "LIST", "of int8, f16, f32; default int8"},
        {ARG_COUNT, "chunk", 0, &r.chunk, 1, 4096, "N", "prompt tokens computed at once; default 256"},
        {ARG_TEXT, "isa", 0, &r.isa, 0, 0, "LEVEL", "kernels: scalar, avx2, avx512, neon, i8mm; default the best"},
        REDUCE_FLAG_ROWS(r.reduce),
        {ARG_GROUP, NULL, 0, NULL, 0, 0, NULL, "Output"},
        {ARG_TEXT, "csv", 0, &r.csv, 0, 0, "FILE", "also write the figures as CSV; -: to standard output instead"},
        {ARG_TEXT, "json", 0, &r.json, 0, 0, "FILE", "also write figures and facts of the machine as JSON; -: to standard output instead"},
    };
    const arg_spec spec = {
        "bench", "[MODEL] [--prefill LIST] [--depth LIST] [--threads LIST] [--kv LIST]",
        "Measures prefill and decode speed: median, least and most of several rounds in which all\n"
        "cases take turns. Decode is set against the memory bandwidth measured here, prefill against\n"
        "the INT8 peak. Memory is the whole process's.",
        "  freetoken bench smollm2-135m\n"
        "  freetoken bench model.gguf --prefill 512,4k --depth 0 --threads 1,2 --repeat 9\n"
        "  freetoken bench model.gguf --kv int8,f32 --json result.json\n",
        flags, sizeof flags / sizeof flags[0], 0, 1};
    static const int64_t prefill[] = {512, 2048, 4096, 8192}, depth[] = {0, 2048, 4096, 8192};
    const char *words[1] = {NULL};
    size_t n_words;
    ftk_machine machine = {0};
    ftk_machine_get(&machine);
    int64_t cores = machine.n_cores;
    bench *b = calloc(1, sizeof *b);
    int status = b ? args_parse(&spec, argc, argv, words, &n_words) : STATUS_FAILURE;
    if (status == STATUS_GO_ON && reduce_flags_given(&r.reduce)) status = reduce_flags_check("bench", &r.reduce, NULL);
    if (status == STATUS_GO_ON) {
        if (words[0]) r.word = words[0];
        if (r.json && strcmp(r.json, "-") == 0) json_report_errors();
        size_t n_prefill = 4, n_depth = 4;
        int32_t trained = INT32_MAX;
        if (!r.prefill.items || !r.depth.items) { /* the defaults depend on the model */
            ftk_model *m = NULL;
            ftk_model_info info;
            model_request open = {.word = r.word, .vocab_only = true};
            status = models_open(&m, &open);
            if (status == STATUS_GO_ON) {
                ftk_model_get_info(m, &info);
                trained = info.train_context;
                ftk_model_close(m);
            }
        }
        while (n_prefill > 1 && prefill[n_prefill - 1] > trained) n_prefill--;
        while (n_depth > 1 && depth[n_depth - 1] + r.decode_tokens > trained) n_depth--;
        if (status == STATUS_GO_ON && (!default_counts(&r.prefill, prefill, n_prefill) ||
                                       !default_counts(&r.depth, depth, n_depth) || !default_counts(&r.threads, &cores, 1)))
            status = STATUS_FAILURE;
        b->r = &r;
    }
    if (status == STATUS_GO_ON) status = make_settings(b);
    if (status == STATUS_GO_ON) status = run_bench(b);
    for (size_t i = 0; b && i < b->n_cases; i++) free(b->cases[i].rates);
    for (size_t i = 0; b && i < b->n_settings; i++) ftk_session_close(b->settings[i].session);
    if (b) {
        reduce_setting_close(&b->reduction);
        ftk_model_close(b->model);
        free(b->tokens);
    }
    free(b);
    count_list_free(&r.prefill);
    count_list_free(&r.depth);
    count_list_free(&r.threads);
    reduce_flags_free(&r.reduce);
    return status == STATUS_GO_ON ? STATUS_OK : status;
}

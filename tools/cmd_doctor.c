// SPDX-License-Identifier: Apache-2.0
/* freetoken doctor: what the machine offers, what was chosen for it and why, and what slows it
 * down, with what to do about it. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "args.h"
#include "commands.h"
#include "files.h"
#include "json_out.h"
#include "machine.h"
#include "models.h"
#include "ui.h"

typedef struct finding {
    double bandwidth[2], int8_peak[2]; /* on one thread and on all, bytes/s and operations/s */
    char warnings[12][256];
    size_t n_warnings;
    char why_isa[160];
    ftk_machine machine;
    /* of the model given */
    const char *model;
    ftk_model_info info;
    ftk_memory small, large; /* at the default context and at the training context */
    int32_t small_context;
    bool has_memory;
} finding;

static void warn(finding *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void warn(finding *f, const char *format, ...)
{
    if (f->n_warnings == sizeof f->warnings / sizeof f->warnings[0]) return;
    va_list list;
    va_start(list, format);
    vsnprintf(f->warnings[f->n_warnings++], sizeof f->warnings[0], format, list);
    va_end(list);
}

static void look_at_kernels(finding *f)
{
    const char *forced = getenv("FREETOKEN_ISA"), *isa = f->machine.isa;
    if (forced && *forced) {
        snprintf(f->why_isa, sizeof f->why_isa, "FREETOKEN_ISA=%s asks for it", forced);
        if (strcmp(forced, isa) != 0)
            warn(f, "FREETOKEN_ISA=%s is not what runs (%s): unset it or name a level this CPU has", forced, isa);
        else warn(f, "FREETOKEN_ISA forces the %s kernels: unset it for the best ones of this CPU", isa);
    } else if (strcmp(isa, "avx512") == 0)
        snprintf(f->why_isa, sizeof f->why_isa, "CPU and system offer AVX-512 with VNNI");
    else if (strcmp(isa, "avx2") == 0)
        snprintf(f->why_isa, sizeof f->why_isa, "the best of this CPU: AVX2 and FMA, no AVX-512 VNNI");
    else if (strcmp(isa, "neon") == 0)
        snprintf(f->why_isa, sizeof f->why_isa, "the CPU offers NEON with dot products");
    else {
        snprintf(f->why_isa, sizeof f->why_isa, "the CPU offers none of avx2, avx512 or neon dot products");
        warn(f, "plain C kernels run, many times slower: this CPU has no vector unit FreeToken knows");
    }
}

static void look_at_processors(finding *f)
{
    double quota = machine_cpu_quota();
    char line[256];
    if (quota > 0 && quota + 0.01 < f->machine.n_cores)
        warn(f, "the container may use %.2g CPUs' worth of time of %d: --threads %d avoids being throttled", quota,
             f->machine.n_cores, quota < 1 ? 1 : (int)quota);
    if (machine_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", line, sizeof line) &&
        strcmp(line, "powersave") == 0 &&
        !machine_line("/sys/devices/system/cpu/intel_pstate/status", line, sizeof line))
        warn(f, "the CPU frequency governor is powersave: cpupower frequency-set -g performance is faster");
    double load = 0;
    if (machine_line("/proc/loadavg", line, sizeof line)) load = atof(line);
    if (load > 0.5 * f->machine.n_cores)
        warn(f, "other work keeps the machine busy (load %.1f on %d cores): figures will be low and vary", load,
             f->machine.n_cores);
    if (!f->machine.huge_pages)
        warn(f, "no huge pages: reading weights is slower by half or more; "
                "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (as root)");
}

static void look_at_memory(finding *f)
{
    char a[UI_WORD], b[UI_WORD];
    uint64_t limit = machine_memory_limit(), free_now = f->machine.memory_free;
    if (limit && limit < f->machine.memory_bytes)
        warn(f, "the container's memory is limited to %s", ui_bytes(a, (double)limit));
    if (limit && limit < free_now) free_now = limit;
    if (!f->has_memory) return;
    if (f->small.total > free_now)
        warn(f, "the model needs %s at a context of %d and %s is free: take a smaller model or close programs",
             ui_bytes(a, (double)f->small.total), f->small_context, ui_bytes(b, (double)free_now));
    else if (f->large.total > free_now)
        warn(f, "at its full context of %d the model needs %s and %s is free: give a smaller --context",
             f->info.train_context, ui_bytes(a, (double)f->large.total), ui_bytes(b, (double)free_now));
}

static int look_at_model(finding *f)
{
    ftk_model *m = NULL;
    model_request open = {.word = f->model};
    int status = models_open(&m, &open);
    if (status != STATUS_GO_ON) return status;
    ftk_model_get_info(m, &f->info);
    f->small_context = f->info.train_context < 4096 ? f->info.train_context : 4096;
    ftk_session_opts o = {.size = sizeof o, .context = f->small_context};
    f->has_memory = ftk_memory_estimate(m, &o, &f->small, NULL) == FTK_OK;
    o.context = f->info.train_context;
    f->has_memory = f->has_memory && ftk_memory_estimate(m, &o, &f->large, NULL) == FTK_OK;
    ftk_model_close(m);
    return STATUS_GO_ON;
}

static int measure(finding *f)
{
    ui_progress progress = {0};
    int32_t threads[2] = {1, f->machine.n_cores};
    ftk_error e = {0};
    for (int i = 0; i < 2; i++) {
        ui_progress_draw(&progress, "measuring the machine", (uint64_t)i, 2);
        if (i == 1 && threads[1] == 1) {
            f->bandwidth[1] = f->bandwidth[0];
            f->int8_peak[1] = f->int8_peak[0];
        } else if (ftk_machine_measure(threads[i], 0.5, &f->bandwidth[i], &f->int8_peak[i], &e) != FTK_OK)
            return ui_fail(NULL, &e);
    }
    ui_progress_clear(&progress);
    if (f->bandwidth[1] < 4e9) warn(f, "memory is slow (%.1f GB/s): small weights (Q4) decode fastest", f->bandwidth[1] / 1e9);
    return STATUS_GO_ON;
}

static void print_text(const finding *f)
{
    const char *bold = ui_style(stdout, UI_BOLD), *plain = ui_style(stdout, UI_PLAIN);
    const ftk_machine *m = &f->machine;
    struct utsname kernel;
    char cpu[256], a[UI_WORD], b[UI_WORD];
    machine_cpu_name(cpu, sizeof cpu);
    printf("%sMachine%s\n  cpu            %s\n  features       %s\n  cores          %d online\n", bold, plain,
           cpu[0] ? cpu : "unknown", m->cpu, m->n_cores);
    printf("  memory         %s, %s free\n", ui_bytes(a, (double)m->memory_bytes), ui_bytes(b, (double)m->memory_free));
    printf("  huge pages     %s\n", m->huge_pages ? "yes" : "no");
    if (uname(&kernel) == 0) printf("  kernel         %s %s %s\n", kernel.sysname, kernel.release, kernel.machine);
    printf("\n%sFreeToken %s%s\n  kernels        %s: %s\n", bold, ftk_version(), plain, m->isa, f->why_isa);
    printf("\n%sMeasured%s            1 thread   %d threads\n", bold, plain, m->n_cores);
    printf("  reading memory  %7.1f     %7.1f   GB/s\n", f->bandwidth[0] / 1e9, f->bandwidth[1] / 1e9);
    printf("  INT8 products   %7.0f     %7.0f   GOP/s\n", f->int8_peak[0] / 1e9, f->int8_peak[1] / 1e9);
    if (f->model && f->has_memory) {
        printf("\n%sModel %s%s\n", bold, f->model, plain);
        printf("  weights        %s\n", ui_bytes(a, (double)f->small.weights));
        printf("  in all         %s at context %d", ui_bytes(a, (double)f->small.total), f->small_context);
        if (f->info.train_context > f->small_context)
            printf(", %s at context %d", ui_bytes(a, (double)f->large.total), f->info.train_context);
        printf("\n  decode         at most %s tok/s: memory reads no faster\n",
               ui_number(a, fmax(f->bandwidth[0], f->bandwidth[1]) / (double)f->small.weights));
    }
    printf("\n");
    for (size_t i = 0; i < f->n_warnings; i++)
        printf("%s!%s %s\n", ui_style(stdout, UI_YELLOW), plain, f->warnings[i]);
    if (f->n_warnings == 0) printf("%sNothing to complain about.%s\n", ui_style(stdout, UI_GREEN), plain);
}

static int print_json(const finding *f)
{
    json_t *j = json_object(), *warnings = json_array(), *measured = json_array();
    for (size_t i = 0; i < f->n_warnings; i++) json_array_append_new(warnings, json_text(f->warnings[i]));
    for (int i = 0; i < 2; i++) {
        json_t *row = json_object();
        json_object_set_new(row, "threads", json_integer(i ? f->machine.n_cores : 1));
        json_object_set_new(row, "read_bytes_per_second", json_number(f->bandwidth[i]));
        json_object_set_new(row, "int8_ops_per_second", json_number(f->int8_peak[i]));
        json_array_append_new(measured, row);
    }
    json_object_set_new(j, "machine", machine_json());
    json_object_set_new(j, "kernels", json_text(f->machine.isa));
    json_object_set_new(j, "kernels_why", json_text(f->why_isa));
    json_object_set_new(j, "measured", measured);
    if (f->model && f->has_memory) {
        json_t *model = json_object();
        json_object_set_new(model, "model", json_text(f->model));
        json_object_set_new(model, "weight_bytes", json_integer((json_int_t)f->small.weights));
        json_object_set_new(model, "context", json_integer(f->small_context));
        json_object_set_new(model, "total_bytes", json_integer((json_int_t)f->small.total));
        json_object_set_new(model, "train_context", json_integer(f->info.train_context));
        json_object_set_new(model, "train_context_total_bytes", json_integer((json_int_t)f->large.total));
        json_object_set_new(j, "model", model);
    }
    json_object_set_new(j, "warnings", warnings);
    return json_document(j);
}

int cmd_doctor(int argc, char **argv)
{
    bool json = false;
    const arg_flag flags[] = {
        {ARG_BOOL, "json", 0, &json, 0, 0, NULL, "print one JSON document"},
    };
    const arg_spec spec = {
        "doctor", "[MODEL] [--json]",
        "Shows what this machine offers, which kernels run and why, how fast memory and INT8\n"
        "products are, whether MODEL fits into memory, and what to change. Takes two seconds.",
        "  freetoken doctor\n"
        "  freetoken doctor smollm2-135m\n",
        flags, sizeof flags / sizeof flags[0], 0, 1};
    const char *words[1] = {NULL};
    size_t n_words;
    int status = args_parse(&spec, argc, argv, words, &n_words);
    if (status != STATUS_GO_ON) return status;
    if (json) json_report_errors();
    finding *f = calloc(1, sizeof *f);
    if (!f) return STATUS_FAILURE;
    f->model = words[0];
    ftk_machine_get(&f->machine);
    if (f->model) status = look_at_model(f);
    if (status == STATUS_GO_ON) status = measure(f);
    if (status == STATUS_GO_ON) {
        look_at_kernels(f);
        look_at_processors(f);
        look_at_memory(f);
        if (json) status = print_json(f);
        else print_text(f);
    }
    free(f);
    return status == STATUS_GO_ON ? STATUS_OK : status;
}

// SPDX-License-Identifier: Apache-2.0
/* The team of threads: dispatch, hand-out and barrier. Owns the worker threads; what they
 * compute and how work is cut into indices belongs to the callers.
 *
 * Everything waits at a GATE: a word that holds a phase (upper 31 bits) and whether somebody
 * sleeps (bit 0). Waiting reads the word for a while, then sets bit 0 and sleeps on the word in
 * the kernel. Opening swaps in the next phase and calls the kernel only if bit 0 was set, so a
 * barrier whose threads arrive close together costs two cache-line transfers and no system call. */
#include "base/threads.h"

#include "base/memory.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined(__linux__) && !defined(FTKI_NO_FUTEX)
#define HAVE_FUTEX 1
#include <linux/futex.h>
#include <sys/syscall.h>
#else
#define HAVE_FUTEX 0
#endif

enum { MAX_THREADS = 256, CACHE_LINE = 64 };

/* How long a waiter reads before it sleeps, seconds. A sleep and a wake-up cost 5 to 50 us, so
 * about that much is worth spinning for; with more threads than cores the one waited for may need
 * this very core, and hardly any spinning is right. */
static const double SPIN_SECONDS = 100e-6;
static const double SPIN_SECONDS_CROWDED = 2e-6;

double ftki_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int32_t ftki_online_cores(void) {
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
#endif
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > INT32_MAX ? INT32_MAX : (int32_t)n;
}

/* -------------------------------------------------------------------- gate */

typedef struct gate {
    char before[CACHE_LINE]; /* keeps the word on a cache line of its own */
    _Atomic uint32_t word;
    char after[CACHE_LINE];
#if !HAVE_FUTEX
    pthread_mutex_t mutex;
    pthread_cond_t changed;
#endif
} gate;

#if HAVE_FUTEX
static void gate_init(gate *g) { atomic_init(&g->word, 0); }
static void gate_destroy(gate *g) { (void)g; }
static void gate_sleep(gate *g, uint32_t seen) {
    syscall(SYS_futex, &g->word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}
static void gate_wake(gate *g) {
    syscall(SYS_futex, &g->word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}
#else
static void gate_init(gate *g) {
    atomic_init(&g->word, 0);
    pthread_mutex_init(&g->mutex, NULL);
    pthread_cond_init(&g->changed, NULL);
}
static void gate_destroy(gate *g) {
    pthread_mutex_destroy(&g->mutex);
    pthread_cond_destroy(&g->changed);
}
static void gate_sleep(gate *g, uint32_t seen) {
    pthread_mutex_lock(&g->mutex);
    while (atomic_load(&g->word) == seen) pthread_cond_wait(&g->changed, &g->mutex);
    pthread_mutex_unlock(&g->mutex);
}
static void gate_wake(gate *g) {
    pthread_mutex_lock(&g->mutex);
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->mutex);
}
#endif

static uint32_t gate_phase(gate *g) {
    return atomic_load_explicit(&g->word, memory_order_acquire) & ~1u;
}

/* Opens the gate for everyone waiting in `phase`. One thread at a time. */
static void gate_open(gate *g, uint32_t phase) {
    if (atomic_exchange_explicit(&g->word, phase + 2, memory_order_acq_rel) & 1u) gate_wake(g);
}

static void cpu_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
    __asm__ __volatile__("yield");
#endif
}

/* Waits until the gate has left `phase`. */
static void gate_wait(gate *g, uint32_t phase, double spin_seconds) {
    for (int i = 0; i < 64; i++) {
        if (gate_phase(g) != phase) return;
        cpu_relax();
    }
    double until = ftki_seconds() + spin_seconds;
    do {
        for (int i = 0; i < 32; i++) {
            if (gate_phase(g) != phase) return;
            cpu_relax();
        }
    } while (ftki_seconds() < until);

    for (;;) {
        uint32_t seen = phase;
        /* Announce the sleeper; a failed exchange tells what the word is instead. */
        if (!atomic_compare_exchange_strong_explicit(&g->word, &seen, phase | 1u,
                                                     memory_order_acq_rel, memory_order_acquire) &&
            (seen & ~1u) != phase)
            return;
        gate_sleep(g, phase | 1u);
        if (gate_phase(g) != phase) return;
    }
}

/* -------------------------------------------------------------------- team */

typedef struct member {
    ftki_team *team;
    pthread_t thread;
    int32_t index;
} member;

struct ftki_team {
    int32_t n_threads;
    double spin_seconds;
    /* Written by the caller before `start` opens, read by workers after it did. */
    ftki_team_fn fn;
    void *ctx;
    bool no_alloc; /* the caller is in a no-allocation zone: so are the workers */
    bool quit;
    gate start;    /* opened once per run */
    gate stage;    /* opened by the last to arrive at a barrier */
    _Atomic int32_t arrived;
    char pad[CACHE_LINE];
    _Atomic int32_t next; /* index to hand out; 0 at the start of each stage */
    char pad_end[CACHE_LINE];
    int32_t n_started;
    member members[]; /* [n_threads]; 0 is the caller and has no thread */
};

int32_t ftki_team_size(const ftki_team *t) { return t->n_threads; }

int32_t ftki_team_next(ftki_team *t) {
    return atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed);
}

void ftki_team_barrier(ftki_team *t) {
    if (t->n_threads == 1) {
        atomic_store_explicit(&t->next, 0, memory_order_relaxed);
        return;
    }
    uint32_t phase = gate_phase(&t->stage); /* cannot change before this thread has arrived */
    if (atomic_fetch_add_explicit(&t->arrived, 1, memory_order_acq_rel) + 1 < t->n_threads) {
        gate_wait(&t->stage, phase, t->spin_seconds);
        return;
    }
    /* All are here and none reads these until the gate opens. */
    atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&t->next, 0, memory_order_relaxed);
    gate_open(&t->stage, phase);
}

static void *work(void *arg) {
    member *m = arg;
    ftki_team *t = m->team;
    uint32_t phase = 0;
    for (;;) {
        gate_wait(&t->start, phase, t->spin_seconds);
        phase += 2;
        if (t->quit) return NULL;
        bool no_alloc = t->no_alloc;
        if (no_alloc) ftki_no_alloc_enter();
        t->fn(t->ctx, m->index, t->n_threads);
        if (no_alloc) ftki_no_alloc_leave();
        ftki_team_barrier(t);
    }
}

void ftki_team_run(ftki_team *t, ftki_team_fn fn, void *ctx) {
    atomic_store_explicit(&t->next, 0, memory_order_relaxed);
    if (t->n_threads > 1) {
        t->fn = fn;
        t->ctx = ctx;
        t->no_alloc = ftki_no_alloc_inside();
        gate_open(&t->start, gate_phase(&t->start));
    }
    fn(ctx, 0, t->n_threads);
    ftki_team_barrier(t);
}

static ftk_status start_workers(ftki_team *t, ftk_error *e) {
    /* Signals go to the threads of the program, not to ours. */
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int reason = 0;
    for (int32_t i = 1; i < t->n_threads && reason == 0; i++) {
        member *m = &t->members[i];
        m->team = t;
        m->index = i;
        reason = pthread_create(&m->thread, NULL, work, m);
        if (reason == 0) t->n_started++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (reason != 0)
        return ftki_fail(e, FTK_OUT_OF_MEMORY, "cannot start thread %d of %d: %s; use fewer threads",
                         (int)t->n_started + 2, (int)t->n_threads, strerror(reason));
    return FTK_OK;
}

ftk_status ftki_team_open(ftki_team **out, int32_t n_threads, ftk_error *e) {
    if (n_threads < 0 || n_threads > MAX_THREADS)
        return ftki_fail(e, FTK_INVALID_ARGUMENT,
                         "%d threads asked for; use 1 to %d, or 0 for one per core",
                         (int)n_threads, (int)MAX_THREADS);
    int32_t cores = ftki_online_cores();
    if (n_threads == 0) n_threads = cores < MAX_THREADS ? cores : MAX_THREADS;

    ftki_team *t = ftki_alloc(1, sizeof *t + (size_t)n_threads * sizeof t->members[0]);
    if (t == NULL) return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for a team of threads");
    t->n_threads = n_threads;
    t->spin_seconds = n_threads <= cores ? SPIN_SECONDS : SPIN_SECONDS_CROWDED;
    gate_init(&t->start);
    gate_init(&t->stage);
    ftk_status status = start_workers(t, e);
    if (status != FTK_OK) {
        ftki_team_close(t);
        return status;
    }
    *out = t;
    return FTK_OK;
}

void ftki_team_close(ftki_team *t) {
    if (t == NULL) return;
    t->quit = true;
    gate_open(&t->start, gate_phase(&t->start));
    for (int32_t i = 1; i <= t->n_started; i++) pthread_join(t->members[i].thread, NULL);
    gate_destroy(&t->start);
    gate_destroy(&t->stage);
    ftki_free(t);
}

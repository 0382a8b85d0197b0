// SPDX-License-Identifier: Apache-2.0
/* A team of threads that runs one function together, stage by stage.
 *
 * Inside ftki_team_run every worker runs fn; ftki_team_next hands out the indices 0, 1, 2, ...
 * of the current stage, each to one worker; ftki_team_barrier waits for all and opens the next
 * stage. Waiting spins briefly, then sleeps in the kernel, so that neither a sleep per layer is
 * paid nor an idle core burnt; between runs the workers spin for a moment (a decode loop calls
 * again at once) and then sleep. With one thread nothing is ever waited for. */
#ifndef FTKI_BASE_THREADS_H
#define FTKI_BASE_THREADS_H

#include "base/status.h"

typedef struct ftki_team ftki_team;
typedef void (*ftki_team_fn)(void *ctx, int32_t worker, int32_t n_workers);

/* n_threads 0: online cores. Limit 256. */
ftk_status ftki_team_open(ftki_team **out, int32_t n_threads, ftk_error *e);
void ftki_team_close(ftki_team *t); /* NULL is fine */
int32_t ftki_team_size(const ftki_team *t);

/* Runs fn on all workers, the caller being worker 0; returns when all are done. */
void ftki_team_run(ftki_team *t, ftki_team_fn fn, void *ctx);
int32_t ftki_team_next(ftki_team *t);
void ftki_team_barrier(ftki_team *t);

double ftki_seconds(void); /* monotonic clock */
int32_t ftki_online_cores(void); /* cores this process may use, at least 1 */

#endif

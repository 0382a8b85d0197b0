// SPDX-License-Identifier: Apache-2.0
/* The SIGINT handler: counts, wakes whoever waits, and cancels the session being watched. */
#include "interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "args.h"

static _Atomic(ftk_session *) watched;
static volatile sig_atomic_t count;
static int wake[2] = {-1, -1}; /* a pipe: read end, write end */

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    count = count + 1;
    if (count > 1) _exit(STATUS_INTERRUPTED);
    ftk_session *s = atomic_load(&watched);
    if (s) ftk_session_cancel(s);
    int saved = errno;
    if (write(wake[1], "", 1) < 0) errno = saved; /* full: it is readable already */
}

void interrupt_install(void)
{
    if (pipe2(wake, O_NONBLOCK | O_CLOEXEC) != 0) wake[0] = wake[1] = -1;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_interrupt; /* no SA_RESTART: a read at the prompt shall return */
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

void interrupt_watch(ftk_session *s)
{
    atomic_store(&watched, s);
}

int interrupt_count(void)
{
    return (int)count;
}

void interrupt_clear(void)
{
    char byte[16];
    while (read(wake[0], byte, sizeof byte) > 0) continue;
    count = 0;
}

int interrupt_descriptor(void)
{
    return wake[0];
}

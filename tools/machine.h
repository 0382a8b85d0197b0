// SPDX-License-Identifier: Apache-2.0
/* Facts about the machine and this process that the library has no need of: the CPU's name, the
 * kernel's, limits of a container, memory of the process. Read from /proc and /sys. */
#ifndef FREETOKEN_TOOLS_MACHINE_H
#define FREETOKEN_TOOLS_MACHINE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint64_t machine_rss(void);      /* resident bytes now, 0: unknown */
uint64_t machine_peak_rss(void); /* most resident bytes so far, 0: unknown */
/* Starts the peak afresh; where the system does not allow it the peak goes on as it was. */
void machine_reset_peak_rss(void);
/* "Intel(R) Xeon(R) ...", "" when unknown. */
void machine_cpu_name(char *name, size_t cap);
/* First line of a small file without its newline; false when it cannot be read. */
bool machine_line(const char *path, char *line, size_t cap);
/* CPUs' worth of time the control group grants, 0: no limit. */
double machine_cpu_quota(void);
/* Bytes the control group grants, 0: no limit. */
uint64_t machine_memory_limit(void);
/* What a figure depends on: cpu, features, kernel, cores, memory, version. New reference. */
json_t *machine_json(void);

#endif

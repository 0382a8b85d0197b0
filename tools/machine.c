// SPDX-License-Identifier: Apache-2.0
/* Reading /proc, /sys and uname. Everything missing there reads as unknown, never as an error. */
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "freetoken/freetoken.h"
#include "json_out.h"

/* The number after "FIELD:" in a file of such lines, times 1024 ("VmRSS:   123 kB"). */
static uint64_t kilobytes_of(const char *path, const char *field)
{
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    char line[256];
    uint64_t found = 0;
    while (fgets(line, sizeof line, f))
        if (strncmp(line, field, strlen(field)) == 0) {
            found = strtoull(line + strlen(field), NULL, 10) * 1024;
            break;
        }
    fclose(f);
    return found;
}

uint64_t machine_rss(void)
{
    return kilobytes_of("/proc/self/status", "VmRSS:");
}

uint64_t machine_peak_rss(void)
{
    return kilobytes_of("/proc/self/status", "VmHWM:");
}

void machine_reset_peak_rss(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (!f) return;
    fputs("5", f);
    fclose(f);
}

bool machine_line(const char *path, char *line, size_t cap)
{
    FILE *f = fopen(path, "r");
    if (!f) return false;
    bool got = fgets(line, (int)cap, f) != NULL;
    fclose(f);
    if (got) line[strcspn(line, "\n")] = 0;
    return got;
}

void machine_cpu_name(char *name, size_t cap)
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[512];
    name[0] = 0;
    while (f && !name[0] && fgets(line, sizeof line, f)) {
        if (strncmp(line, "model name", 10) && strncmp(line, "Model", 5) && strncmp(line, "Hardware", 8)) continue;
        char *colon = strchr(line, ':');
        if (!colon) continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(name, cap, "%s", colon + 1 + strspn(colon + 1, " \t"));
    }
    if (f) fclose(f);
    if (!name[0] && machine_line("/proc/device-tree/model", line, sizeof line)) snprintf(name, cap, "%s", line);
}

double machine_cpu_quota(void)
{
    char line[128];
    if (machine_line("/sys/fs/cgroup/cpu.max", line, sizeof line)) {
        double quota = 0, period = 0;
        if (sscanf(line, "%lf %lf", &quota, &period) == 2 && period > 0) return quota / period;
        return 0;
    }
    char other[128];
    if (machine_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", line, sizeof line) &&
        machine_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us", other, sizeof other)) {
        double quota = atof(line), period = atof(other);
        if (quota > 0 && period > 0) return quota / period;
    }
    return 0;
}

uint64_t machine_memory_limit(void)
{
    char line[128];
    if (!machine_line("/sys/fs/cgroup/memory.max", line, sizeof line) &&
        !machine_line("/sys/fs/cgroup/memory/memory.limit_in_bytes", line, sizeof line))
        return 0;
    uint64_t limit = strtoull(line, NULL, 10); /* "max" reads as 0 */
    return limit >= (uint64_t)1 << 60 ? 0 : limit;
}

json_t *machine_json(void)
{
    ftk_machine m = {0};
    struct utsname kernel;
    char cpu[256], huge[128] = "";
    ftk_machine_get(&m);
    machine_cpu_name(cpu, sizeof cpu);
    machine_line("/sys/kernel/mm/transparent_hugepage/enabled", huge, sizeof huge);
    json_t *j = json_object();
    json_object_set_new(j, "cpu", json_text(cpu));
    json_object_set_new(j, "features", json_text(m.cpu ? m.cpu : ""));
    json_object_set_new(j, "cores", json_integer(m.n_cores));
    json_object_set_new(j, "cpu_quota", json_real(machine_cpu_quota()));
    json_object_set_new(j, "memory_bytes", json_integer((json_int_t)m.memory_bytes));
    json_object_set_new(j, "memory_free_bytes", json_integer((json_int_t)m.memory_free));
    json_object_set_new(j, "huge_pages", json_boolean(m.huge_pages));
    json_object_set_new(j, "transparent_huge_pages", json_text(huge));
    if (uname(&kernel) == 0) {
        char text[512];
        snprintf(text, sizeof text, "%s %s %s", kernel.sysname, kernel.release, kernel.machine);
        json_object_set_new(j, "kernel", json_text(text));
    }
    json_object_set_new(j, "freetoken", json_text(ftk_version()));
    json_object_set_new(j, "isa", json_text(m.isa ? m.isa : ""));
    return j;
}

/* cpus.c: see xn_cpus.h. Groups are nested and every level may have a quota, so all from the
 * process's own group up to the root count. In a container the listed path may not exist below the
 * mount, which then shows the container's own group as its root: that is tried last in any case. */
#include "xn_cpus.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 1024, LINE_BYTES = 640 };

/* The first line of a small file, without its end; false if there is none. */
static bool read_line(const char *path, char line[LINE_BYTES]) {
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    bool read = fgets(line, LINE_BYTES, file) != NULL;
    fclose(file);
    line[read ? strcspn(line, "\n") : 0] = '\0';
    return read;
}

/* Whole processors of a quota in microseconds a period; 0 for none. */
static int processors(long long quota, long long period) {
    if (quota <= 0 || period <= 0)
        return 0;
    long long whole = quota / period;
    return whole < 1 ? 1 : whole > 65536 ? 65536 : (int)whole;
}

/* The quota of one group. Version 2: cpu.max has "max 100000" or "150000 100000". Version 1: two
 * files, -1 for none. */
static int quota_at(const char *group) {
    char path[PATH_BYTES + 32], line[LINE_BYTES];
    long long quota = 0, period = 0;
    snprintf(path, sizeof path, "%s/cpu.max", group);
    if (read_line(path, line))
        return sscanf(line, "%lld %lld", &quota, &period) == 2 ? processors(quota, period) : 0;
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", group);
    if (!read_line(path, line))
        return 0;
    quota = strtoll(line, NULL, 10);
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", group);
    if (!read_line(path, line))
        return 0;
    period = strtoll(line, NULL, 10);
    return processors(quota, period);
}

static int smaller(int a, int b) {
    return !a || (b && b < a) ? b : a;
}

/* The least quota from mount/path up to mount itself. */
static int quota_above(const char *mount, const char *path) {
    char group[PATH_BYTES];
    int least = 0;
    int length = snprintf(group, sizeof group, "%s%s", mount, path);
    size_t root = strlen(mount);
    if (length < 0 || (size_t)length >= sizeof group)
        return 0;
    for (;;) {
        least = smaller(least, quota_at(group));
        char *slash = strrchr(group + root, '/');
        if (!slash)
            return least;
        *slash = '\0';
    }
}

/* Whether "cpu" is among the controllers "cpu,cpuacct". */
static bool names_cpu(const char *controllers, size_t length) {
    for (size_t at = 0; at < length;) {
        size_t span = 0;
        while (at + span < length && controllers[at + span] != ',')
            span++;
        if (span == 3 && !memcmp(controllers + at, "cpu", 3))
            return true;
        at += span + 1;
    }
    return false;
}

/* A line of the list is "0::/path" (version 2) or "4:cpu,cpuacct:/path" (version 1, mounted at a
 * folder of that name or of "cpu"). */
static int quota_of_line(const char *line, const char *mount) {
    const char *first = strchr(line, ':'), *second = first ? strchr(first + 1, ':') : NULL;
    char folder[PATH_BYTES];
    if (!second)
        return 0;
    size_t length = (size_t)(second - first - 1);
    if (!length)
        return quota_above(mount, second + 1);
    if (!names_cpu(first + 1, length))
        return 0;
    snprintf(folder, sizeof folder, "%s/%.*s", mount, (int)length, first + 1);
    int quota = quota_above(folder, second + 1);
    snprintf(folder, sizeof folder, "%s/cpu", mount);
    return smaller(quota, quota_above(folder, second + 1));
}

int xn_cpus_of_quota(const char *proc_cgroup, const char *mount) {
    FILE *file = fopen(proc_cgroup, "re");
    char line[LINE_BYTES];
    int quota = 0;
    if (!file)
        return 0;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        quota = smaller(quota, quota_of_line(line, mount));
    }
    fclose(file);
    return quota;
}

int xn_cpus_usable(void) {
    cpu_set_t set;
    int count = 0;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        count = CPU_COUNT(&set);
    } else { /* more processors than cpu_set_t holds */
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        count = online > 0 && online < 65536 ? (int)online : 1;
    }
    count = smaller(count, xn_cpus_of_quota("/proc/self/cgroup", "/sys/fs/cgroup"));
    return count > 1 ? count : 1;
}

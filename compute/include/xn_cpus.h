/* xn_cpus.h: how many processors this process may use. */
#ifndef XN_CPUS_H
#define XN_CPUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* Processors of the process's affinity mask, or fewer where a control group's CPU quota (version 1
 * or 2, its own group's or one above it) gives less: at least 1. A quota of 2.5 processors is 2:
 * threads beyond a quota only bring on the pauses by which it is enforced. */
int xn_cpus_usable(void);

/* The quota alone, in whole processors, 0 for none. proc_cgroup: the process's groups, as
 * /proc/self/cgroup lists them; mount: where the groups are mounted, /sys/fs/cgroup. */
int xn_cpus_of_quota(const char *proc_cgroup, const char *mount);

#ifdef __cplusplus
}
#endif
#endif

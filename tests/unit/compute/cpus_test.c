/* cpus_test.c: CPU quotas of control groups, read from folders made for the purpose. */
#include "xn_cpus.h"
#include "xn_test.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES = 6, PATH_BYTES = 200 };

typedef struct layout {
    const char *groups; /* /proc/self/cgroup */
    int quota;
    const char *files[FILES][2]; /* below the mount: path, text */
} layout;

static const layout layouts[] = {
    {"0::/\n", 0, {{NULL}}},
    {"0::/\n", 0, {{"/cpu.max", "max 100000\n"}}},
    {"0::/\n", 4, {{"/cpu.max", "400000 100000\n"}}},
    {"0::/\n", 2, {{"/cpu.max", "250000 100000\n"}}},
    {"0::/\n", 1, {{"/cpu.max", "50000 100000\n"}}},
    {"0::/\n", 8, {{"/cpu.max", "80000 10000"}}},
    /* its own group, one above it, and the root: the least counts */
    {"0::/a/b\n", 3, {{"/a/b/cpu.max", "300000 100000\n"}, {"/a/cpu.max", "max 100000\n"}}},
    {"0::/a/b\n", 2, {{"/a/b/cpu.max", "300000 100000\n"}, {"/a/cpu.max", "200000 100000\n"}}},
    {"0::/gone/here\n", 5, {{"/cpu.max", "500000 100000\n"}}},
    /* version 1, alone and beside an empty version 2 */
    {"3:memory:/x\n2:cpu,cpuacct:/x\n",
     2,
     {{"/cpu,cpuacct/x/cpu.cfs_quota_us", "200000\n"},
      {"/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n"}}},
    {"2:cpu:/x/y\n0::/\n",
     6,
     {{"/cpu/x/y/cpu.cfs_quota_us", "-1\n"},
      {"/cpu/x/y/cpu.cfs_period_us", "100000\n"},
      {"/cpu/x/cpu.cfs_quota_us", "600000\n"},
      {"/cpu/x/cpu.cfs_period_us", "100000\n"}}},
    {"2:cpuset:/x\n", 0, {{"/cpu/x/cpu.cfs_quota_us", "1000"}, {"/cpu/x/cpu.cfs_period_us", "1"}}},
    /* nonsense gives none */
    {"", 0, {{"/cpu.max", "400000 100000\n"}}},
    {"no colons\n", 0, {{"/cpu.max", "400000 100000\n"}}},
    {"0::/\n", 0, {{"/cpu.max", "garbage\n"}}},
    {"0::/\n", 0, {{"/cpu.max", "100000 0\n"}}},
    {"0::/\n", 0, {{"/cpu.max", ""}}},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    ck_assert_msg(file != NULL, "cannot write %s", path);
    fputs(text, file);
    fclose(file);
}

/* Makes the folders of a path below the root, of which the last part is a file. */
static void make_folders(char *path, size_t root) {
    for (char *slash = strchr(path + root + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
}

/* Removes the files and then, from the longest up, the folders. */
static void clean(const layout *l, const char *root) {
    char path[PATH_BYTES];
    for (int i = 0; i < FILES && l->files[i][0]; i++) {
        snprintf(path, sizeof path, "%s%s", root, l->files[i][0]);
        unlink(path);
    }
    for (int i = 0; i < FILES && l->files[i][0]; i++) {
        snprintf(path, sizeof path, "%s%s", root, l->files[i][0]);
        for (char *slash; (slash = strrchr(path + strlen(root), '/')); rmdir(path))
            *slash = '\0';
    }
    snprintf(path, sizeof path, "%s/groups", root);
    unlink(path);
    rmdir(root);
}

START_TEST(quota_of_layout) {
    const layout *l = &layouts[_i];
    char root[] = "/tmp/xnord-cpus-XXXXXX", groups[PATH_BYTES], path[PATH_BYTES];
    ck_assert_ptr_nonnull(mkdtemp(root));
    snprintf(groups, sizeof groups, "%s/groups", root);
    write_file(groups, l->groups);
    for (int i = 0; i < FILES && l->files[i][0]; i++) {
        snprintf(path, sizeof path, "%s%s", root, l->files[i][0]);
        make_folders(path, strlen(root));
        write_file(path, l->files[i][1]);
    }
    int quota = xn_cpus_of_quota(groups, root);
    clean(l, root);
    ck_assert_int_eq(quota, l->quota);
}
END_TEST

START_TEST(usable) {
    ck_assert_int_eq(xn_cpus_of_quota("/no/such/file", "/no/such/folder"), 0);
    ck_assert_int_ge(xn_cpus_usable(), 1);
    ck_assert_int_le(xn_cpus_usable(), sysconf(_SC_NPROCESSORS_CONF));
}
END_TEST

XN_SUITE(cpus) {
    Suite *s = suite_create("cpus");
    TCase *t = xn_test_case(s, "quota", 0);
    tcase_add_loop_test(t, quota_of_layout, 0, LAYOUTS);
    tcase_add_test(t, usable);
    return s;
}

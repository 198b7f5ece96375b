/* corpus_test.c: every file of the corpus through its target, as it is, cut short everywhere (or at
 * some places of a long one) and changed at random: what fuzzing found stays found. */
#include "fuzz.h"
#include "xn_test.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#define MOST_BYTES 16384
#define MUTATIONS 300

static void run(const xf_target *target, const uint8_t *bytes, size_t size) {
    uint8_t *exact = malloc(size ? size : 1);
    ck_assert_ptr_nonnull(exact);
    memcpy(exact, bytes, size);
    target->run(exact, size);
    free(exact);
}

static void run_file(const xf_target *target, const char *path) {
    static uint8_t bytes[MOST_BYTES], changed[MOST_BYTES];
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "%s cannot be read", path);
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    ck_assert_msg(size < sizeof bytes, "%s is too large for a corpus", path);
    xf_running = path;
    for (size_t cut = 0; cut <= size; cut += size / 500 + 1)
        run(target, bytes, size - cut);
    uint64_t state = xn_test_seed();
    for (int round = 0; round < MUTATIONS; round++) {
        size_t length = size;
        memcpy(changed, bytes, size);
        for (int n = 0; n <= round % 4; n++)
            length = xf_mutate(&state, changed, length, sizeof changed);
        run(target, changed, length);
    }
    xf_running = NULL;
}

START_TEST(corpus_runs) {
    const xf_target *target = &xf_targets[_i];
    char folder[128], path[512];
    snprintf(folder, sizeof folder, "tests/fuzz/corpus/%s", target->name);
    DIR *files = opendir(folder);
    ck_assert_msg(files != NULL, "%s is missing (tests run from the repository's root)", folder);
    int count = 0;
    for (const struct dirent *entry; (entry = readdir(files)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        run_file(target, path);
        count++;
    }
    closedir(files);
    ck_assert_msg(count > 0, "%s is empty", folder);
}
END_TEST

XN_SUITE(fuzz_corpus) {
    Suite *s = suite_create("fuzz_corpus");
    TCase *t = xn_test_case(s, "corpus", 120);
    int count = 0;
    while (xf_targets[count].name)
        count++;
    tcase_add_loop_test(t, corpus_runs, 0, count);
    return s;
}

/* --weights-dir in process, on fake devices: what is kept, what is skipped, what others do in the
 * folder, failures. */
#include "engine/engine_bench.h"
#include "fault/fault.h"
#include "file.h"
#include "weights_dir.h"
#include "xn_weights_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PATIENCE_NS (40 * XN_NS_PER_S) /* for what must come; under sanitizers all is slow */
#define POLL_MS 20

/* ---- the disk: these stand in for the C library's, write down their order, and fail on demand */

static struct disk {
    atomic_bool armed;
    char calls[64]; /* f: fsync of a file, F: of a folder, r: a rename, u: a removal */
    atomic_int count;
    int fails; /* which call does; -1: none */
} disk;

static bool disk_call(char kind) {
    if (!atomic_load(&disk.armed))
        return true;
    int n = atomic_fetch_add(&disk.count, 1);
    if (n < (int)sizeof disk.calls - 1)
        disk.calls[n] = kind;
    errno = EIO;
    return n != disk.fails;
}

int fsync(int fd) {
    struct stat info;
    bool is_folder = !fstat(fd, &info) && S_ISDIR(info.st_mode);
    return disk_call(is_folder ? 'F' : 'f') ? (int)syscall(SYS_fsync, fd) : -1;
}

int renameat(int from_fd, const char *from, int to_fd, const char *to) {
    return disk_call('r') ? (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, 0) : -1;
}

int unlinkat(int fd, const char *file, int flags) {
    return disk_call('u') ? (int)syscall(SYS_unlinkat, fd, file, flags) : -1;
}

/* Files may have been changed at one time alone. */
static atomic_bool times_stand;

static int stop_time(int failed, struct stat *info) {
    if (!failed && atomic_load(&times_stand))
        info->st_ctim = (struct timespec){0};
    return failed;
}

int fstat(int fd, struct stat *info) {
    return stop_time((int)syscall(SYS_newfstatat, fd, "", info, AT_EMPTY_PATH), info);
}

int fstatat(int fd, const char *file, struct stat *info, int flags) {
    return stop_time((int)syscall(SYS_newfstatat, fd, file, info, flags), info);
}

static void disk_arm(int fails) {
    memset(disk.calls, 0, sizeof disk.calls);
    atomic_store(&disk.count, 0);
    disk.fails = fails;
    atomic_store(&disk.armed, true);
}

static const char *disk_disarm(void) {
    atomic_store(&disk.armed, false);
    return disk.calls;
}

static char folder[64];

static void make_folder(void) {
    snprintf(folder, sizeof folder, "/tmp/xnord-weights-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

/* The path of a file in the folder; good until the third call from now. */
static const char *in_folder(const char *file) {
    static _Thread_local char paths[4][400];
    static _Thread_local int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, file);
    return path;
}

/* Calls visit for all that is in the folder, temporaries too. */
static int each_file(void (*visit)(const char *file, void *context), void *context) {
    int count = 0;
    DIR *stream = opendir(folder);
    ck_assert_ptr_nonnull(stream);
    for (const struct dirent *e; (e = readdir(stream));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) {
            visit(e->d_name, context);
            count++;
        }
    closedir(stream);
    return count;
}

static void visit_remove(const char *file, void *context) {
    (void)context;
    if (unlink(in_folder(file)))
        rmdir(in_folder(file));
}

static void visit_temporary(const char *file, void *context) {
    *(int *)context += !strncmp(file, ".xnord-", 7);
}

static int temporaries(void) {
    int count = 0;
    each_file(visit_temporary, &count);
    return count;
}

static void remove_folder(void) {
    each_file(visit_remove, NULL);
    rmdir(folder);
}

static void nap(void) {
    const struct timespec time = {0, 2000000};
    nanosleep(&time, NULL);
}

/* ---- a daemon's part ---- */

typedef struct side {
    xn_metrics *metrics;
    xn_device *gpu;
    xn_store *store;
    xn_weights_dir *dir;
    xn_store_limits limits;
    xn_weights_dir_options options;
    atomic_bool loaded;
} side;

static void note_loaded(void *context) {
    atomic_store(&((side *)context)->loaded, true);
}

static void side_init(side *s) {
    *s = (side){.limits = {100, 1 << 20, 0}};
    s->options = (xn_weights_dir_options){.path = folder,
                                          .poll_ms = POLL_MS,
                                          .max_elements = 1 << 20,
                                          .loaded = note_loaded,
                                          .context = s};
}

static void side_prepare(side *s) {
    const char *ids[1] = {"cuda:0"};
    ck_assert_int_eq(xn_metrics_create(ids, 1, "test", "cuda", &s->metrics, NULL), XN_OK);
    ck_assert_int_eq(fake_gpu.device_open(0, &s->gpu, NULL), XN_OK);
    const xn_store_device device = {&fake_gpu, s->gpu};
    ck_assert_int_eq(xn_store_create(&device, 1, &s->limits, s->metrics, &s->store, NULL), XN_OK);
    s->options.max_weights = s->limits.max_weights;
    atomic_store(&s->loaded, false);
}

static xn_status side_try_open(side *s, xn_error *error) {
    side_prepare(s);
    return xn_weights_dir_open(&s->options, s->store, s->metrics, &s->dir, error);
}

static void wait_loaded(side *s) {
    int64_t end = xn_now_ns() + PATIENCE_NS;
    while (!atomic_load(&s->loaded) && xn_now_ns() < end)
        nap();
    ck_assert(atomic_load(&s->loaded));
}

static void side_open(side *s) {
    xn_error error = {0};
    ck_assert_msg(side_try_open(s, &error) == XN_OK, "%s", error.message);
    wait_loaded(s);
}

static void side_close(side *s) {
    if (!s->store)
        return;
    xn_weights_dir_close(s->dir);
    s->dir = NULL;
    xn_store_free(s->store);
    s->store = NULL;
    fake_gpu.device_close(s->gpu);
    xn_metrics_free(s->metrics);
}

/* Of each test, over an empty folder; it opens it. */
static side own;

static void begin(void) {
    fake_reset();
    make_folder();
    side_init(&own);
}

static void end(void) {
    side_close(&own);
    xn_mem_set_hook(NULL, NULL);
    remove_folder();
    fake_expect_all_freed();
}

static int64_t skipped(const side *s) {
    return xn_metrics_gauge(s->metrics, XN_GAUGE_WEIGHTS_DIR_SKIPPED);
}

/* A counter, from the page. */
static double counter(const side *s, const char *name) {
    char line[80];
    size_t length;
    char *page = xn_metrics_render(s->metrics, &length);
    snprintf(line, sizeof line, "\n%s ", name);
    const char *at = page ? strstr(page, line) : NULL;
    ck_assert_msg(at != NULL, "no %s", name);
    double value = strtod(at + strlen(line), NULL);
    xn_mem_free(page);
    return value;
}

static double loads(const side *s) {
    return counter(s, "xnord_weights_dir_loads_total");
}

/* ---- weights ---- */

static xn_status put_values(side *s, const char *name, const float *values, int64_t count,
                            xn_error *error) {
    xn_tensor tensor = {
        XN_FP32, {4, {count, 1, 1, 1}}, count, (size_t)count * sizeof *values, values};
    bool created;
    return xn_weights_dir_put(s->dir, name, &tensor, NULL, NULL, &created, NULL, error);
}

static void put(side *s, const char *name, float value) {
    xn_error error = {0};
    xn_status status = put_values(s, name, &value, 1, &error);
    ck_assert_msg(status == XN_OK, "%s: %s", name, error.message);
}

/* The value that the name has in the store, 0 where there is none. */
static float value_of(const side *s, const char *name) {
    xn_asset *asset = NULL;
    if (xn_store_get(s->store, name, &asset, NULL))
        return 0;
    float value = xn_asset_weights(asset)->real[0];
    xn_asset_release(asset);
    return value;
}

static bool becomes(const side *s, const char *name, float value) {
    for (int64_t end_ns = xn_now_ns() + PATIENCE_NS; xn_now_ns() < end_ns; nap())
        if (value_of(s, name) == value)
            return true;
    return false;
}

static bool skipped_becomes(const side *s, int64_t count) {
    for (int64_t end_ns = xn_now_ns() + PATIENCE_NS; xn_now_ns() < end_ns; nap())
        if (skipped(s) == count)
            return true;
    return false;
}

/* ---- files made by hand ---- */

typedef struct contents {
    unsigned char bytes[XN_WEIGHTS_FILE_HEAD_BYTES + 64];
    size_t length;
} contents;

static contents contents_of(float value) {
    contents c;
    xn_tensor tensor = {XN_FP32, {4, {1, 1, 1, 1}}, 1, sizeof value, &value};
    xn_weights_file_head head;
    xn_weights_file_begin(&tensor, NULL, NULL, &head);
    memcpy(c.bytes, head.bytes, head.length);
    memcpy(c.bytes + head.length, &value, sizeof value);
    c.length = head.length + sizeof value;
    return c;
}

static void write_file(const char *file, const void *bytes, size_t length) {
    int fd = open(in_folder(file), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666);
    ck_assert_msg(fd >= 0 && write(fd, bytes, length) == (ssize_t)length, "%s: %s", file,
                  strerror(errno));
    close(fd);
}

/* As another daemon does. */
static void move_in(const char *file, float value) {
    contents c = contents_of(value);
    write_file("moving", c.bytes, c.length);
    ck_assert_int_eq(rename(in_folder("moving"), in_folder(file)), 0);
}

/* The value in the file of that name, 0 where there is none; anything else is a failure. */
static float value_on_disk(const char *name) {
    char file[NAME_MAX];
    unsigned char bytes[4096];
    const xn_proto_limits limits = {1 << 20};
    xn_weights_request r;
    xn_error error = {0};
    float value;
    snprintf(file, sizeof file, "%s" XN_WEIGHTS_SUFFIX, name);
    int fd = open(in_folder(file), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, bytes, sizeof bytes);
    close(fd);
    ck_assert_int_gt(got, 0);
    xn_status status = xn_weights_file_parse(bytes, (size_t)got, &limits, &r, &error);
    ck_assert_msg(status == XN_OK, "%s: %s", file, error.message);
    memcpy(&value, r.weights.data, sizeof value);
    return value;
}

/* ---- what survives ---- */

static void expect_same_vector(const float *kept, const float *given, size_t count) {
    ck_assert_int_eq(kept != NULL, given != NULL);
    if (given)
        ck_assert(!memcmp(kept, given, count * sizeof *given));
}

START_TEST(weights_survive) {
    static const xn_datatype datatypes[] = {XN_FP32, XN_FP16, XN_BF16, XN_INT8, XN_UINT8, XN_BOOL};
    enum { DATATYPES = sizeof datatypes / sizeof *datatypes, O = 3 };
    static const unsigned char raw[O * 7 * 4] = {0x3f, 1, 0, 0x3c, 0x80, 0xff, 7};
    static const float scale[O] = {1, 2, 3}, bias[O] = {-1, 0, 5};
    xn_tensor factor = {XN_FP32, {1, {O}}, O, sizeof scale, scale};
    xn_tensor offset = {XN_FP32, {1, {O}}, O, sizeof bias, bias};
    xn_store_item items[DATATYPES * 4], after;
    side_open(&own);
    for (int i = 0; i < DATATYPES * 4; i++) {
        char name[32];
        bool created = false;
        size_t size = xn_datatype_bytes(datatypes[i % DATATYPES]);
        xn_tensor t = {datatypes[i % DATATYPES], {4, {O, 1, 1, 7}}, O * 7, O * 7 * size, raw};
        snprintf(name, sizeof name, "w%d", i);
        ck_assert_int_eq(xn_weights_dir_put(own.dir, name, &t, i / DATATYPES & 1 ? &factor : NULL,
                                            i / DATATYPES & 2 ? &offset : NULL, &created, &items[i],
                                            NULL),
                         XN_OK);
        ck_assert(created);
    }
    side_close(&own);
    side_open(&own);
    ck_assert(loads(&own) == DATATYPES * 4);
    for (int i = 0; i < DATATYPES * 4; i++) {
        xn_asset *asset = NULL;
        ck_assert_int_eq(xn_store_item_get(own.store, items[i].name, &after, NULL), XN_OK);
        ck_assert_uint_eq(after.hash, items[i].hash);
        ck_assert_int_eq(after.datatype, items[i].datatype);
        ck_assert(!memcmp(after.dims, items[i].dims, sizeof after.dims));
        ck_assert_int_eq(xn_store_get(own.store, items[i].name, &asset, NULL), XN_OK);
        expect_same_vector(xn_asset_weights(asset)->scale, i / DATATYPES & 1 ? scale : NULL, O);
        expect_same_vector(xn_asset_weights(asset)->bias, i / DATATYPES & 2 ? bias : NULL, O);
        xn_asset_release(asset);
    }
}
END_TEST

START_TEST(replaced_and_deleted_ones_stay_so) {
    xn_error error = {0};
    char longest[XN_PROTO_MAX_NAME + 1];
    memset(longest, 'n', sizeof longest);
    longest[XN_PROTO_MAX_NAME] = '\0';
    side_open(&own);
    put(&own, "a", 1);
    put(&own, "a", 2);
    put(&own, "b", 3);
    put(&own, "..hidden", 4);
    put(&own, longest, 5);
    ck_assert_int_eq(xn_weights_dir_delete(own.dir, "b", &error), XN_OK);
    ck_assert_int_eq(xn_weights_dir_delete(own.dir, "b", &error), XN_ERR_NOT_FOUND);
    ck_assert_int_eq(error.status, XN_ERR_NOT_FOUND);
    ck_assert(value_of(&own, "b") == 0 && value_on_disk("b") == 0);
    ck_assert(loads(&own) == 0); /* what it wrote itself it does not read */
    side_close(&own);
    side_open(&own);
    ck_assert(value_of(&own, "a") == 2 && value_of(&own, "b") == 0 &&
              value_of(&own, "..hidden") == 4);
    ck_assert(value_of(&own, longest) == 5);
    ck_assert(loads(&own) == 3 && skipped(&own) == 0 && temporaries() == 0);
}
END_TEST

/* ---- what is skipped ---- */

/* One file for each length that a writer without our care could have left. */
START_TEST(every_torn_file_is_skipped) {
    contents c = contents_of(7);
    for (size_t length = 0; length < c.length; length++) {
        char file[48];
        snprintf(file, sizeof file, "t%03zu" XN_WEIGHTS_SUFFIX, length);
        write_file(file, c.bytes, length);
    }
    for (size_t i = 0; i < c.length; i++) {
        char file[48];
        contents flipped = c;
        flipped.bytes[i] ^= 0x10;
        snprintf(file, sizeof file, "f%03zu" XN_WEIGHTS_SUFFIX, i);
        write_file(file, flipped.bytes, flipped.length);
    }
    write_file("whole" XN_WEIGHTS_SUFFIX, c.bytes, c.length);
    side_open(&own);
    ck_assert_int_eq(skipped(&own), 2 * (int64_t)c.length);
    ck_assert(counter(&own, "xnord_weights_dir_errors_total") == 2.0 * (double)c.length);
    ck_assert_int_eq(xn_metrics_gauge(own.metrics, XN_GAUGE_WEIGHTS), 1);
    ck_assert(value_of(&own, "whole") == 7);
}
END_TEST

static void make_large(void) {
    static float many[400000];
    xn_tensor tensor = {XN_FP32, {4, {400000, 1, 1, 1}}, 400000, sizeof many, many};
    xn_weights_file_head head;
    xn_weights_file_begin(&tensor, NULL, NULL, &head);
    FILE *file = fopen(in_folder("large" XN_WEIGHTS_SUFFIX), "w");
    ck_assert(file && fwrite(head.bytes, head.length, 1, file) == 1 &&
              fwrite(many, sizeof many, 1, file) == 1 && !fclose(file));
}

START_TEST(odd_files_are_skipped_and_never_fatal) {
    contents c = contents_of(1);
    write_file("good" XN_WEIGHTS_SUFFIX, c.bytes, c.length);
    write_file("wrong name" XN_WEIGHTS_SUFFIX, c.bytes, c.length);
    write_file("foreign" XN_WEIGHTS_SUFFIX, "\2\0\0\0\0\0\0\0{}", 10);
    make_large(); /* over max-weights-bytes */
    ck_assert_int_eq(mkfifo(in_folder("fifo" XN_WEIGHTS_SUFFIX), 0666), 0);
    ck_assert_int_eq(mkdir(in_folder("folder" XN_WEIGHTS_SUFFIX), 0777), 0);
    ck_assert_int_eq(symlink("loop" XN_WEIGHTS_SUFFIX, in_folder("loop" XN_WEIGHTS_SUFFIX)), 0);
    ck_assert_int_eq(symlink("nowhere", in_folder("dangling" XN_WEIGHTS_SUFFIX)), 0);
    ck_assert_int_eq(symlink("/dev/zero", in_folder("device" XN_WEIGHTS_SUFFIX)), 0);
    ck_assert_int_eq(symlink("good" XN_WEIGHTS_SUFFIX, in_folder("link" XN_WEIGHTS_SUFFIX)), 0);
    write_file("README", "hello\n", 6); /* these are not even reported */
    write_file(".nfs0001", "x", 1);
    write_file(XN_WEIGHTS_SUFFIX, c.bytes, c.length);
    side_open(&own);
    ck_assert_int_eq(skipped(&own), 8);
    ck_assert_int_eq(xn_metrics_gauge(own.metrics, XN_GAUGE_WEIGHTS), 2);
    ck_assert(value_of(&own, "good") == 1 && value_of(&own, "link") == 1);
    /* A PUT takes the place of whatever has the name, but for a folder. */
    xn_error error = {0};
    float value = 2;
    put(&own, "fifo", 2);
    put(&own, "foreign", 2);
    put(&own, "loop", 2);
    put(&own, "link", 2);
    ck_assert_int_eq(put_values(&own, "folder", &value, 1, &error), XN_ERR_UNSUPPORTED);
    ck_assert_msg(strstr(error.message, "is a folder"), "%s", error.message);
    ck_assert(value_on_disk("good") == 1); /* not through the link */
    ck_assert_int_eq(skipped(&own), 5);
    ck_assert_int_eq(temporaries(), 0);
    /* What is not ours is not deleted, and goes on being skipped. */
    ck_assert_int_eq(xn_weights_dir_delete(own.dir, "README", &error), XN_ERR_NOT_FOUND);
    ck_assert_int_eq(xn_weights_dir_delete(own.dir, "device", &error), XN_ERR_NOT_FOUND);
    ck_assert_int_eq(xn_weights_dir_delete(own.dir, "large", &error), XN_OK); /* ours */
    ck_assert_int_eq(access(in_folder("README"), F_OK), 0);
    ck_assert_int_eq(skipped(&own), 4);
    /* Nor is a folder that came where weights were, in one step; they stay. */
    ck_assert_int_eq(mkdir(in_folder("aside"), 0777), 0);
    ck_assert_int_eq(syscall(SYS_renameat2, AT_FDCWD, in_folder("aside"), AT_FDCWD,
                             in_folder("good" XN_WEIGHTS_SUFFIX), RENAME_EXCHANGE),
                     0);
    ck_assert(skipped_becomes(&own, 5));
    ck_assert_int_eq(xn_weights_dir_delete(own.dir, "good", &error), XN_ERR_UNSUPPORTED);
    ck_assert(value_of(&own, "good") == 1);
    ck_assert_int_eq(skipped(&own), 5);
}
END_TEST

/* Root reads everything, so that part is for others, with root's help. */
START_TEST(permissions) {
    xn_error error = {0};
    contents c = contents_of(1);
    bool root = geteuid() == 0;
    write_file("secret" XN_WEIGHTS_SUFFIX, c.bytes, c.length);
    ck_assert_int_eq(chmod(in_folder("secret" XN_WEIGHTS_SUFFIX), 0), 0);
    if (root) {
        ck_assert_int_eq(chown(folder, 65534, 65534), 0);
        ck_assert_int_eq(seteuid(65534), 0);
    }
    move_in("old" XN_WEIGHTS_SUFFIX, 2);
    ck_assert_int_eq(chmod(folder, 0555), 0); /* it cannot be written, which stops no start */
    side_open(&own);
    ck_assert_int_eq(skipped(&own), 1);
    ck_assert(value_of(&own, "old") == 2);
    float value = 3;
    ck_assert_int_eq(put_values(&own, "new", &value, 1, &error), XN_ERR_IO);
    ck_assert_msg(strstr(error.message, "--weights-dir") && strstr(error.message, strerror(EACCES)),
                  "%s", error.message);
    ck_assert(value_of(&own, "new") == 0);
    ck_assert_int_eq(xn_weights_dir_delete(own.dir, "old", &error), XN_ERR_IO);
    ck_assert(value_of(&own, "old") == 2);
    ck_assert_int_eq(chmod(folder, 0777), 0);
    put(&own, "new", 4);
    ck_assert_int_eq(chmod(folder, 0555), 0);
    ck_assert_int_eq(xn_weights_dir_delete(own.dir, "new", &error), XN_ERR_IO);
    ck_assert(value_of(&own, "new") == 4); /* the file is there, so the weights are */
    ck_assert_int_eq(chmod(folder, 0777), 0);
    if (root)
        ck_assert_int_eq(seteuid(0), 0);
    /* Its time of change stays, yet it is noticed that it may be read now. */
    ck_assert_int_eq(chmod(in_folder("secret" XN_WEIGHTS_SUFFIX), 0444), 0);
    ck_assert(becomes(&own, "secret", 1));
    ck_assert(skipped_becomes(&own, 0));
}
END_TEST

START_TEST(limits_hold_in_the_order_of_names) {
    contents c = contents_of(1);
    write_file("b" XN_WEIGHTS_SUFFIX, c.bytes, c.length);
    write_file("a-b" XN_WEIGHTS_SUFFIX, c.bytes, c.length); /* '-' is before '.' */
    write_file("a" XN_WEIGHTS_SUFFIX, c.bytes, c.length);
    own.limits.max_weights = 1;
    side_open(&own);
    ck_assert(value_of(&own, "a") == 1 && value_of(&own, "a-b") == 0);
    ck_assert_int_eq(skipped(&own), 2);
    /* Once there is room, what had none is taken. */
    ck_assert_int_eq(xn_weights_dir_delete(own.dir, "a", NULL), XN_OK);
    ck_assert(skipped_becomes(&own, 1));
    ck_assert(value_of(&own, "a-b") + value_of(&own, "b") == 1);
    int64_t one = xn_metrics_gauge(own.metrics, XN_GAUGE_WEIGHTS_BYTES);
    side_close(&own);

    own.limits.max_weights = 100; /* by bytes: the second does not fit any more */
    own.limits.max_weights_bytes = one + one / 2;
    side_open(&own);
    ck_assert_int_eq(xn_metrics_gauge(own.metrics, XN_GAUGE_WEIGHTS), 1);
    ck_assert_int_eq(skipped(&own), 1);
    ck_assert(value_of(&own, "a-b") == 1);
}
END_TEST

START_TEST(left_over_temporaries_go_when_they_are_old) {
    write_file(".xnord-0123456789abcdef.tmp", "x", 1);
    write_file(".xnord-fedcba9876543210.tmp", "x", 1);
    struct timespec old[2] = {{0, UTIME_NOW}, {0, 0}};
    clock_gettime(CLOCK_REALTIME, &old[1]);
    old[1].tv_sec -= 3600;
    ck_assert_int_eq(utimensat(AT_FDCWD, in_folder(".xnord-0123456789abcdef.tmp"), old, 0), 0);
    side_open(&own);
    ck_assert_int_eq(access(in_folder(".xnord-0123456789abcdef.tmp"), F_OK), -1);
    ck_assert_int_eq(access(in_folder(".xnord-fedcba9876543210.tmp"), F_OK), 0);
    ck_assert(skipped_becomes(&own, 0));
}
END_TEST

/* ---- what others do ---- */

START_TEST(changes_of_others_are_followed) {
    contents c = contents_of(4);
    side_open(&own);
    put(&own, "mine", 1);
    move_in("theirs" XN_WEIGHTS_SUFFIX, 2);
    ck_assert(becomes(&own, "theirs", 2));
    move_in("mine" XN_WEIGHTS_SUFFIX, 3); /* replaced */
    ck_assert(becomes(&own, "mine", 3));
    write_file("theirs" XN_WEIGHTS_SUFFIX, c.bytes, c.length); /* in place */
    ck_assert(becomes(&own, "theirs", 4));
    ck_assert_int_eq(
        rename(in_folder("mine" XN_WEIGHTS_SUFFIX), in_folder("moved" XN_WEIGHTS_SUFFIX)), 0);
    ck_assert(becomes(&own, "moved", 3) && becomes(&own, "mine", 0));
    ck_assert_int_eq(unlink(in_folder("theirs" XN_WEIGHTS_SUFFIX)), 0);
    ck_assert(becomes(&own, "theirs", 0));
    /* A file that turns bad does not take the weights away. */
    write_file("moved" XN_WEIGHTS_SUFFIX, c.bytes, c.length - 1);
    ck_assert(skipped_becomes(&own, 1));
    ck_assert(value_of(&own, "moved") == 3);
    put(&own, "moved", 5);
    ck_assert(skipped_becomes(&own, 0));
    ck_assert(value_on_disk("moved") == 5);
    /* What another put there and this one may not have met yet can be deleted and replaced. */
    move_in("fresh" XN_WEIGHTS_SUFFIX, 6);
    ck_assert_int_eq(xn_weights_dir_delete(own.dir, "fresh", NULL), XN_OK);
    ck_assert_int_eq(access(in_folder("fresh" XN_WEIGHTS_SUFFIX), F_OK), -1);
    ck_assert(becomes(&own, "fresh", 0));
}
END_TEST

static void set_modified(const char *file, const struct timespec *modified) {
    const struct timespec times[2] = {{0, UTIME_OMIT}, *modified};
    ck_assert_int_eq(utimensat(AT_FDCWD, in_folder(file), times, 0), 0);
}

/* Waits until all of the folder was looked at after this call. */
static void wait_for_a_look(side *s) {
    static float value = 100;
    for (int i = 0; i < 2; i++) { /* the first may have been met by the look that was going on */
        move_in("zz" XN_WEIGHTS_SUFFIX, ++value);
        ck_assert(becomes(s, "zz", value));
    }
}

/* All bytes that this process has read. */
static long long bytes_read(void) {
    long long bytes = -1;
    FILE *file = fopen("/proc/self/io", "r");
    ck_assert(file && fscanf(file, "rchar: %lld", &bytes) == 1 && !fclose(file));
    return bytes;
}

START_TEST(unchanged_files_are_not_read_again) {
    static float many[50000] = {1};
    side_open(&own);
    ck_assert_int_eq(put_values(&own, "w", many, 50000, NULL), XN_OK);
    put(&own, "w0", 1);
    wait_for_a_look(&own);
    const long long before = bytes_read();
    wait_for_a_look(&own);
    wait_for_a_look(&own);
    ck_assert_int_lt(bytes_read() - before, (long long)sizeof many);
}
END_TEST

/* With all else equal, an older file that is replaced by another inode, another size or another
 * time of change is another file: of the first seconds' comparison the last case is free too. */
START_TEST(files_are_known_by_inode_size_and_time) {
    const xn_file_id id = {1, 2, 3, 4};
    const xn_file_id others[4] = {{9, 2, 3, 4}, {1, 9, 3, 4}, {1, 2, 9, 4}, {1, 2, 3, 9}};
    ck_assert(xn_file_id_equal(&id, &id) && !xn_file_id_equal(&id, &others[_i]));
    if (_i)
        return;
    /* Written in place, same size, and the time of modification put back. */
    contents first = contents_of(1), second = contents_of(2);
    struct stat before, after;
    xn_file_id known, now;
    side_open(&own);
    write_file("w" XN_WEIGHTS_SUFFIX, first.bytes, first.length);
    ck_assert(becomes(&own, "w", 1));
    ck_assert_int_eq(stat(in_folder("w" XN_WEIGHTS_SUFFIX), &before), 0);
    known = xn_file_id_of(&before);
    nap();
    nap();
    nap();
    int fd = open(in_folder("w" XN_WEIGHTS_SUFFIX), O_WRONLY | O_CLOEXEC);
    ck_assert(fd >= 0 && write(fd, second.bytes, second.length) == (ssize_t)second.length);
    close(fd);
    set_modified("w" XN_WEIGHTS_SUFFIX, &before.st_mtim);
    ck_assert_int_eq(stat(in_folder("w" XN_WEIGHTS_SUFFIX), &after), 0);
    now = xn_file_id_of(&after);
    ck_assert(after.st_ino == before.st_ino && after.st_size == before.st_size &&
              after.st_mtim.tv_nsec == before.st_mtim.tv_nsec);
    ck_assert(!xn_file_id_equal(&known, &now));
    ck_assert(becomes(&own, "w", 2));
}
END_TEST

/* Times have a grain, here of an hour: a file written in place looks the same. Its header tells, in
 * the first seconds. */
START_TEST(young_files_that_look_the_same_are_told_apart) {
    contents first = contents_of(1), second = contents_of(2);
    side_open(&own);
    atomic_store(&times_stand, true);
    write_file("w" XN_WEIGHTS_SUFFIX, first.bytes, first.length);
    ck_assert(becomes(&own, "w", 1));
    int fd = open(in_folder("w" XN_WEIGHTS_SUFFIX), O_WRONLY | O_CLOEXEC);
    ck_assert(fd >= 0 && write(fd, second.bytes, second.length) == (ssize_t)second.length);
    close(fd);
    ck_assert(becomes(&own, "w", 2));
    atomic_store(&times_stand, false);
}
END_TEST

static struct {
    atomic_size_t bytes; /* the allocation for the file: when another is written in its place */
    contents other;
} meddling;

static bool meddle(void *context, size_t bytes) {
    (void)context;
    if (bytes && atomic_compare_exchange_strong(&meddling.bytes, &bytes, 0))
        write_file("w" XN_WEIGHTS_SUFFIX, meddling.other.bytes, meddling.other.length);
    return true;
}

/* Between the look at it and its last byte: nothing of what was read is taken. */
START_TEST(a_file_written_while_it_is_read) {
    meddling.other = contents_of(2);
    meddling.other.bytes[meddling.other.length++] = 0; /* another size; what follows is wrong */
    xn_mem_set_hook(meddle, NULL);
    side_open(&own);
    atomic_store(&meddling.bytes, meddling.other.length - 1);
    move_in("w" XN_WEIGHTS_SUFFIX, 1);
    ck_assert(skipped_becomes(&own, 1));
    ck_assert(!atomic_load(&meddling.bytes) && value_of(&own, "w") == 0);
    move_in("w" XN_WEIGHTS_SUFFIX, 3);
    ck_assert(becomes(&own, "w", 3));
    side_close(&own);
    xn_mem_set_hook(NULL, NULL);
}
END_TEST

/* As in a mount of a ConfigMap: files are links into a folder that a link names, which is exchanged
 * for another. Links that leave the folder are refused, hard links are files like others. */
START_TEST(links_that_stay_inside_are_followed) {
    contents first = contents_of(1), second = contents_of(2);
    char outside[80], absolute[120];
    side_open(&own);
    snprintf(outside, sizeof outside, "%s.outside", folder);
    ck_assert_int_eq(mkdir(in_folder("..first"), 0777), 0);
    ck_assert_int_eq(mkdir(in_folder("..second"), 0777), 0);
    write_file("..first/w" XN_WEIGHTS_SUFFIX, first.bytes, first.length);
    write_file("..second/w" XN_WEIGHTS_SUFFIX, second.bytes, second.length);
    ck_assert_int_eq(symlink("..first", in_folder("..data")), 0);
    ck_assert_int_eq(symlink("..data/w" XN_WEIGHTS_SUFFIX, in_folder("w" XN_WEIGHTS_SUFFIX)), 0);
    ck_assert(becomes(&own, "w", 1));
    ck_assert_int_eq(symlink("..second", in_folder("..data_tmp")), 0);
    ck_assert_int_eq(rename(in_folder("..data_tmp"), in_folder("..data")), 0);
    ck_assert(becomes(&own, "w", 2));

    ck_assert_int_eq(
        link(in_folder("..first/w" XN_WEIGHTS_SUFFIX), in_folder("hard" XN_WEIGHTS_SUFFIX)), 0);
    ck_assert(becomes(&own, "hard", 1));
    ck_assert_int_eq(skipped(&own), 0);

    ck_assert_int_eq(rename(in_folder("..first/w" XN_WEIGHTS_SUFFIX), outside), 0);
    snprintf(absolute, sizeof absolute, "../%s", strrchr(outside, '/') + 1);
    ck_assert_int_eq(symlink(absolute, in_folder("leaves" XN_WEIGHTS_SUFFIX)), 0);
    ck_assert(skipped_becomes(&own, 1));
    ck_assert_int_eq(symlink(outside, in_folder("absolute" XN_WEIGHTS_SUFFIX)), 0);
    ck_assert(skipped_becomes(&own, 2));
    ck_assert(value_of(&own, "leaves") == 0 && value_of(&own, "absolute") == 0);
    ck_assert_int_eq(unlink(in_folder("leaves" XN_WEIGHTS_SUFFIX)), 0);
    ck_assert_int_eq(unlink(in_folder("absolute" XN_WEIGHTS_SUFFIX)), 0);
    ck_assert(skipped_becomes(&own, 0));
    unlink(outside);
    unlink(in_folder("..second/w" XN_WEIGHTS_SUFFIX));
}
END_TEST

START_TEST(a_folder_that_goes_away) {
    xn_error error = {0};
    char aside[80];
    float value = 2;
    side_open(&own);
    put(&own, "w", 1);
    snprintf(aside, sizeof aside, "%s.moved", folder);
    ck_assert_int_eq(rename(folder, aside), 0);
    ck_assert_int_eq(put_values(&own, "w", &value, 1, &error), XN_ERR_IO);
    ck_assert_msg(strstr(error.message, "--weights-dir"), "%s", error.message);
    ck_assert_int_eq(xn_weights_dir_delete(own.dir, "w", &error), XN_ERR_IO);
    ck_assert_int_eq(mkdir(folder, 0777), 0); /* an empty one in its place deletes nothing */
    ck_assert_int_eq(put_values(&own, "w", &value, 1, &error), XN_ERR_IO);
    ck_assert_msg(strstr(error.message, "another folder"), "%s", error.message);
    double errors = counter(&own, "xnord_weights_dir_errors_total");
    ck_assert(errors >= 3 && value_of(&own, "w") == 1);
    ck_assert_int_eq(rmdir(folder), 0); /* the PUT above left nothing there */
    ck_assert_int_eq(rename(aside, folder), 0);
    put(&own, "w", 2);
    ck_assert(value_on_disk("w") == 2 && temporaries() == 0);
}
END_TEST

/* Without a descriptor for the folder its changes are not seen, which is reported. */
START_TEST(a_folder_that_cannot_be_listed) {
    struct rlimit limit, none;
    side_open(&own);
    put(&own, "w", 1);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    for (int i = 0; i < 1000 && counter(&own, "xnord_weights_dir_errors_total") < 1; i++)
        nap();
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert(counter(&own, "xnord_weights_dir_errors_total") == 1 && value_of(&own, "w") == 1);
    move_in("w" XN_WEIGHTS_SUFFIX, 2);
    ck_assert(becomes(&own, "w", 2));
}
END_TEST

/* ---- failures ---- */

START_TEST(a_full_disk_leaves_everything_as_it_was) {
    xn_error error = {0};
    static float many[4096] = {9};
    struct rlimit limit, small;
    signal(SIGXFSZ, SIG_IGN); /* as the daemon does */
    side_open(&own);
    put(&own, "w", 1);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    for (rlim_t room = 0; room < 16384; room += 1000) {
        small = limit;
        small.rlim_cur = room;
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
        xn_status status = put_values(&own, "w", many, 4096, &error);
        xn_status fresh = put_values(&own, "new", many, 4096, NULL);
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
        ck_assert_int_eq(status, XN_ERR_IO);
        ck_assert_int_eq(fresh, XN_ERR_IO);
        ck_assert_int_eq(error.status, XN_ERR_IO);
        ck_assert(value_of(&own, "w") == 1 && value_on_disk("w") == 1);
        ck_assert(value_of(&own, "new") == 0 && value_on_disk("new") == 0);
        ck_assert_int_eq(temporaries(), 0);
    }
    ck_assert(counter(&own, "xnord_weights_dir_errors_total") == 34);
    ck_assert_int_eq(put_values(&own, "w", many, 4096, NULL), XN_OK);
}
END_TEST

/* Before a change is answered, its file is on disk, then has its name, and the name is on disk. */
START_TEST(what_is_answered_is_on_disk) {
    side_open(&own);
    disk_arm(-1);
    put(&own, "w", 1);
    ck_assert_str_eq(disk_disarm(), "frF");
    disk_arm(-1);
    put(&own, "w", 2);
    ck_assert_str_eq(disk_disarm(), "frF");
    disk_arm(-1);
    ck_assert_int_eq(xn_weights_dir_delete(own.dir, "w", NULL), XN_OK);
    ck_assert_str_eq(disk_disarm(), "uF");
}
END_TEST

/* A disk that fails at each step: before the rename nothing has changed, after it everything has,
 * and the answer is an error either way. */
START_TEST(a_disk_that_fails) {
    xn_error error = {0};
    side_open(&own);
    for (int fails = 0; fails < 3; fails++) {
        float value = 2;
        put(&own, "w", 1);
        disk_arm(fails);
        ck_assert_int_eq(put_values(&own, "w", &value, 1, &error), XN_ERR_IO);
        disk_disarm();
        ck_assert_int_eq(error.status, XN_ERR_IO);
        ck_assert_msg(strstr(error.message, strerror(EIO)), "%s", error.message);
        ck_assert(value_of(&own, "w") == (fails == 2 ? 2 : 1));
        ck_assert(value_on_disk("w") == value_of(&own, "w"));
        ck_assert_int_eq(temporaries(), 0);
    }
    for (int fails = 0; fails < 2; fails++) {
        put(&own, "w", 1);
        disk_arm(fails);
        ck_assert_int_eq(xn_weights_dir_delete(own.dir, "w", &error), XN_ERR_IO);
        disk_disarm();
        ck_assert(value_of(&own, "w") == (fails == 1 ? 0 : 1));
        ck_assert(value_on_disk("w") == value_of(&own, "w"));
    }
    ck_assert(counter(&own, "xnord_weights_dir_errors_total") == 5);
}
END_TEST

START_TEST(what_is_refused_leaves_no_file) {
    xn_error error = {0};
    float value = 1;
    xn_tensor wrong = {XN_FP32, {1, {1}}, 1, sizeof value, &value};
    bool created;
    side_open(&own);
    own.limits.max_weights = 1;
    side_close(&own);
    side_open(&own);
    put(&own, "a", 1);
    ck_assert_int_eq(put_values(&own, "b", &value, 1, &error), XN_ERR_LIMIT);
    ck_assert_str_eq(error.limit, "max-weights");
    ck_assert_int_eq(xn_weights_dir_put(own.dir, "a", &wrong, NULL, NULL, &created, NULL, &error),
                     XN_ERR_GEOMETRY);
    fake[FAKE_GPU].prepare_failure = XN_ERR_DEVICE_MEMORY;
    value = 2;
    ck_assert_int_eq(put_values(&own, "a", &value, 1, &error), XN_ERR_DEVICE_MEMORY);
    fake[FAKE_GPU].prepare_failure = XN_OK;
    ck_assert(value_on_disk("a") == 1 && value_on_disk("b") == 0 && value_of(&own, "a") == 1);
    ck_assert_int_eq(temporaries(), 0);
}
END_TEST

/* A file system that takes "Edge" and "edge" for one name would lose one of them. */
START_TEST(names_that_differ_in_case_alone) {
    xn_error error = {0};
    float value = 2;
    side_open(&own);
    put(&own, "Edge", 1);
    put(&own, "edge", 1);
    ck_assert_int_eq(xn_weights_dir_delete(own.dir, "edge", &error), XN_OK);
    /* As such a file system does: the other name leads to the same file. */
    ck_assert_int_eq(link(in_folder("Edge" XN_WEIGHTS_SUFFIX), in_folder("edge" XN_WEIGHTS_SUFFIX)),
                     0);
    ck_assert_int_eq(put_values(&own, "edge", &value, 1, &error), XN_ERR_UNSUPPORTED);
    ck_assert_str_eq(error.field, "name");
    ck_assert_int_eq(temporaries(), 0);
    ck_assert_int_eq(unlink(in_folder("edge" XN_WEIGHTS_SUFFIX)), 0);
    put(&own, "Edge", 2);
    ck_assert(value_on_disk("Edge") == 2);
}
END_TEST

/* Each allocation of a start, a load and a put fails in turn: what failed in a load is tried again,
 * a put is done or not done, never half. */
START_TEST(allocations_fail) {
    static xt_fault fault;
    const float value = 2;
    long n = 0, failed = 1;
    move_in("a" XN_WEIGHTS_SUFFIX, 1);
    own.options.poll_ms = 1; /* a file that failed is tried again after ten of them */
    xn_mem_set_hook(xt_fault_hook, &fault);
    for (; failed; n++) {
        xn_error error = {0};
        side_prepare(&own);
        xt_fault_arm(&fault, n, false);
        xn_status status =
            xn_weights_dir_open(&own.options, own.store, own.metrics, &own.dir, &error);
        const bool opened = !status;
        if (opened) {
            ck_assert_msg(becomes(&own, "a", 1), "allocation %ld failed", n);
            status = put_values(&own, "b", &value, 1, &error);
        }
        failed = xt_fault_disarm(&fault);
        ck_assert(!status || (failed && error.status == XN_ERR_NO_MEMORY));
        if (opened) {
            ck_assert(value_of(&own, "b") == (status ? 0 : value));
            ck_assert(value_on_disk("b") == value_of(&own, "b") && temporaries() == 0);
        }
        if (!status)
            ck_assert_int_eq(xn_weights_dir_delete(own.dir, "b", NULL), XN_OK);
        side_close(&own);
        ck_assert_int_lt(n, 500);
    }
    ck_assert_int_gt(n, 20);
    xn_mem_set_hook(NULL, NULL);
}
END_TEST

/* ---- starting ---- */

static xn_status get_status(const char *name) {
    xn_asset *asset = NULL;
    const xn_status status = xn_store_get(own.store, name, &asset, NULL);
    xn_asset_release(asset);
    return status;
}

/* Until all files are read, every name may be one of them; one that is not read yet can be deleted.
 * That the daemon is not ready meanwhile: models_test.c. */
START_TEST(names_while_loading) {
    xn_error error = {0};
    side_open(&own);
    put(&own, "a", 1);
    put(&own, "b", 2);
    side_close(&own);
    fake[FAKE_GPU].prepare_gated = true; /* the first file does not get further */
    side_prepare(&own);
    xn_store_set_loading(own.store, true);
    ck_assert(!xn_weights_dir_open(&own.options, own.store, own.metrics, &own.dir, &error));
    fake_wait(&fake[FAKE_GPU].prepare_entered);
    ck_assert_int_eq(get_status("a"), XN_ERR_LOADING);
    ck_assert_int_eq(get_status("c"), XN_ERR_LOADING);
    ck_assert_int_eq(xn_weights_dir_delete(own.dir, "b", &error), XN_OK);
    fake[FAKE_GPU].prepare_gated = false;
    sem_post(&fake[FAKE_GPU].prepare_gate);
    wait_loaded(&own);
    xn_store_set_loading(own.store, false);
    ck_assert_int_eq(get_status("a"), XN_OK);
    ck_assert_int_eq(get_status("b"), XN_ERR_NOT_FOUND);
}
END_TEST

XN_SUITE(weights_dir) {
    Suite *s = suite_create("weights_dir");
    TCase *t = tcase_create("weights_dir");
    tcase_set_timeout(t, 180);
    tcase_add_checked_fixture(t, begin, end);
    tcase_add_test(t, weights_survive);
    tcase_add_test(t, replaced_and_deleted_ones_stay_so);
    tcase_add_test(t, every_torn_file_is_skipped);
    tcase_add_test(t, odd_files_are_skipped_and_never_fatal);
    tcase_add_test(t, permissions);
    tcase_add_test(t, limits_hold_in_the_order_of_names);
    tcase_add_test(t, left_over_temporaries_go_when_they_are_old);
    tcase_add_test(t, changes_of_others_are_followed);
    tcase_add_test(t, links_that_stay_inside_are_followed);
    tcase_add_test(t, unchanged_files_are_not_read_again);
    tcase_add_loop_test(t, files_are_known_by_inode_size_and_time, 0, 4);
    tcase_add_test(t, young_files_that_look_the_same_are_told_apart);
    tcase_add_test(t, a_file_written_while_it_is_read);
    tcase_add_test(t, a_folder_that_goes_away);
    tcase_add_test(t, a_folder_that_cannot_be_listed);
    tcase_add_test(t, a_full_disk_leaves_everything_as_it_was);
    tcase_add_test(t, what_is_answered_is_on_disk);
    tcase_add_test(t, a_disk_that_fails);
    tcase_add_test(t, what_is_refused_leaves_no_file);
    tcase_add_test(t, names_that_differ_in_case_alone);
    tcase_add_test(t, allocations_fail);
    tcase_add_test(t, names_while_loading);
    suite_add_tcase(s, t);
    return s;
}

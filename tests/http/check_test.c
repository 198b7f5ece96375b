/* --check-config: what the start would refuse is refused, in the same words and with the same exit
 * status; and which files are fit to hold keys. */
#include "client/oip.h"
#include "client/tls.h"
#include "client/wire.h"
#include "nw_write.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY "right-key-0123456789abcdef"

typedef struct files {
    char cert[64], key[64], other_key[64], keys[64], short_keys[64], fifo[80], folder[80];
} files;

static void make_files(files *f) {
    xt_make_file(f->cert, sizeof f->cert, "");
    xt_make_file(f->key, sizeof f->key, "");
    xt_make_file(f->other_key, sizeof f->other_key, "");
    xt_make_file(f->keys, sizeof f->keys, KEY "\n");
    xt_make_file(f->short_keys, sizeof f->short_keys, "short\n");
    xt_make_certificate(f->cert, f->key);
    xt_make_certificate(NULL, f->other_key);
    snprintf(f->fifo, sizeof f->fifo, "%s.fifo", f->keys);
    ck_assert(!mkfifo(f->fifo, 0600));
    snprintf(f->folder, sizeof f->folder, "%s.folder", f->keys);
    ck_assert(!mkdir(f->folder, 0700));
}

static void drop_files(const files *f) {
    unlink(f->cert);
    unlink(f->key);
    unlink(f->other_key);
    unlink(f->keys);
    unlink(f->short_keys);
    unlink(f->fifo);
    rmdir(f->folder);
}

/* In the flags, @name is that file. */
static const struct {
    const char *flags[5];
    const char *message; /* NULL: nothing is wrong */
} cases[] = {
    {{"--api-keys-file", "@keys"}, NULL},
    {{"--tls-cert", "@cert", "--tls-key", "@key"}, NULL},
    {{"--log-file", "/dev/null"}, NULL},
    {{"--api-keys-file", "/nonexistent/keys"}, "/nonexistent/keys: No such file"},
    {{"--api-keys-file", "@short"}, "the key has 5 characters"},
    {{"--api-keys-file", "@fifo"}, "is a FIFO; a regular file is needed"},
    {{"--api-keys-file", "/tmp"}, "/tmp is a directory"},
    {{"--api-keys-file", "/dev/zero"}, "/dev/zero is a device"},
    {{"--tls-cert", "/nonexistent/c", "--tls-key", "@key"}, "--tls-cert /nonexistent/c: No such"},
    {{"--tls-cert", "@cert", "--tls-key", "/nonexistent/k"}, "--tls-key /nonexistent/k: No such"},
    {{"--tls-cert", "@key", "--tls-key", "@key"}, "is no PEM certificate"},
    {{"--tls-cert", "@cert", "--tls-key", "@cert"}, "is no PEM private key"},
    {{"--tls-cert", "@cert", "--tls-key", "@other"}, "is not the key of the certificate"},
    {{"--tls-cert", "@fifo", "--tls-key", "@key"}, "is a FIFO"},
    {{"--tls-ciphers", "NORMAL:+NO-SUCH-CIPHER"}, "\"+NO-SUCH-CIPHER\" on"},
    {{"--tls-ciphers", "NORMAL:-VERS-ALL:+VERS-TLS1.1"}, "of TLS 1.2 and TLS 1.3"},
    {{"--weights-dir", "/nonexistent/folder"},
     "--weights-dir /nonexistent/folder: it cannot be opened: No such"},
    {{"--weights-dir", "/dev/null"}, "--weights-dir /dev/null: "},
    {{"--model-repository", "/nonexistent/folder"},
     "--model-repository /nonexistent/folder: it cannot be opened as a folder"},
    {{"--model-repository", "/dev/null"}, "--model-repository /dev/null: it cannot be opened"},
    {{"--model-repository", "@folder"}, NULL},
    {{"--log-file", "/nonexistent/log"}, "--log-file: cannot write to /nonexistent/log"},
    {{"--log-file", "/tmp"}, "--log-file: cannot write to /tmp: Is a directory"},
    {{"--listen", "203.0.113.1", "--allow-unauthenticated"}, "cannot listen on 203.0.113.1"},
    {{"--cpu-isa", "neon"}, "--cpu-isa"}, /* or avx2, on the machine of the other kind */
};

static const char *file_of(const files *f, const char *flag) {
    static const char *const names[] = {"@cert",  "@key",  "@other", "@keys",
                                        "@short", "@fifo", "@folder"};
    const char *const paths[] = {f->cert,       f->key,  f->other_key, f->keys,
                                 f->short_keys, f->fifo, f->folder};
    for (size_t i = 0; flag && i < sizeof names / sizeof *names; i++)
        if (!strcmp(flag, names[i]))
            return paths[i];
    return flag;
}

/* What stands behind "cannot start: ", to the end of the line. */
static void reason_of(const char *text, char reason[600]) {
    const char *at = text ? strstr(text, "cannot start: ") : NULL;
    snprintf(reason, 600, "%.*s", at ? (int)strcspn(at, "\n") : 0, at ? at : "");
}

/* --check-config or, where the start would not serve, the start itself. */
static int run(const files *f, int which, bool check, xt_buffer *out, xt_buffer *err) {
    const char *flags[16] = {"--backend", "cpu", "--port", "0"};
    int count = 4;
    for (int i = 0; i < 5 && cases[which].flags[i]; i++)
        flags[count++] = file_of(f, cases[which].flags[i]);
#ifdef __aarch64__
    if (!strcmp(flags[4], "--cpu-isa"))
        flags[5] = "avx2";
#endif
    if (check)
        flags[count] = "--check-config";
    return xt_run(flags, NULL, out, err);
}

START_TEST(the_check_says_what_the_start_says) {
    files f;
    xt_buffer out = {0}, checked = {0}, started = {0};
    char first[600], second[600];
    const char *message = cases[_i].message;
    make_files(&f);
    int status = run(&f, _i, true, &out, &checked);
    if (!message) {
        ck_assert_msg(status == 0 && strstr(out.data, "listen = 127.0.0.1"), "exit %d: %s", status,
                      checked.data);
    } else {
        reason_of(checked.data, first);
        ck_assert_msg(status == 1 && strstr(first, message), "exit %d: %s", status, checked.data);
        ck_assert_int_eq(run(&f, _i, false, NULL, &started), 1);
        reason_of(started.data, second);
        ck_assert_str_eq(first, second);
    }
    xt_buffer_free(&started);
    xt_buffer_free(&checked);
    xt_buffer_free(&out);
    drop_files(&f);
}
END_TEST

static void run_with_model(const char *flag, const char *value, bool check, xt_buffer *err,
                           int expected) {
    const char *flags[] = {
        "--backend", "cpu", "--port", "0", flag, value, check ? "--check-config" : NULL, NULL};
    xt_buffer_free(err);
    int status = xt_run(flags, NULL, NULL, err);
    ck_assert_msg(status == expected, "%s %s: exit %d: %s", flag, value, status, err->data);
}

/* What --model names must be there; of a repository what can be is served. Both say what is not. */
START_TEST(models_are_checked) {
    static const char broken[] = "model \"bad\" cannot be loaded: there is no config.json";
    char folder[256], model[300], path[300], checked[600], started[600];
    xt_buffer err = {0};
    xt_folder_make(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/bad", folder);
    ck_assert(!mkdir(path, 0777));
    snprintf(path, sizeof path, "%s/good", folder);
    ck_assert(!mkdir(path, 0777));
    nw_net *net = nw_create(1, 2, 2);
    nw_add(net, XN_OP_MAX_POOL, "p", NULL)->global = true;
    nw_write_folder(net, NULL, path);
    nw_free(net);

    snprintf(model, sizeof model, "bad=%s/bad", folder);
    run_with_model("--model", model, true, &err, 1);
    reason_of(err.data, checked);
    ck_assert_ptr_nonnull(strstr(checked, "model \"bad\": there is no config.json"));
    run_with_model("--model", model, false, &err, 1);
    reason_of(err.data, started);
    ck_assert_str_eq(started, checked);
    run_with_model("--model", path, true, &err, 0);

    run_with_model("--model-repository", folder, true, &err, 0);
    ck_assert_msg(strstr(err.data, broken) != NULL, "%s", err.data);
    xt_daemon *d = xt_daemon_start(
        XT_FLAGS("--backend", "cpu", "--model-repository", folder, "--model", path));
    ck_assert(xt_daemon_log_wait(d, "models: 1 of 1 given by --model are served"));
    char *log = xt_daemon_log(d);
    ck_assert_msg(strstr(log, broken) != NULL, "%s", log);
    ck_assert_msg(strstr(log, "models: 0 of 1 in --model-repository ") != NULL, "%s", log);
    free(log);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
    xt_buffer_free(&err);
    xt_folder_remove(folder);
}
END_TEST

/* The usual time to check: before the daemon that holds the port is told to restart. */
START_TEST(a_check_beside_a_daemon) {
    char path[64], port[16];
    xt_daemon *d = xt_daemon_start(XT_FLAGS("--backend", "cpu"));
    snprintf(port, sizeof port, "%d", d->port);
    xt_make_file(path, sizeof path, "");
    unlink(path); /* the check makes no log file */
    int status =
        xt_run(XT_FLAGS("--check-config", "--backend", "cpu", "--port", port, "--log-file", path),
               NULL, NULL, NULL);
    ck_assert_int_eq(status, 0);
    ck_assert_int_ne(access(path, F_OK), 0);
    ck_assert_int_eq(xt_daemon_stop(d), 0);
}
END_TEST

/* Without a GPU, or without the backend: what is missing, and what to do. */
START_TEST(cuda_that_is_not_there) {
    xt_buffer devices = {0}, checked = {0}, started = {0};
    char first[600], second[600];
    ck_assert_int_eq(xt_run(XT_FLAGS("--list-devices"), NULL, &devices, NULL), 0);
    if (!strstr(devices.data, "cuda:0")) {
        ck_assert_int_eq(
            xt_run(XT_FLAGS("--check-config", "--backend", "cuda"), NULL, NULL, &checked), 1);
        reason_of(checked.data, first);
        ck_assert_msg(strstr(first, "cuda") && strstr(first, "--backend cpu"), "%s", checked.data);
        ck_assert_msg(strstr(devices.data, "cuda") || strstr(first, "nvcc"), "%s", first);
        ck_assert_int_eq(xt_run(XT_FLAGS("--backend", "cuda", "--port", "0"), NULL, NULL, &started),
                         1);
        reason_of(started.data, second);
        ck_assert_str_eq(first, second);
    }
    xt_buffer_free(&devices);
    xt_buffer_free(&checked);
    xt_buffer_free(&started);
}
END_TEST

START_TEST(secrets_that_others_can_read) {
    static const struct {
        mode_t mode;
        const char *warning; /* NULL: none */
    } modes[] = {{0600, NULL},         {0640, NULL},
                 {0400, NULL},         {0604, "can be read by every user"},
                 {0644, "(mode 644)"}, {0602, "can be changed by every user"}};
    files f;
    make_files(&f);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        xt_buffer err = {0};
        ck_assert(!chmod(f.keys, modes[i].mode) && !chmod(f.key, modes[i].mode));
        ck_assert_int_eq(xt_run(XT_FLAGS("--check-config", "--backend", "cpu", "--api-keys-file",
                                         f.keys, "--tls-cert", f.cert, "--tls-key", f.key),
                                NULL, NULL, &err),
                         0);
        const char *text = err.data ? err.data : "";
        const char *on_key = strstr(text, "--tls-key"), *on_keys = strstr(text, "--api-keys-file");
        ck_assert_msg(!on_key == !modes[i].warning && !on_keys == !modes[i].warning &&
                          (!modes[i].warning || strstr(text, modes[i].warning)),
                      "mode %o: %s", (unsigned)modes[i].mode, text);
        xt_buffer_free(&err);
    }
    drop_files(&f);
}
END_TEST

XN_SUITE(http_check) {
    Suite *s = suite_create("http_check");
    TCase *t = tcase_create("check");
    tcase_set_timeout(t, 180);
    tcase_add_checked_fixture(t, NULL, xt_reap);
    tcase_add_loop_test(t, the_check_says_what_the_start_says, 0, sizeof cases / sizeof *cases);
    tcase_add_test(t, models_are_checked);
    tcase_add_test(t, a_check_beside_a_daemon);
    tcase_add_test(t, cuda_that_is_not_there);
    tcase_add_test(t, secrets_that_others_can_read);
    suite_add_tcase(s, t);
    return s;
}

/* daemon.c: child processes of the tests: the daemon with its log in a memory file (so it never
 * blocks on a full pipe, and a forked test can read it too), and programs that run to their end. */
#include "client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

#define MAX_DAEMONS 16
#define MAX_ARGUMENTS 64

static xt_daemon daemons[MAX_DAEMONS]; /* pid 0: a free slot */

static const char *binary(void) {
    const char *path = getenv("XNORD_BIN");
    return path ? path : "build/xnord";
}

static char *read_all(int fd) {
    struct stat info;
    if (fstat(fd, &info))
        return strdup("");
    size_t size = (size_t)info.st_size, have = 0;
    char *text = malloc(size + 1);
    if (!text)
        abort();
    while (have < size) {
        ssize_t n = pread(fd, text + have, size - have, (off_t)have);
        if (n <= 0)
            break;
        have += (size_t)n;
    }
    text[have] = 0;
    return text;
}

/* The log so far: of the file that was named to the daemon, if any. */
static char *read_log(const xt_daemon *daemon) {
    if (!daemon->log_file[0])
        return read_all(daemon->log_fd);
    int fd = open(daemon->log_file, O_RDONLY | O_CLOEXEC);
    char *text = read_all(fd);
    if (fd >= 0)
        close(fd);
    return text;
}

/* In the child, between fork and exec: async-signal-safe calls only. */
static void become(char *const *arguments, char *const *environment, int in, int out, int err,
                   pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(126);
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    signal(SIGPIPE, SIG_DFL);
    execvpe(arguments[0], arguments, environment);
    _exit(127);
}

/* The environment of children: this one's and the extra strings. free() the result. */
static char **make_environment(const char *const *extra) {
    size_t count = 0, more = 0;
    while (environ[count])
        count++;
    while (extra && extra[more])
        more++;
    char **all = calloc(count + more + 1, sizeof *all);
    if (!all)
        abort();
    memcpy(all, environ, count * sizeof *all);
    for (size_t i = 0; i < more; i++)
        all[count + i] = (char *)(uintptr_t)extra[i];
    return all;
}

static pid_t spawn(const char *const *arguments, const char *const *extra, int in, int out,
                   int err) {
    char **environment = make_environment(extra);
    char *argv[MAX_ARGUMENTS + 1] = {0};
    for (int i = 0; arguments[i]; i++) {
        ck_assert_int_lt(i, MAX_ARGUMENTS);
        argv[i] = (char *)(uintptr_t)arguments[i];
    }
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        become(argv, environment, in, out, err, parent);
    free(environment);
    ck_assert_msg(pid > 0, "fork: %s", strerror(errno));
    return pid;
}

static int status_of(int status) {
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* Waits for the child with a bound; kills it past that. False when it had to be killed. */
static bool wait_bounded(pid_t pid, int64_t ms, int *status) {
    int raw = 0;
    for (int64_t end = xt_now_ms() + ms;; xt_nap()) {
        if (waitpid(pid, &raw, WNOHANG) == pid) {
            *status = status_of(raw);
            return true;
        }
        if (xt_now_ms() >= end)
            break;
    }
    kill(pid, SIGKILL);
    waitpid(pid, &raw, 0);
    *status = status_of(raw);
    return false;
}

/* ---- the daemon ---- */

static bool has_backend(const char *const *flags) {
    for (; *flags; flags++)
        if (!strncmp(*flags, "--backend", 9) || !strncmp(*flags, "--config", 8))
            return true;
    return false;
}

static xt_daemon *free_slot(void) {
    for (int i = 0; i < MAX_DAEMONS; i++)
        if (!daemons[i].pid)
            return &daemons[i];
    ck_abort_msg("more than %d daemons at once", MAX_DAEMONS);
    return NULL;
}

static void release(xt_daemon *daemon) {
    close(daemon->log_fd);
    *daemon = (xt_daemon){0};
}

/* The port of the start-up line, or 0 while it is not there. */
static int parse_port(const char *log, bool *tls) {
    const char *line = strstr(log, "listening on http");
    const char *end = line ? strchr(line, '\n') : NULL;
    const char *host = line ? strstr(line, "://") : NULL;
    if (!end || !host)
        return 0;
    *tls = !strncmp(line, "listening on https", 18);
    const char *colon = strchr(host + 3, host[3] == '[' ? ']' : ':');
    if (colon && *colon == ']')
        colon++;
    return colon && *colon == ':' ? atoi(colon + 1) : 0;
}

static void give_up(xt_daemon *daemon, const char *what) {
    static char text[8192];
    int status;
    bool ended = wait_bounded(daemon->pid, 0, &status);
    char *log = read_log(daemon);
    size_t length = strlen(log);
    snprintf(text, sizeof text, "%s: %s (%s, exit %d); its log: %s", binary(), what,
             ended ? "it ended" : "it runs", status, length > 4000 ? log + length - 4000 : log);
    free(log);
    release(daemon);
    ck_abort_msg("%s", text);
}

static bool ended(const xt_daemon *daemon) {
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)daemon->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == daemon->pid;
}

/* base, then $XNORD_TEST_FLAGS split at spaces (unless a backend is chosen), then flags. Requests
 * of tests name any host, unless the flags say which. */
static void launch_with(xt_daemon *daemon, const char *const *flags) {
    const char *arguments[MAX_ARGUMENTS + 1] = {binary(), "--listen", "127.0.0.1", "--port", "0"};
    int count = 5;
    const char *more = getenv("XNORD_TEST_FLAGS");
    char *copy = strdup(more && !has_backend(flags) ? more : ""), *rest = NULL;
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        if (count < MAX_ARGUMENTS)
            arguments[count++] = word;
    for (; *flags && count < MAX_ARGUMENTS; flags++) {
        if (!strcmp(*flags, "--log-file"))
            snprintf(daemon->log_file, sizeof daemon->log_file, "%s", flags[1]);
        arguments[count++] = *flags;
    }
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    daemon->log_fd = memfd_create("xnord-log", MFD_CLOEXEC);
    ck_assert_msg(null >= 0 && daemon->log_fd >= 0, "no log file: %s", strerror(errno));
    static const char *const extra[] = {"XNORD_ALLOWED_HOSTS=*", NULL};
    daemon->pid = spawn(arguments, extra, null, daemon->log_fd, daemon->log_fd);
    daemon->owner = getpid();
    close(null);
    free(copy);
}

xt_daemon *xt_daemon_launch(const char *const *flags) {
    xt_daemon *daemon = free_slot();
    launch_with(daemon, flags);
    for (int64_t end = xt_now_ms() + XT_PATIENCE_MS; !daemon->port; xt_nap()) {
        char *log = read_log(daemon);
        daemon->port = parse_port(log, &daemon->tls);
        free(log);
        if (!daemon->port && (ended(daemon) || xt_now_ms() > end))
            give_up(daemon, "the daemon gave no start-up line");
    }
    return daemon;
}

xt_daemon *xt_daemon_start(const char *const *flags) {
    xt_daemon *daemon = xt_daemon_launch(flags);
    if (daemon->tls)
        return daemon;
    for (int64_t end = xt_now_ms() + XT_PATIENCE_MS;; xt_nap()) {
        xt_conn conn;
        xt_response response = {0};
        bool ready =
            xt_connect(&conn, daemon) &&
            xt_request(&conn, "GET", "/v2/health/ready", "", NULL, 0, &response) == XT_GOT &&
            response.status == 200;
        xt_disconnect(&conn);
        xt_response_free(&response);
        if (ready)
            return daemon;
        if (ended(daemon) || xt_now_ms() > end)
            give_up(daemon, "the daemon did not get ready");
    }
}

xt_daemon *xt_daemon_start_shared(const char *const *flags) {
    xt_daemon *daemon = xt_daemon_start(flags);
    daemon->shared = true;
    return daemon;
}

int xt_daemon_wait(xt_daemon *daemon) {
    int status;
    bool in_time = wait_bounded(daemon->pid, XT_PATIENCE_MS, &status);
    release(daemon);
    ck_assert_msg(in_time, "the daemon did not end within %d ms", XT_PATIENCE_MS);
    return status;
}

int xt_daemon_stop(xt_daemon *daemon) {
    kill(daemon->pid, SIGTERM);
    return xt_daemon_wait(daemon);
}

/* ---- daemons shared by the tests of a case ---- */

/* libcheck cannot report a failure of an unchecked teardown, so the stop of a shared daemon leaves
 * its outcome here and a test of the next case reads it. */
static int shared_status = -1;
static char shared_log[4096];

void xt_daemon_stop_shared(xt_daemon *daemon) {
    if (!daemon || !daemon->pid)
        return;
    kill(daemon->pid, SIGTERM);
    bool in_time = wait_bounded(daemon->pid, XT_PATIENCE_MS, &shared_status);
    char *log = read_log(daemon);
    size_t length = strlen(log);
    snprintf(shared_log, sizeof shared_log, "%s%s", in_time ? "" : "(had to be killed) ",
             length > 4000 ? log + length - 4000 : log);
    free(log);
    release(daemon);
}

START_TEST(shared_daemon_stopped_cleanly) {
    ck_assert_msg(shared_status == 0, "the daemon's exit status is %d; its log: %s", shared_status,
                  shared_log);
}
END_TEST

void xt_add_stopped_case(Suite *suite) {
    TCase *tcase = tcase_create("stopped");
    tcase_add_test(tcase, shared_daemon_stopped_cleanly);
    suite_add_tcase(suite, tcase);
}

void xt_reap(void) {
    for (int i = 0; i < MAX_DAEMONS; i++) {
        int status;
        if (!daemons[i].pid || daemons[i].shared || daemons[i].owner != getpid())
            continue;
        wait_bounded(daemons[i].pid, 0, &status);
        release(&daemons[i]);
    }
}

bool xt_daemon_alive(const xt_daemon *daemon) {
    return kill(daemon->pid, 0) == 0 && (daemon->owner != getpid() || !ended(daemon));
}

char *xt_daemon_log(const xt_daemon *daemon) {
    return read_log(daemon);
}

bool xt_daemon_log_wait(const xt_daemon *daemon, const char *text) {
    for (int64_t end = xt_now_ms() + XT_PATIENCE_MS; xt_now_ms() < end; xt_nap()) {
        char *log = read_log(daemon);
        bool found = strstr(log, text) != NULL;
        free(log);
        if (found)
            return true;
    }
    return false;
}

long xt_daemon_memory_kb(const xt_daemon *daemon, const char *name) {
    char path[64], line[256];
    long value = -1;
    size_t length = strlen(name);
    snprintf(path, sizeof path, "/proc/%d/status", (int)daemon->pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return -1;
    while (value < 0 && fgets(line, sizeof line, file))
        if (!strncmp(line, name, length) && line[length] == ':')
            value = strtol(line + length + 1, NULL, 10);
    fclose(file);
    return value;
}

/* ---- programs that run to their end ---- */

void xt_make_file(char *path, size_t size, const char *content) {
    size_t length = strlen(content);
    snprintf(path, size, "/tmp/xnord-test-XXXXXX");
    int fd = mkstemp(path);
    ck_assert_msg(fd >= 0 && write(fd, content, length) == (ssize_t)length, "%s: %s", path,
                  strerror(errno));
    close(fd);
}

static int input_file(const char *input) {
    int fd = memfd_create("xnord-in", MFD_CLOEXEC);
    size_t length = input ? strlen(input) : 0;
    if (fd >= 0 && length && write(fd, input, length) == (ssize_t)length)
        lseek(fd, 0, SEEK_SET);
    return fd;
}

static void take_output(int fd, xt_buffer *out) {
    char *text = read_all(fd);
    if (out)
        xt_append(out, text, strlen(text));
    free(text);
    close(fd);
}

int xt_run_program(const char *const *arguments, const char *const *environment, const char *input,
                   xt_buffer *out, xt_buffer *err) {
    int in = input_file(input);
    int out_fd = memfd_create("xnord-out", MFD_CLOEXEC);
    int err_fd = memfd_create("xnord-err", MFD_CLOEXEC);
    ck_assert_msg(in >= 0 && out_fd >= 0 && err_fd >= 0, "memfd: %s", strerror(errno));
    pid_t pid = spawn(arguments, environment, in, out_fd, err_fd);
    int status;
    bool in_time = wait_bounded(pid, XT_PATIENCE_MS, &status);
    close(in);
    take_output(out_fd, out);
    take_output(err_fd, err);
    ck_assert_msg(in_time, "%s did not end within %d ms", arguments[0], XT_PATIENCE_MS);
    return status == 127 ? -1 : status;
}

int xt_run(const char *const *flags, const char *const *environment, xt_buffer *out,
           xt_buffer *err) {
    const char *arguments[MAX_ARGUMENTS + 1] = {binary()};
    for (int i = 0; flags[i] && i + 1 < MAX_ARGUMENTS; i++)
        arguments[i + 1] = flags[i];
    int status = xt_run_program(arguments, environment, NULL, out, err);
    ck_assert_msg(status >= 0, "there is no %s", binary());
    return status;
}

/* Runs a program and makes one of its system calls go wrong: `injector LOG CALL NTH ACTION PREFIXES -- PROGRAM ARGUMENT...`.
 *
 * CALL is a name and a class, such as `openat.file` or `recvfrom.socket`; `-` only counts. Calls count from the first one that names
 * something below one of PREFIXES (separated by colons): those with a path below them, those on a file below them or without a name,
 * those on sockets, and those that make threads and the like.
 *
 * ACTION: `error:ERRNO` instead of the call; `after:ERRNO` once it was done; `short`: half of the bytes; `hang:MS` before it, for the
 * thread alone; `kill`; `stop:MS`, then SIGCONT, for the whole process.
 *
 * LOG gets a line for each kind of call with its count, and a line for what was hit. The exit status is the program's, 128 + n for a
 * signal. The library makes its calls without libc, so nothing that is preloaded sees them: this traces, and a seccomp filter lets all
 * other calls pass at full speed. x86-64 only. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* How the arguments of a call say what it is about. */
enum about { PATH, AT, FD, FIFTH, SOCKET, PLAIN };

static const struct call {
    const char *name;
    long number;
    enum about about;
} calls[] = {
    {"openat", SYS_openat, AT},
    {"open", SYS_open, PATH},
    {"mkdirat", SYS_mkdirat, AT},
    {"mkdir", SYS_mkdir, PATH},
    {"unlinkat", SYS_unlinkat, AT},
    {"unlink", SYS_unlink, PATH},
    {"rmdir", SYS_rmdir, PATH},
    {"renameat", SYS_renameat, AT},
    {"renameat2", SYS_renameat2, AT},
    {"rename", SYS_rename, PATH},
    {"linkat", SYS_linkat, AT},
    {"statx", SYS_statx, AT},
    {"newfstatat", SYS_newfstatat, AT},
    {"utimensat", SYS_utimensat, AT},
    {"fchmodat", SYS_fchmodat, AT},
    {"readlinkat", SYS_readlinkat, AT},
    {"faccessat", SYS_faccessat, AT},
    {"statfs", SYS_statfs, PATH},
    {"readlink", SYS_readlink, PATH},
    {"read", SYS_read, FD},
    {"write", SYS_write, FD},
    {"pread64", SYS_pread64, FD},
    {"pwrite64", SYS_pwrite64, FD},
    {"readv", SYS_readv, FD},
    {"writev", SYS_writev, FD},
    {"copy_file_range", SYS_copy_file_range, FD},
    {"sendfile", SYS_sendfile, FD},
    {"close", SYS_close, FD},
    {"fsync", SYS_fsync, FD},
    {"fdatasync", SYS_fdatasync, FD},
    {"ftruncate", SYS_ftruncate, FD},
    {"fallocate", SYS_fallocate, FD},
    {"getdents64", SYS_getdents64, FD},
    {"fstat", SYS_fstat, FD},
    {"fstatfs", SYS_fstatfs, FD},
    {"fchmod", SYS_fchmod, FD},
    {"lseek", SYS_lseek, FD},
    {"mmap", SYS_mmap, FIFTH},
    {"connect", SYS_connect, FD},
    {"accept4", SYS_accept4, FD},
    {"bind", SYS_bind, FD},
    {"listen", SYS_listen, FD},
    {"sendto", SYS_sendto, FD},
    {"recvfrom", SYS_recvfrom, FD},
    {"sendmsg", SYS_sendmsg, FD},
    {"recvmsg", SYS_recvmsg, FD},
    {"shutdown", SYS_shutdown, FD},
    {"setsockopt", SYS_setsockopt, FD},
    {"getsockopt", SYS_getsockopt, FD},
    {"getsockname", SYS_getsockname, FD},
    {"getpeername", SYS_getpeername, FD},
    {"socket", SYS_socket, SOCKET},
    {"clone3", SYS_clone3, PLAIN},
    {"pidfd_open", SYS_pidfd_open, PLAIN},
    {"epoll_create1", SYS_epoll_create1, PLAIN},
    {"epoll_ctl", SYS_epoll_ctl, PLAIN},
    {"eventfd2", SYS_eventfd2, PLAIN},
    {"pipe2", SYS_pipe2, PLAIN},
    {"process_vm_readv", SYS_process_vm_readv, PLAIN},
};
enum { KINDS = sizeof calls / sizeof *calls, CLASSES = 3 };
static const char *const classes[CLASSES] = {"file", "socket", "process"};

static const char *wanted, *action, *prefixes;
static long nth;
static long counts[KINDS][CLASSES];
static pid_t program;
static FILE *record;
static int in_window;

/* The thread whose call is being held up, or whose result is to be replaced; and until when the program stands still. */
static pid_t held, replaced;
static int is_stopped;
static struct timespec until;

static void fail(const char *what)
{
    perror(what);
    exit(125);
}

static void install_filter(void)
{
    struct sock_filter code[KINDS + 4];
    int n = 0;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < KINDS; i++)
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i].number, (unsigned char)(KINDS - i), 0);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
    struct sock_fprog filter = {.len = (unsigned short)n, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        fail("seccomp");
}

static int is_below(const char *path)
{
    for (const char *start = prefixes; *start;) {
        size_t length = strcspn(start, ":");
        if (length && !strncmp(path, start, length) && (!path[length] || path[length] == '/'))
            return 1;
        start += length + (start[length] == ':');
    }
    return 0;
}

static void path_of(int fd, char *path, size_t size)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/%d/fd/%d", program, fd);
    ssize_t length = readlink(link, path, size - 1);
    path[length < 0 ? 0 : length] = 0;
}

static void text_of(pid_t thread, unsigned long address, char *text, size_t size)
{
    size_t done = 0;
    while (done + sizeof(long) < size) {
        errno = 0;
        long word = ptrace(PTRACE_PEEKDATA, thread, address + done, 0);
        if (errno)
            break;
        memcpy(text + done, &word, sizeof word);
        if (memchr(&word, 0, sizeof word))
            return;
        done += sizeof word;
    }
    text[done] = 0;
}

/* The class of a call, or -1; and what it is about. */
static int classify(pid_t thread, const struct call *call, const struct user_regs_struct *regs, char *path, size_t size)
{
    long fd = (long)regs->rdi;
    path[0] = 0;
    switch (call->about) {
    case SOCKET:
        return 1;
    case PLAIN:
        return 2;
    case PATH:
        text_of(thread, regs->rdi, path, size);
        return is_below(path) ? 0 : -1;
    case AT: {
        char name[512];
        text_of(thread, regs->rsi, name, sizeof name);
        if (name[0] != '/' && (int)fd >= 0)
            path_of((int)fd, path, size);
        size_t length = strlen(path);
        snprintf(path + length, size - length, "%s%s", length && name[0] ? "/" : "", name);
        return is_below(path) ? 0 : -1;
    }
    case FIFTH:
        fd = (int)regs->r8;
        if (fd < 0)
            return -1;
        break;
    case FD:
        break;
    }
    path_of((int)fd, path, size);
    if (!strncmp(path, "socket:", 7))
        return 1;
    return is_below(path) || !strncmp(path, "/memfd:", 7) ? 0 : -1;
}

static void wait_until(long milliseconds)
{
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += milliseconds / 1000;
    until.tv_nsec += milliseconds % 1000 * 1000000;
    struct itimerval every = {{0, 20000}, {0, 20000}};
    setitimer(ITIMER_REAL, &every, 0);
}

static int is_due(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec > until.tv_sec || (now.tv_sec == until.tv_sec && now.tv_nsec >= until.tv_nsec);
}

/* Half of what a call would move, at least a byte; says whether the call moves more than one. */
static int shorten(pid_t thread, struct user_regs_struct *regs)
{
    unsigned long long *length = &regs->rdx;
    switch (regs->orig_rax) {
    case SYS_copy_file_range:
        length = &regs->r8;
        break;
    case SYS_sendfile:
        length = &regs->r10;
        break;
    case SYS_readv:
    case SYS_writev: {
        /* The first piece alone, as a plain call. */
        long base = ptrace(PTRACE_PEEKDATA, thread, regs->rsi, 0), size = ptrace(PTRACE_PEEKDATA, thread, regs->rsi + 8, 0);
        regs->orig_rax = regs->orig_rax == SYS_readv ? SYS_read : SYS_write;
        regs->rsi = (unsigned long long)base;
        regs->rdx = (unsigned long long)size;
        break;
    }
    default:
        break;
    }
    if (*length < 2)
        return 0;
    *length /= 2;
    return !ptrace(PTRACE_SETREGS, thread, 0, regs);
}

/* Does what is wanted to a call that is about to be made; says whether the thread may go on, and how. */
static int strike(pid_t thread, struct user_regs_struct *regs, const char *path)
{
    const char *number = strchr(action, ':');
    long value = number ? atol(number + 1) : 0;
    int done = 1, go_on = PTRACE_CONT;
    if (!strncmp(action, "error", 5)) {
        regs->orig_rax = (unsigned long long)-1;
        regs->rax = (unsigned long long)-value;
        ptrace(PTRACE_SETREGS, thread, 0, regs);
    } else if (!strncmp(action, "after", 5)) {
        replaced = thread;
        go_on = PTRACE_SYSCALL;
    } else if (!strcmp(action, "short")) {
        done = shorten(thread, regs);
    } else if (!strncmp(action, "hang", 4)) {
        held = thread;
        wait_until(value);
        go_on = 0;
    } else if (!strcmp(action, "kill")) {
        kill(program, SIGKILL);
        go_on = 0;
    } else if (!strncmp(action, "stop", 4)) {
        is_stopped = 1;
        kill(program, SIGSTOP);
        wait_until(value);
    }
    fprintf(record, "%s %s\n", done ? "hit" : "missed", path);
    fflush(record);
    return go_on;
}

static void at_call(pid_t thread)
{
    struct user_regs_struct regs;
    char path[4096];
    int go_on = PTRACE_CONT;
    if (!ptrace(PTRACE_GETREGS, thread, 0, &regs)) {
        for (int kind = 0; kind < KINDS; kind++) {
            if ((long)regs.orig_rax != calls[kind].number)
                continue;
            int class = classify(thread, &calls[kind], &regs, path, sizeof path);
            in_window |= class == 0;
            if (class < 0 || !in_window)
                break;
            size_t length = strlen(calls[kind].name);
            int is_wanted = !strncmp(wanted, calls[kind].name, length) && wanted[length] == '.' && !strcmp(wanted + length + 1, classes[class]);
            if (++counts[kind][class] == nth && is_wanted)
                go_on = strike(thread, &regs, path);
            break;
        }
    }
    if (go_on)
        ptrace(go_on, thread, 0, 0);
}

static void tick(int signal)
{
    (void)signal;
}

static void ended(int status)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int class = 0; class < CLASSES; class++)
            if (counts[kind][class])
                fprintf(record, "count %s.%s %ld\n", calls[kind].name, classes[class], counts[kind][class]);
    fclose(record);
    exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static void look_at_clock(void)
{
    if ((!held && !is_stopped) || !is_due())
        return;
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, 0);
    if (held)
        ptrace(PTRACE_CONT, held, 0, 0);
    if (is_stopped)
        kill(program, SIGCONT);
    held = 0;
    is_stopped = 0;
}

int main(int count, char **words)
{
    if (count < 8 || strcmp(words[6], "--"))
        return fprintf(stderr, "injector LOG CALL NTH ACTION PREFIXES -- PROGRAM ARGUMENT...\n"), 125;
    wanted = words[2], nth = atol(words[3]), action = words[4], prefixes = words[5];
    record = fopen(words[1], "we");
    int begin[2];
    if (!record || pipe2(begin, O_CLOEXEC))
        fail(words[1]);
    program = fork();
    if (program == 0) {
        char byte;
        if (read(begin[0], &byte, 1) != 1)
            _exit(125);
        install_filter();
        execvp(words[7], words + 7);
        fail(words[7]);
    }
    long options = PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACESECCOMP | PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC;
    if (ptrace(PTRACE_SEIZE, program, 0, options))
        fail("ptrace");
    if (write(begin[1], "", 1) != 1)
        fail("write");
    /* What waits is woken, so that it can look at the clock. */
    struct sigaction quietly = {.sa_handler = tick};
    sigaction(SIGALRM, &quietly, 0);
    for (;;) {
        int status;
        pid_t thread = waitpid(-1, &status, __WALL);
        look_at_clock();
        if (thread < 0) {
            if (errno == EINTR)
                continue;
            fail("waitpid");
        }
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (thread == program)
                ended(status);
            continue;
        }
        int event = status >> 16, signal = WSTOPSIG(status);
        if (event == PTRACE_EVENT_SECCOMP) {
            at_call(thread);
        } else if (event == PTRACE_EVENT_STOP && (signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU)) {
            /* It stays stopped, and is told of SIGCONT. */
            ptrace(PTRACE_LISTEN, thread, 0, 0);
        } else if (event) {
            ptrace(PTRACE_CONT, thread, 0, 0);
        } else if (signal == (SIGTRAP | 0x80)) {
            /* The end of the call whose result is to be replaced. */
            struct user_regs_struct regs;
            if (thread == replaced && !ptrace(PTRACE_GETREGS, thread, 0, &regs)) {
                regs.rax = (unsigned long long)-atol(strchr(action, ':') + 1);
                ptrace(PTRACE_SETREGS, thread, 0, &regs);
                replaced = 0;
            }
            ptrace(PTRACE_CONT, thread, 0, 0);
        } else {
            ptrace(PTRACE_CONT, thread, 0, signal);
        }
    }
}

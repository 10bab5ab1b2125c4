// SPDX-License-Identifier: Apache-2.0
/*
 * killat runs a command and kills it with SIGKILL just before its Nth system call that changes a file below one of the
 * given directories. Calls of all threads count, from the moment on at which killat gets SIGUSR1. So a test can end a
 * program at every point between two of its writes, without the program knowing anything of it.
 *
 *   killat --at N --report FILE [--from-start 1] --under DIR [--under DIR ...] -- COMMAND [ARG ...]
 *
 * With --from-start 1 it counts at once, without a signal. With N = 0 nothing is killed. When the command has ended, FILE holds "<calls counted> <call that was cut off, or ->".
 * killat's own exit status is the command's, 128 + signal where a signal ended it.
 *
 * What counts: creating, truncating, renaming, removing and making directories, writing and syncing. The fake GPU changes
 * its state by plain stores between taking a lock and giving it back, so a call that locks counts where the locked file is
 * not what it was at the last one. The command is stopped by seccomp at these calls only; other
 * calls run at full speed.
 *
 * Calls of processes that the command starts do not count. Those that outlive it go on, and cannot without somebody who traces
 * them: a process of killat stays with them until the last has ended.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_DIRS 16

/* Where the path or the descriptor of a call is. */
enum kind { PATH0, PATH1, DESCRIPTOR, OPEN1, LOCK, KINDS };

struct call {
	long number;
	enum kind kind;
	const char *name;
};

static const struct call calls[] = {
	{SYS_openat, OPEN1, "openat"},
	{SYS_renameat, PATH1, "renameat"},
	{SYS_renameat2, PATH1, "renameat2"},
	{SYS_unlinkat, PATH1, "unlinkat"},
	{SYS_mkdirat, PATH1, "mkdirat"},
	{SYS_fchmodat, PATH1, "fchmodat"},
	{SYS_write, DESCRIPTOR, "write"},
	{SYS_pwrite64, DESCRIPTOR, "pwrite64"},
	{SYS_ftruncate, DESCRIPTOR, "ftruncate"},
	{SYS_fallocate, DESCRIPTOR, "fallocate"},
	{SYS_fchmod, DESCRIPTOR, "fchmod"},
	{SYS_fsync, DESCRIPTOR, "fsync"},
	{SYS_fdatasync, DESCRIPTOR, "fdatasync"},
	{SYS_flock, DESCRIPTOR, "flock"},
	{SYS_fcntl, LOCK, "fcntl"},
#ifdef SYS_rename
	{SYS_rename, PATH0, "rename"},
	{SYS_unlink, PATH0, "unlink"},
	{SYS_rmdir, PATH0, "rmdir"},
	{SYS_mkdir, PATH0, "mkdir"},
#endif
};

#define CALLS (sizeof calls / sizeof calls[0])

static const char *dirs[MAX_DIRS];
static size_t dir_count;
static volatile sig_atomic_t armed;

static void arm(int signal_number) { (void)signal_number; armed = 1; }

static void die(const char *what)
{
	fprintf(stderr, "killat: %s: %s\n", what, strerror(errno));
	exit(125);
}

static int below(const char *path)
{
	for (size_t i = 0; i < dir_count; i++) {
		size_t length = strlen(dirs[i]);
		if (strncmp(path, dirs[i], length) == 0 && (path[length] == '/' || path[length] == '\0'))
			return 1;
	}
	return 0;
}

/* read_string copies a string of the traced thread, page by page, since the next page may not be there. */
static int read_string(pid_t tid, uint64_t address, char *out, size_t size)
{
	size_t have = 0;
	while (have < size - 1) {
		size_t chunk = 4096 - (address + have) % 4096;
		if (chunk > size - 1 - have)
			chunk = size - 1 - have;
		struct iovec local = {out + have, chunk}, remote = {(void *)(uintptr_t)(address + have), chunk};
		ssize_t n = process_vm_readv(tid, &local, 1, &remote, 1, 0);
		if (n <= 0)
			return -1;
		if (memchr(out + have, '\0', (size_t)n))
			return 0;
		have += (size_t)n;
	}
	out[have] = '\0';
	return 0;
}

static int descriptor_below(pid_t tid, uint64_t descriptor)
{
	char link[64], path[PATH_MAX];
	snprintf(link, sizeof link, "/proc/%d/fd/%d", (int)tid, (int)descriptor);
	ssize_t n = readlink(link, path, sizeof path - 1);
	if (n < 0)
		return 0;
	path[n] = '\0';
	return below(path);
}

static int path_below(pid_t tid, uint64_t address)
{
	char path[PATH_MAX];
	return read_string(tid, address, path, sizeof path) == 0 && below(path);
}

/* mix adds what a file holds from one offset to another to a hash of it. Zeros add nothing, so that a hole and zeros in its
 * place are the same. */
static uint64_t mix(int fd, off_t from, off_t to, uint64_t hash)
{
	static uint64_t block[8192];
	while (from < to) {
		size_t want = to - from < (off_t)sizeof block ? (size_t)(to - from) : sizeof block;
		block[(want - 1) / sizeof block[0]] = 0;
		ssize_t n = pread(fd, block, want, from);
		if (n <= 0)
			break;
		for (size_t i = 0; i < ((size_t)n + sizeof block[0] - 1) / sizeof block[0]; i++)
			if (block[i])
				hash = (hash ^ block[i] ^ ((uint64_t)from + 8 * i) << 32) * 1099511628211u;
		from += n;
	}
	return hash;
}

/* changed says whether a file is not what it was when it was last asked about. One such file is all there is. It is mostly
 * holes, which are passed over: to read them took nearly all of the time of the tests. */
static int changed(pid_t tid, uint64_t descriptor)
{
	static uint64_t last;
	uint64_t hash = 14695981039346656037u;
	char link[64];
	snprintf(link, sizeof link, "/proc/%d/fd/%d", (int)tid, (int)descriptor);
	int fd = open(link, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 1;
	off_t from, to = 0;
	while ((from = lseek(fd, to, SEEK_DATA)) >= 0 && (to = lseek(fd, from, SEEK_HOLE)) > from)
		hash = mix(fd, from, to, hash);
	close(fd);
	int different = hash != last;
	last = hash;
	return different;
}

/* counts says whether the call that the thread is about to make is one of ours. */
static const char *counts(pid_t tid)
{
	struct __ptrace_syscall_info info;
	if (ptrace(PTRACE_GET_SYSCALL_INFO, tid, (void *)sizeof info, &info) <= 0 || info.op != PTRACE_SYSCALL_INFO_SECCOMP)
		return NULL;
	for (size_t i = 0; i < CALLS; i++) {
		const struct call *c = &calls[i];
		const uint64_t *a = (const uint64_t *)info.seccomp.args;
		int hit = 0;
		if ((uint64_t)c->number != info.seccomp.nr)
			continue;
		switch (c->kind) {
		case PATH0: hit = path_below(tid, a[0]); break;
		case PATH1: hit = path_below(tid, a[1]); break;
		case OPEN1: hit = (a[2] & (O_CREAT | O_TRUNC)) && path_below(tid, a[1]); break;
		case DESCRIPTOR: hit = descriptor_below(tid, a[0]); break;
		case LOCK:
			hit = (a[1] == F_SETLK || a[1] == F_SETLKW || a[1] == F_OFD_SETLK || a[1] == F_OFD_SETLKW) &&
			      descriptor_below(tid, a[0]) && changed(tid, a[0]);
			break;
		case KINDS: break;
		}
		return hit ? c->name : NULL;
	}
	return NULL;
}

/* filter makes the kernel stop the calling thread, and all that it starts, at our calls. */
static void filter(void)
{
	struct sock_filter code[CALLS + 3];
	size_t n = 0;
	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < CALLS; i++)
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)calls[i].number,
							 (uint8_t)(CALLS - i), 0);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
	struct sock_fprog program = {(unsigned short)n, code};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		die("installing the filter");
}

static pid_t start(char **command)
{
	pid_t child = fork();
	if (child < 0)
		die("fork");
	if (child > 0)
		return child;
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		die("asking to be traced");
	/* What killat ignores is not ignored by the command. */
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	raise(SIGSTOP);
	filter();
	execvp(command[0], command);
	die(command[0]);
	return -1;
}

/* Who the calls are counted of: threads of the command. */
static int of(pid_t tid, pid_t child)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/task/%d", (int)child, (int)tid);
	return access(path, F_OK) == 0;
}

/* stay lets the processes that have outlived the command go on until they end. */
static void stay(void)
{
	int status;
	pid_t tid;
	while ((tid = waitpid(-1, &status, __WALL)) > 0 || errno == EINTR) {
		if (tid < 0 || !WIFSTOPPED(status))
			continue;
		int signal_number = WSTOPSIG(status);
		if (status >> 16 != 0 || signal_number == SIGTRAP || signal_number == SIGSTOP)
			signal_number = 0;
		ptrace(PTRACE_CONT, tid, NULL, (void *)(long)signal_number);
	}
}

static void report(const char *path, long counted, const char *cut)
{
	FILE *f = fopen(path, "w");
	if (!f || fprintf(f, "%ld %s\n", counted, cut) < 0 || fclose(f))
		die(path);
}

/* trace lets the command run until it ends and returns its wait status. */
static int trace(pid_t child, long at, long *counted, const char **cut)
{
	int status;
	if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
		die("waiting for the start");
	long options = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_EXITKILL;
	if (ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)options) || ptrace(PTRACE_CONT, child, NULL, NULL))
		die("tracing");
	for (;;) {
		pid_t tid = waitpid(-1, &status, __WALL);
		if (tid < 0 && errno == EINTR)
			continue;
		if (tid < 0)
			die("waiting");
		if (WIFEXITED(status) || WIFSIGNALED(status)) {
			if (tid == child)
				return status;
			continue;
		}
		int deliver = 0;
		if (status >> 8 == (SIGTRAP | PTRACE_EVENT_SECCOMP << 8)) {
			const char *name = armed && of(tid, child) ? counts(tid) : NULL;
			if (name && ++*counted == at) {
				*cut = name;
				kill(child, SIGKILL);
				continue;
			}
		} else if (status >> 16 == 0 && WSTOPSIG(status) != SIGTRAP && WSTOPSIG(status) != SIGSTOP) {
			deliver = WSTOPSIG(status);
		}
		/* A thread that was killed meanwhile cannot be continued. */
		ptrace(PTRACE_CONT, tid, NULL, (void *)(long)deliver);
	}
}

static pid_t tracer;

static void pass_on(int signal_number) { kill(tracer, signal_number); }

/*
 * wait_for waits in the first process until the tracer, which is another one, says how the command has ended. So killat ends
 * with the command, while the tracer stays with what has outlived it.
 */
static int wait_for(int from_tracer)
{
	int status = 125;
	ssize_t n;
	do
		n = read(from_tracer, &status, sizeof status);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)sizeof status ? status : 125;
}

/* finish says how the command has ended, lets go of everything of killat's, and stays. */
static void finish(int to_first, int status)
{
	prctl(PR_SET_PDEATHSIG, 0);
	setsid();
	int null = open("/dev/null", O_RDWR);
	for (int fd = 0; fd <= 2; fd++)
		dup2(null, fd);
	if (write(to_first, &status, sizeof status) != (ssize_t)sizeof status)
		_exit(125);
	close(to_first);
	stay();
	_exit(0);
}

int main(int argc, char **argv)
{
	long at = 0, counted = 0;
	const char *file = NULL, *cut = "-";
	int i = 1;
	for (; i + 1 < argc && strcmp(argv[i], "--") != 0; i += 2) {
		if (strcmp(argv[i], "--at") == 0)
			at = strtol(argv[i + 1], NULL, 10);
		else if (strcmp(argv[i], "--report") == 0)
			file = argv[i + 1];
		else if (strcmp(argv[i], "--from-start") == 0)
			armed = argv[i + 1][0] == '1';
		else if (strcmp(argv[i], "--under") == 0 && dir_count < MAX_DIRS)
			dirs[dir_count++] = argv[i + 1];
		else
			break;
	}
	if (i + 1 >= argc || strcmp(argv[i], "--") != 0 || !file || dir_count == 0) {
		fprintf(stderr, "usage: killat --at N --report FILE [--from-start 1] --under DIR [--under DIR ...] -- COMMAND [ARG ...]\n");
		return 125;
	}
	int ends[2];
	sigset_t arming, before;
	sigemptyset(&arming);
	sigaddset(&arming, SIGUSR1);
	/* Blocked until both know what to do with it. */
	if (sigprocmask(SIG_BLOCK, &arming, &before) || pipe2(ends, O_CLOEXEC))
		die("preparing");
	tracer = fork();
	if (tracer < 0)
		die("fork");
	struct sigaction action = {.sa_handler = tracer ? pass_on : arm};
	sigaction(SIGUSR1, &action, NULL);
	sigprocmask(SIG_SETMASK, &before, NULL);
	/* What ends killat from outside is for the command; killat ends with it. */
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	close(ends[tracer == 0 ? 0 : 1]);
	if (tracer > 0)
		return wait_for(ends[0]);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL))
		die("ending with the first process");
	int status = trace(start(argv + i + 1), at, &counted, &cut);
	report(file, counted, cut);
	finish(ends[1], WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

/*
[[.Comment]] *
 * /init of the guest. It loads the modules, mounts the disk, brings memory into the state that the
 * schedule begins with (setup), and starts each task as a process on a processor of its own
 * (task_0 and so on). park.py decides where a task stops and for how long: it talks to this
 * program over a virtio port, in lines, and stops the processors through qemu's gdb stub.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/fiemap.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#ifndef FS_IOC_FIEMAP
#define FS_IOC_FIEMAP _IOWR('f', 11, struct fiemap)
#endif

#define TASKS [[len .Tasks]]
#define CALLS [[.Calls]]
#define FILE_NAME "/mnt[[.File]]"
#define FILE_AT [[.At]]L /* the schedule is about the bytes from here on */

static int port = -1; /* to park.py */

/* What the calls have returned, by number; a negative value is an error. The tasks share it. */
static struct result {
	long value;
	int ended;
} *results;

static void say(const char *format, ...)
{
	static char line[8192];
	va_list args;
	int n, done, one;

	va_start(args, format);
	n = vsnprintf(line, sizeof line - 1, format, args);
	va_end(args);
	if (n > (int)sizeof line - 2)
		n = sizeof line - 2;
	line[n++] = '\n';
	for (done = 0; done < n; done += one) {
		one = write(port < 0 ? STDERR_FILENO : port, line + done, n - done);
		if (one <= 0)
			return;
	}
}

static void die(const char *what)
{
	say("error %s: %s", what, strerror(errno));
	for (;;) {
		sleep(port < 0 ? 0 : 3600); /* park.py ends the guest */
		reboot(RB_POWER_OFF);
	}
}

static long must(long value, const char *what)
{
	if (value < 0)
		die(what);
	return value;
}

/* A task stands at the gate before each of its calls, and after the last one. */
static void gate(void)
{
	syscall(SYS_getppid);
}

static void done(int call, long value)
{
	results[call].value = value < 0 ? -errno : value;
	results[call].ended = 1;
}

[[if .Has "write"]]static ssize_t write_at(int fd, char *from, size_t n, off_t at, int flags)
{
	struct iovec v = { from, n };

	return pwritev2(fd, &v, 1, at, flags);
}

[[end]][[if .Has "read"]]static ssize_t read_at(int fd, char *to, size_t n, off_t at, int flags)
{
	struct iovec v = { to, n };

	return preadv2(fd, &v, 1, at, flags);
}

[[end]][[if .Has "mapped"]]/* Memory that is the file's own, and a page fault away. */
static char *mapped(int fd, off_t at, size_t n)
{
	char *p = mmap(NULL, n, PROT_READ, MAP_SHARED, fd, at);

	if (p == MAP_FAILED)
		die("map " FILE_NAME);
	return p;
}

[[end]][[if .Has "short"]]/* Memory of which the first bytes are there, and the others a page fault away. */
static char *partly(int fill, size_t n, size_t there)
{
	int fd = must(memfd_create("source", 0), "memfd_create");
	char byte = fill, *p;
	size_t i;

	for (i = 0; i < n; i++)
		must(write(fd, &byte, 1), "write the source");
	p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		die("map the source");
	memset(p, fill, there);
	return p;
}

[[end]]/* ---- The story. ---- */

/* The file, open with the flags of the calls. */
[[range .Files]]static int [[.Name]];
[[end]]
static void open_files(void)
{
[[range .Files]]	[[.Name]] = must(open(FILE_NAME, [[.Flags]]), "open " FILE_NAME);
[[end]]}

/* Before the tasks begin. */
[[.Early]]static void setup(void)
{
[[.Setup]]}

[[range .Tasks]]/* Task [[.Number]]: [[.Name]]. Its memory is written first: it is there then, and its own. */
[[.Buffers]]static void task_[[.Number]](void)
{
[[.Prepare]][[.Body]]}

[[end]]static void (*const tasks[TASKS])(void) = {[[range .Tasks]] task_[[.Number]],[[end]] };

/* ---- What park.py asks for. ---- */

static pid_t pids[TASKS], nudges[TASKS];

static void bind_to(int processor)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(processor, &set);
	must(sched_setaffinity(0, sizeof set, &set), "sched_setaffinity");
}

static void start(void)
{
	int i;

	for (i = 0; i < TASKS; i++) {
		pids[i] = must(fork(), "fork");
		if (pids[i] == 0) {
			bind_to(1 + i);
			tasks[i]();
			_exit(0);
		}
	}
	say("ok");
}

/* The text of a small file, or "". */
static char *text_of(const char *path)
{
	static char text[8192];
	int fd = open(path, O_RDONLY);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);

	text[n < 0 ? 0 : n] = 0;
	if (fd >= 0)
		close(fd);
	return text;
}

/* The state of a process, as a letter, and its processor; 0 if there is no such process. */
static char state_of(const char *pid, int *processor)
{
	char path[300], *p;
	char letter;
	int i;

	snprintf(path, sizeof path, "/proc/%s/stat", pid);
	p = strrchr(text_of(path), ')');
	if (!p)
		return 0;
	p += 2;
	letter = *p;
	for (i = 3; i < 39 && p; i++) { /* the processor is the 39th word of the line */
		p = strchr(p, ' ');
		p = p ? p + 1 : NULL;
	}
	*processor = p ? atoi(p) : 0;
	return letter;
}

/*
 * Nothing runs but this program and a task, and no request is on its way to the disk: who sleeps
 * now, sleeps for ever. What is on a processor that stands still does not count.
 */
static int idle(pid_t task, unsigned held)
{
	int reads, writes, processor;
	struct dirent *e;
	char letter;
	DIR *d;

	if (sscanf(text_of("/sys/block/vda/inflight"), "%d %d", &reads, &writes) != 2 || reads + writes)
		return 0;
	d = opendir("/proc");
	if (!d)
		die("/proc");
	while ((e = readdir(d))) {
		pid_t pid = atoi(e->d_name);

		if (pid == 0 || pid == getpid() || pid == task)
			continue;
		letter = state_of(e->d_name, &processor);
		if (letter == 'R' && !(held & 1u << processor)) {
			closedir(d);
			return 0;
		}
	}
	closedir(d);
	return 1;
}

/*
 * A task that spins for a lock does so as long as the owner is on a processor, and a parked owner
 * is. It stops and sleeps as soon as another process wants its processor: this one.
 */
static void nudge(int task)
{
	struct sched_param first = { .sched_priority = 1 };

	if (nudges[task] && waitpid(nudges[task], NULL, WNOHANG) == 0)
		return; /* the last one is still there */
	nudges[task] = must(fork(), "fork");
	if (nudges[task] == 0) {
		sched_setscheduler(0, SCHED_FIFO, &first);
		bind_to(1 + task);
		_exit(0);
	}
}

/* look NUMBER TASK HELD: the state of a task, whether the guest is idle, and the task's stack. */
static void look(int number, int task, unsigned held)
{
	char path[64], pid[16], stack[4096] = "", *line, *name, *end;
	int processor, nothing;
	char letter;

	snprintf(pid, sizeof pid, "%d", pids[task]);
	letter = state_of(pid, &processor);
	snprintf(path, sizeof path, "/proc/%s/stack", pid);
	for (line = strtok(text_of(path), "\n"); line; line = strtok(NULL, "\n")) {
		name = strstr(line, "] ");
		end = name ? strchr(name, '+') : NULL;
		if (!end || strlen(stack) + (end - name) >= sizeof stack)
			continue;
		*end = 0;
		strcat(stack, name + 1); /* with the space */
	}
	nothing = idle(pids[task], held);
	if (letter == 'R' && nothing)
		nudge(task);
	say("look %d %c %d%s", number, letter ? letter : 'Z', nothing, stack);
}

/* symbols NAME...: the addresses of functions. One may be there several times. */
static void symbols(const char *names)
{
	FILE *f = fopen("/proc/kallsyms", "r");
	char line[512], word[300], name[256], type;
	unsigned long address;

	if (!f)
		die("/proc/kallsyms");
	while (fgets(line, sizeof line, f)) {
		if (sscanf(line, "%lx %c %255s", &address, &type, name) != 3 || !strchr("tTwW", type))
			continue;
		snprintf(word, sizeof word, " %s ", name);
		if (strstr(names, word))
			say("symbol %s %lx", name, address);
	}
	fclose(f);
	say("ok");
}

/* What the tasks' calls have returned, the file's size, and its bytes. */
static void report(void)
{
	static unsigned char block[65536];
	off_t from = FILE_AT, at = FILE_AT;
	int fd, i, byte = -1;
	struct stat st;
	ssize_t n;

	for (i = 0; i < TASKS; i++)
		must(waitpid(pids[i], NULL, 0), "wait for a task");
	for (i = 1; i <= CALLS; i++)
		say("call %d %d %ld", i, results[i].ended, results[i].value);
	fd = must(open(FILE_NAME, O_RDONLY), "open " FILE_NAME);
	must(fstat(fd, &st), "fstat");
	say("size %lld", (long long)st.st_size);
	while ((n = must(pread(fd, block, sizeof block, at), "read " FILE_NAME)) > 0)
		for (i = 0; i < n; i++, at++) {
			if (block[i] == byte)
				continue;
			if (byte >= 0)
				say("bytes %lld %lld %d", (long long)from, (long long)at, byte);
			from = at;
			byte = block[i];
		}
	if (byte >= 0)
		say("bytes %lld %lld %d", (long long)from, (long long)at, byte);
	say("ok");
}

/* ---- /init ---- */

static void mount_at(const char *kind, const char *dir)
{
	mkdir(dir, 0755);
	must(mount(kind, dir, kind, 0, NULL), dir);
}

/* The modules are in the order of their names. One that the processor is not for is left out. */
static void load_modules(void)
{
	glob_t g;
	size_t i;
	int fd;

	if (glob("/modules/*.ko", 0, NULL, &g))
		return; /* the kernel has all of them built in */
	for (i = 0; i < g.gl_pathc; i++) {
		fd = must(open(g.gl_pathv[i], O_RDONLY), g.gl_pathv[i]);
		if (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST && errno != ENODEV)
			die(g.gl_pathv[i]);
		close(fd);
	}
	globfree(&g);
}

static void open_port(void)
{
	glob_t g;
	int tries;

	for (tries = 0; glob("/dev/vport*p1", 0, NULL, &g); tries++) {
		if (tries == 300) {
			errno = ENODEV;
			die("no virtio port (virtio_console)");
		}
		usleep(100000);
	}
	port = must(open(g.gl_pathv[0], O_RDWR), g.gl_pathv[0]);
	globfree(&g);
}

static void mount_disk(void)
{
	int fd = must(open("/sys/block/vda/queue/rq_affinity", O_WRONLY), "no disk (virtio_blk)");

	/* The end of a request is not told to the processor that has begun it: that may stand still. */
	must(write(fd, "0", 1), "rq_affinity");
	close(fd);
	mkdir("/mnt", 0755);
	must(mount("/dev/vda", "/mnt", "btrfs", 0, NULL), "mount the disk");
}

static void serve(FILE *in)
{
	static char line[8192];
	int number, task;
	unsigned held;

	while (fgets(line, sizeof line, in)) {
		line[strcspn(line, "\n")] = ' ';
		if (sscanf(line, "look %d %d %u", &number, &task, &held) == 3)
			look(number, task, held);
		else if (!strncmp(line, "symbols ", 8))
			symbols(line + 7);
		else if (!strcmp(line, "start "))
			start();
		else if (!strcmp(line, "report "))
			report();
	}
}

int main(void)
{
	struct utsname name;

	mount_at("devtmpfs", "/dev");
	mount_at("proc", "/proc");
	mount_at("sysfs", "/sys");
	dup2(open("/dev/console", O_RDWR), STDERR_FILENO);
	load_modules();
	open_port();
	results = mmap(NULL, (CALLS + 1) * sizeof *results, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (results == MAP_FAILED)
		die("mmap");
	mount_disk();
	open_files();
	setup();
	must(uname(&name), "uname");
	say("ready %s", name.release);
	serve(fdopen(dup(port), "r"));
	die("park.py has ended");
}

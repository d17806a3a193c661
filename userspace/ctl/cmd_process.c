/* SPDX-License-Identifier: BSD-2-Clause */
/* Commands that look at the process itself: threads, memory, descriptors; and those about a connection's modes. */
#include <inttypes.h>
#include <malloc.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/sanitize.h"
#include "ctl/admin_priv.h"
#include "ctl/stat_cols.h"

#if IS_SANITIZED
/* Of <sanitizer/allocator_interface.h>, which gcc does not install. */
size_t __sanitizer_get_heap_size(void);
size_t __sanitizer_get_current_allocated_bytes(void);
#endif

/* --- threads ----------------------------------------------------------------------------------------- */

int cmd_show_threads(struct cmd *c)
{
	const struct ctl *ctl = c->ctl;
	const struct loop_stats *own = loop_stats(ctl->loop);

	fprintf(c->out,
		"* Thread control: iterations=%" PRIu64 " events=%" PRIu64 " busy_ms=%" PRIu64
		" idle_ms=%" PRIu64 "\n",
		own->iterations, own->events, own->busy_ns / 1000000, own->idle_ns / 1000000);
	for (unsigned i = 0; i < ctl->n_workers; i++) {
		const struct loop_stats *ls = worker_loop_stats(ctl->workers[i]);
		const struct hg_worker_counters *w = &ctl->worker_counters[i];

		fprintf(c->out,
			"  Thread worker %-3u: iterations=%" PRIu64 " events=%" PRIu64
			" busy_ms=%" PRIu64 " idle_ms=%" PRIu64 " conns=%lld ssl_conns=%lld"
			" streams=%lld requests=%" PRIu64 "\n",
			i, ls->iterations, ls->events, ls->busy_ns / 1000000, ls->idle_ns / 1000000,
			(long long)w->cur_conns, (long long)w->cur_ssl_conns,
			(long long)w->cur_streams, (uint64_t)w->requests);
	}
	return 0;
}

int cmd_show_steering(struct cmd *c)
{
	const struct ctl *ctl = c->ctl;
	enum hg_sk_mode mode = (enum hg_sk_mode)ctl->current->conf->global.sk_steer.mode;
	const struct hg_sk_worker *rows = ctl->dp ? dp_sk_steer_rows(ctl->dp) : NULL;
	unsigned n, n_steered;

	steering_count(ctl, &n, &n_steered);
	fprintf(c->out, "sk-steer: %s, %u of %u addresses\n", conf_sk_steer_name(mode), n_steered,
		n);
	if (!rows)
		return 0;
	fputs("# worker cpu conns by_cpu by_load migrated\n", c->out);
	for (unsigned i = 0; i < ctl->n_workers; i++) {
		char cpu[12] = "-";

		if (ctl->worker_cpu[i] >= 0)
			snprintf(cpu, sizeof(cpu), "%d", ctl->worker_cpu[i]);
		fprintf(c->out, "%u %s %lld %llu %llu %llu\n", i, cpu,
			(long long)ctl->worker_counters[i].cur_conns,
			(unsigned long long)rows[i].by_cpu, (unsigned long long)rows[i].by_load,
			(unsigned long long)rows[i].migrated);
	}
	return 0;
}

/* --- memory ------------------------------------------------------------------------------------------ */

/* A sanitizer has a heap of its own, of which the C library's numbers say nothing. */
static struct mallinfo2 memory_now(void)
{
#if IS_SANITIZED
	size_t heap = __sanitizer_get_heap_size(), used = __sanitizer_get_current_allocated_bytes();

	return (struct mallinfo2){ .arena = heap, .uordblks = used, .fordblks = heap - used };
#else
	return mallinfo2();
#endif
}

int cmd_show_pools(struct cmd *c)
{
	struct mallinfo2 mi = memory_now();
	uint64_t failures = 0;

	for (unsigned i = 0; i < c->ctl->n_workers; i++)
		failures += c->ctl->worker_counters[i].alloc_failures;
	fprintf(c->out,
		"Memory of this process:\n"
		"  - from the system: %zu bytes in arenas, %zu bytes in %zu mappings\n"
		"  - in use: %zu bytes; free: %zu bytes, of which %zu could be given back\n",
		mi.arena, mi.hblkhd, mi.hblks, mi.uordblks + mi.hblkhd, mi.fordblks, mi.keepcost);
	fprintf(c->out, "Total: %zu bytes allocated, %zu used, %" PRIu64 " failures.\n",
		mi.arena + mi.hblkhd, mi.uordblks + mi.hblkhd, failures);
	return 0;
}

/* --- descriptors ------------------------------------------------------------------------------------- */

static const char *kind_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return "file";
	case S_IFCHR:
		return "device";
	case S_IFIFO:
		return "pipe";
	case S_IFDIR:
		return "directory";
	default: /* epoll, eventfd, signalfd, BPF maps and programs have no type */
		return "anonymous";
	}
}

static void put_name(FILE *out, const char *what, int fd,
		     int (*get)(int fd, struct sockaddr *sa, socklen_t *len))
{
	union {
		struct addr addr;
		struct sockaddr_un un;
	} a = { 0 };
	socklen_t len = sizeof(a);
	char text[ADDR_TEXT_MAX];

	if (get(fd, (struct sockaddr *)&a, &len) != 0)
		return;
	if (a.un.sun_family == AF_UNIX)
		fprintf(out, " %s=unix:%.100s", what,
			len > offsetof(struct sockaddr_un, sun_path) && a.un.sun_path[0]
				? a.un.sun_path
				: "-");
	else if (addr_format(&a.addr, text, sizeof(text)) > 0)
		fprintf(out, " %s=%s", what, text);
}

static int get_local(int fd, struct sockaddr *sa, socklen_t *len)
{
	return getsockname(fd, sa, len);
}

static int get_peer(int fd, struct sockaddr *sa, socklen_t *len)
{
	return getpeername(fd, sa, len);
}

static bool show_one_fd(FILE *out, int fd)
{
	int type = 0, listens = 0;
	socklen_t len = sizeof(type);
	struct stat st;

	if (fstat(fd, &st) != 0)
		return false;
	if (!S_ISSOCK(st.st_mode)) {
		fprintf(out, "%7d : %s ino=%llu\n", fd, kind_of(st.st_mode),
			(unsigned long long)st.st_ino);
		return true;
	}
	(void)getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len);
	len = sizeof(listens);
	(void)getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len);
	fprintf(out, "%7d : %s", fd,
		listens		      ? "listener"
		: type == SOCK_STREAM ? "connection"
		: type == SOCK_DGRAM  ? "datagram"
				      : "socket");
	put_name(out, "local", fd, get_local);
	put_name(out, "peer", fd, get_peer);
	fprintf(out, " ino=%llu\n", (unsigned long long)st.st_ino);
	return true;
}

/* Each costs some system calls on the control thread: this many at once, from the one that is asked for. */
#define FDS_AT_ONCE 10000

int cmd_show_fd(struct cmd *c)
{
	uint64_t first = 0, n = 0, fd;
	struct rlimit limit;

	if (cmd_arg(c, 0) && str_to_u64(str_from_cstr(cmd_arg(c, 0)), &first) != 0) {
		cmd_say(c, "'show fd' expects a number.");
		return 0;
	}
	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		limit.rlim_cur = 1024;
	for (fd = first; fd < limit.rlim_cur && fd < first + FDS_AT_ONCE; fd++)
		n += show_one_fd(c->out, (int)fd);
	if (fd < limit.rlim_cur && fd <= INT32_MAX)
		fprintf(c->out,
			"%" PRIu64 " open below %" PRIu64 "; go on with 'show fd %" PRIu64 "'\n", n,
			fd, fd);
	return 0;
}

int cmd_show_schema(struct cmd *c)
{
	stat_schema(c->out);
	return 0;
}

/* --- modes of a connection --------------------------------------------------------------------------- */

static int set_mode(struct cmd *c, const char *what, bool *mode)
{
	const char *word = cmd_arg(c, 0);

	if (!mode)
		return 0;
	if (word && (strcmp(word, "on") == 0 || strcmp(word, "off") == 0))
		*mode = word[1] == 'n';
	else
		cmd_data(c, "%s mode is %s", what, *mode ? "ON" : "OFF");
	return 0;
}

/* Nothing here needs them; scripts that were written for HAProxy switch them on first. */
int cmd_expert_mode(struct cmd *c)
{
	return set_mode(c, "expert", c->client ? &c->client->is_expert : NULL);
}

int cmd_experimental_mode(struct cmd *c)
{
	return set_mode(c, "experimental", c->client ? &c->client->is_experimental : NULL);
}

int cmd_show_cli_level(struct cmd *c)
{
	static const char *const levels[] = { "user", "operator", "admin" };

	cmd_data(c, "%s", levels[c->level]);
	return 0;
}

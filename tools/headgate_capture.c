/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `headgate capture`: sampled packets of services into a file, while traffic goes on. Ends by count, time
 * or signal; if it is killed, the program in the kernel notices within seconds and stops copying.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "dp/dp.h"
#include "tool_pcap.h"
#include "tools_priv.h"

#define MAX_WANTED 1024

struct wanted { /* ids that a name on the command line stands for */
	uint32_t ids[MAX_WANTED];
	unsigned n;
};

struct capture_job {
	struct tool *tool;
	struct dp_capture_filter filter;
	const char *file, *format, *service, *backend;
	uint64_t max_packets, duration_ns;
	struct wanted services, backends;
	struct tool_names names;
	struct pcap_writer writer;
	int64_t clock_offset_ns; /* Unix clock minus CLOCK_MONOTONIC */
	uint64_t n_written, n_drops[HG_DROP_COUNT];
	int error; /* -errno of the file */
};

static volatile sig_atomic_t is_stopped;

static void on_signal(int sig)
{
	is_stopped = 1;
}

static int bad(const char *fmt, const char *value)
{
	fputs("headgate: capture: ", stderr);
	fprintf(stderr, fmt, value);
	fputc('\n', stderr);
	return -EINVAL;
}

/* --- the command line -------------------------------------------------------------------------------- */

static int parse_number(const char *text, uint64_t max, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, 10);
	return *text >= '0' && *text <= '9' && !*end && !errno && *ret >= 1 && *ret <= max
		       ? 0
		       : -EINVAL;
}

static int parse_rate(struct capture_job *j, const char *text)
{
	uint64_t n;

	if (strncmp(text, "1/", 2) == 0)
		text += 2;
	if (parse_number(text, UINT32_MAX, &n) != 0)
		return bad("--rate wants 1/N, one packet in N, not '%s'", text);
	j->filter.one_in = (uint32_t)n;
	return 0;
}

static int parse_duration(struct capture_job *j, const char *text)
{
	static const struct {
		const char *unit;
		double seconds;
	} units[] = { { "", 1 }, { "s", 1 }, { "ms", 0.001 }, { "m", 60 }, { "h", 3600 } };
	char *end;
	double v = strtod(text, &end);

	for (unsigned i = 0; end != text && v > 0 && i < ARRAY_SIZE(units); i++) {
		if (strcmp(end, units[i].unit) == 0 && v * units[i].seconds < 1e9) {
			j->duration_ns = (uint64_t)(v * units[i].seconds * 1e9);
			return 0;
		}
	}
	return bad("--duration wants a time such as 10s, 5m or 500ms, not '%s'", text);
}

/* A name, or several with commas; "any": all. */
static int parse_drops(struct capture_job *j, const char *text)
{
	j->filter.flags = HG_CAPTURE_DROPS;
	if (strcasecmp(text, "any") == 0) {
		j->filter.drops = UINT32_MAX;
		return 0;
	}
	while (*text) {
		size_t len = strcspn(text, ",");
		unsigned i = 1;

		while (i < HG_DROP_COUNT && (strlen(dp_drop_name(i)) != len ||
					     strncasecmp(dp_drop_name(i), text, len) != 0))
			i++;
		if (i == HG_DROP_COUNT) {
			bad("no such drop reason: '%s'; there are:", text);
			for (i = 1; i < HG_DROP_COUNT; i++)
				fprintf(stderr, "  %-14s %s\n", dp_drop_name(i), dp_drop_help(i));
			return -EINVAL;
		}
		j->filter.drops |= 1u << i;
		text += len + (text[len] == ',');
	}
	return j->filter.drops ? 0 : bad("--drops= wants a reason%s", "");
}

static int parse_point(struct capture_job *j, const char *text)
{
	static const struct {
		const char *word;
		uint32_t flags;
	} points[] = { { "in", HG_CAPTURE_IN },
		       { "out", HG_CAPTURE_OUT },
		       { "both", HG_CAPTURE_IN | HG_CAPTURE_OUT } };

	for (unsigned i = 0; i < ARRAY_SIZE(points); i++) {
		if (strcmp(points[i].word, text) == 0) {
			j->filter.flags |= points[i].flags;
			return 0;
		}
	}
	return bad("--point is in, out or both, not '%s'", text);
}

static int parse_option(struct capture_job *j, int c, const char *value)
{
	uint64_t n;

	switch (c) {
	case 'S':
		j->service = value;
		return 0;
	case 'b':
		j->backend = value;
		return 0;
	case 'r':
		return parse_rate(j, value);
	case 'w':
		j->file = value;
		return 0;
	case 'f':
		j->format = value;
		return strcmp(value, "pcap") == 0 || strcmp(value, "pcapng") == 0
			       ? 0
			       : bad("--format is pcap or pcapng, not '%s'", value);
	case 'c':
		return parse_number(value, UINT64_MAX, &j->max_packets) == 0
			       ? 0
			       : bad("-c wants a number of packets, not '%s'", value);
	case 's':
		if (parse_number(value, HG_SNAPLEN_MAX, &n) != 0)
			return bad("--snaplen wants bytes, 1 to 9216, not '%s'", value);
		j->filter.snaplen = (uint32_t)n;
		return 0;
	case 'd':
		return parse_duration(j, value);
	case 'D':
		return parse_drops(j, value ? value : "any");
	case 'p':
		return parse_point(j, value);
	default:
		return -EINVAL;
	}
}

static int parse(struct capture_job *j, int argc, char **argv)
{
	static const struct option options[] = { { "service", required_argument, NULL, 'S' },
						 { "backend", required_argument, NULL, 'b' },
						 { "rate", required_argument, NULL, 'r' },
						 { "write", required_argument, NULL, 'w' },
						 { "format", required_argument, NULL, 'f' },
						 { "count", required_argument, NULL, 'c' },
						 { "snaplen", required_argument, NULL, 's' },
						 { "duration", required_argument, NULL, 'd' },
						 { "drops", optional_argument, NULL, 'D' },
						 { "point", required_argument, NULL, 'p' },
						 { NULL, 0, NULL, 0 } };
	int c;

	optind = 1;
	while ((c = getopt_long(argc, argv, "w:c:s:", options, NULL)) != -1) {
		const char *value = optarg;

		/* `--drops TTL` beside `--drops=TTL` */
		if (c == 'D' && !value && optind < argc && argv[optind][0] != '-')
			value = argv[optind++];
		if (parse_option(j, c, value) != 0)
			return -EINVAL;
	}
	if (optind < argc)
		return bad("what is '%s'?", argv[optind]);
	if (!j->file)
		return bad("where to? -w FILE (.pcap or .pcapng), or -w - for stdout%s", "");
	if (j->filter.flags & HG_CAPTURE_DROPS && j->filter.flags != HG_CAPTURE_DROPS)
		return bad("--drops are captured as they came: --point does not go with it%s", "");
	if (!j->filter.flags)
		j->filter.flags = HG_CAPTURE_IN | HG_CAPTURE_OUT;
	return 0;
}

/* --- names ----------------------------------------------------------------------------------------------- */

static void want(struct wanted *w, uint32_t id)
{
	if (w->n < MAX_WANTED)
		w->ids[w->n++] = id;
}

/* `name` is a section's, or a service's address as `headgate show l4` prints it. */
static int want_service(void *ctx, const struct dp_service_info *i)
{
	struct capture_job *j = ctx;
	char key[TOOL_KEY_MAX];

	tool_service_key(&i->key, key, sizeof(key));
	if (strcmp(j->service, key) == 0 || strcmp(j->service, strchr(key, '@') + 1) == 0 ||
	    strcmp(j->service, tool_service_name(&j->names, key)) == 0)
		want(&j->services, i->id);
	return 0;
}

/* A server's name, SECTION/SERVER, or an address. */
static int want_backend(void *ctx, const struct dp_backend_info *i)
{
	struct capture_job *j = ctx;
	char addr[ADDR_TEXT_MAX];

	addr_format_ip(&i->addr, addr, sizeof(addr));
	if (strcmp(j->backend, addr) == 0 || tool_is_backend(&j->names, i->id, j->backend))
		want(&j->backends, i->id);
	return 0;
}

static int resolve(struct capture_job *j, struct dp *dp)
{
	if (j->service)
		(void)dp_each_service(dp, want_service, j);
	if (j->backend)
		(void)dp_each_backend(dp, want_backend, j);
	j->filter.services = j->services.ids;
	j->filter.n_services = j->services.n;
	j->filter.backends = j->backends.ids;
	j->filter.n_backends = j->backends.n;
	if (j->service && !j->services.n)
		bad("no service of the kernel tier is called '%s'", j->service);
	else if (j->backend && !j->backends.n)
		bad("no server of the kernel tier is called '%s'", j->backend);
	else
		return 0;
	if (!j->names.is_known)
		fprintf(stderr,
			"headgate: no daemon answers at %s, so sections and servers have "
			"no names: give addresses\n",
			j->tool->socket);
	return -ENOENT;
}

/* --- the capture itself ------------------------------------------------------------------------------------ */

static int64_t now_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void comment_of(const struct capture_job *j, const struct hg_frame *f, char *out,
		       size_t size)
{
	const char *backend = tool_backend_name(&j->names, f->backend);

	if (f->verdict == HG_VERDICT_DROP)
		snprintf(out, size, "dropped: %s (%s)", dp_drop_name(f->drop),
			 dp_drop_help(f->drop));
	else if (f->verdict == HG_VERDICT_COUNT || f->verdict == HG_VERDICT_TX ||
		 f->verdict == HG_VERDICT_REDIRECT)
		snprintf(out, size, "%s backend %u%s%s", f->point == HG_CAPTURE_IN ? "for" : "to",
			 f->backend, *backend ? " " : "", backend);
	else
		snprintf(out, size, "%s", dp_verdict_name(f->verdict));
}

static void on_frame(void *ctx, const struct hg_frame *f, const uint8_t *bytes)
{
	struct capture_job *j = ctx;
	char comment[160];
	struct pcap_packet p = { .time_ns = f->time_ns + (uint64_t)j->clock_offset_ns,
				 .ifindex = f->ifindex,
				 .len = f->frame_len,
				 .cap_len = f->cap_len,
				 .bytes = bytes,
				 .is_out = f->point == HG_CAPTURE_OUT,
				 .id = f->id,
				 .comment = comment };

	if (j->error || is_stopped || (j->max_packets && j->n_written >= j->max_packets))
		return;
	comment_of(j, f, comment, sizeof(comment));
	j->error = pcap_write(&j->writer, &p);
	j->n_written += !j->error;
	if (f->verdict == HG_VERDICT_DROP && f->drop < HG_DROP_COUNT)
		j->n_drops[f->drop]++;
}

static FILE *open_file(const struct capture_job *j)
{
	FILE *out;
	int fd;

	if (strcmp(j->file, "-") == 0) {
		if (!isatty(STDOUT_FILENO))
			return stdout;
		bad("stdout is a terminal: 'headgate capture … -w - | tcpdump -n -r -'%s", "");
		return NULL;
	}
	fd = open(j->file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	out = fd < 0 ? NULL : fdopen(fd, "wb");
	if (!out)
		fprintf(stderr, "headgate: capture: cannot write %s: %s\n", j->file,
			strerror(errno));
	return out;
}

static bool is_pcapng(const struct capture_job *j)
{
	size_t len = strlen(j->file);

	if (j->format)
		return strcmp(j->format, "pcapng") == 0;
	return len < 5 || strcmp(j->file + len - 5, ".pcap") != 0;
}

static int run(struct capture_job *j, struct dp_capture *c)
{
	int64_t end = now_ns(CLOCK_MONOTONIC) + (int64_t)j->duration_ns;
	int rc = 0;

	while (rc >= 0 && !is_stopped && !j->error &&
	       !(j->max_packets && j->n_written >= j->max_packets)) {
		int64_t left = j->duration_ns ? (end - now_ns(CLOCK_MONOTONIC)) / 1000000 : 1000;

		if (left <= 0)
			break;
		rc = dp_capture_poll(c, left > 1000 ? 1000 : (int)left);
		/* A reader at the other end of a pipe should see packets when they come. */
		if (rc >= 0 && fflush(j->writer.out) != 0)
			j->error = -errno;
	}
	return rc < 0 ? rc : j->error;
}

static int finish(struct capture_job *j, int rc, uint64_t lost)
{
	fprintf(stderr, "headgate: %" PRIu64 " packets captured, %" PRIu64 " lost\n", j->n_written,
		lost);
	for (unsigned i = 1; i < HG_DROP_COUNT; i++)
		if (j->n_drops[i])
			fprintf(stderr, "  %-14s %" PRIu64 " (%s)\n", dp_drop_name(i),
				j->n_drops[i], dp_drop_help(i));
	if (rc == -ESTALE)
		fprintf(stderr, "headgate: capture: another capture took over\n");
	else if (rc != 0 && rc != -EPIPE)
		fprintf(stderr, "headgate: capture: %s: %s\n", j->file, strerror(-rc));
	return rc == 0 || rc == -EPIPE ? 0 : 1;
}

static int capture(struct capture_job *j, struct dp *dp)
{
	struct dp_capture *c;
	uint64_t lost;
	struct err err;
	FILE *out;
	int rc;

	if (resolve(j, dp) != 0)
		return 1;
	/* First the claim: a capture that is refused truncates nobody's file. */
	rc = dp_capture_open(dp, &j->filter, on_frame, j, &c, &err);
	if (rc != 0) {
		fprintf(stderr, "headgate: capture: %s\n", err.text);
		return 1;
	}
	out = open_file(j);
	rc = out ? pcap_begin(&j->writer, out, is_pcapng(j),
			      j->filter.snaplen ? j->filter.snaplen : HG_SNAPLEN_MAX)
		 : -EBADF;
	if (rc == 0)
		rc = run(j, c);
	lost = dp_capture_lost(c);
	dp_capture_close(c);
	if (!out)
		return 1;
	if (fclose(out) != 0 && rc == 0)
		rc = -errno;
	return finish(j, rc, lost);
}

int tool_capture(struct tool *t, int argc, char **argv)
{
	struct sigaction stop = { .sa_handler = on_signal }, ignore = { .sa_handler = SIG_IGN };
	struct dp_opts o = { .bpffs = t->bpffs, .role = HG_ROLE_EDGE, .adopt_only = true };
	struct capture_job *j = mem_zalloc(sizeof(*j));
	struct err err;
	struct dp *dp;
	int status = 1;

	if (!j)
		return 1;
	j->tool = t;
	if (parse(j, argc, argv) != 0)
		goto out;
	if (dp_open(&o, &dp, &err) != 0) {
		fprintf(stderr, "headgate: capture: %s\n", err.text);
		goto out;
	}
	sigaction(SIGINT, &stop, NULL);
	sigaction(SIGTERM, &stop, NULL);
	sigaction(SIGHUP, &stop, NULL);
	sigaction(SIGPIPE, &ignore, NULL);
	j->clock_offset_ns = now_ns(CLOCK_REALTIME) - now_ns(CLOCK_MONOTONIC);
	tool_names_load(t, &j->names);
	status = capture(j, dp);
	tool_names_free(&j->names);
	dp_close(dp);
out:
	mem_free(j);
	return status;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Envelopes of log lines, byte for byte as HAProxy writes them, the newline at the end of datagrams
 * included. Called on the emitting thread; no allocation; the clock is the only system interface.
 */
#include <stdio.h>

#include "base/log_priv.h"

/* Everything of an envelope but tag, host, pid, structured data and line: priority, dates, blanks. */
#define FIXED_MAX 128

struct out {
	char *p, *end;
};

static inline void put(struct out *o, const char *s, size_t n)
{
	size_t room = (size_t)(o->end - o->p);

	if (n > room)
		n = room;
	if (n)
		memcpy(o->p, s, n);
	o->p += n;
}

#define PUT_LIT(o, lit) put(o, lit, sizeof(lit) - 1)

static void put_priority(struct out *o, unsigned v)
{
	char text[8];
	char *p = text;

	*p++ = '<';
	if (v >= 100)
		*p++ = (char)('0' + v / 100);
	if (v >= 10)
		*p++ = (char)('0' + v / 10 % 10);
	*p++ = (char)('0' + v % 10);
	*p++ = '>';
	put(o, text, (size_t)(p - text));
}

static HG_COLD void update_dates(struct log_dates *d, time_t second)
{
	static const char months[12][4] = { "Jan", "Feb", "Mar", "Apr", "May", "Jun",
					    "Jul", "Aug", "Sep", "Oct", "Nov", "Dec" };
	unsigned year, zone;
	struct tm tm;
	char sign;

	if (!localtime_r(&second, &tm))
		memset(&tm, 0, sizeof(tm));
	d->second = second;
	/* The remainders tell the compiler how long the texts can get; they change nothing. */
	snprintf(d->syslog, sizeof(d->syslog), "%s %2u %02u:%02u:%02u ", months[tm.tm_mon % 12],
		 (unsigned)tm.tm_mday % 100, (unsigned)tm.tm_hour % 100, (unsigned)tm.tm_min % 100,
		 (unsigned)tm.tm_sec % 100);
	year = (unsigned)(tm.tm_year + 1900) % 10000;
	snprintf(d->iso_head, sizeof(d->iso_head), "%04u-%02u-%02uT%02u:%02u:%02u.", year,
		 (unsigned)(tm.tm_mon + 1) % 100, (unsigned)tm.tm_mday % 100,
		 (unsigned)tm.tm_hour % 100, (unsigned)tm.tm_min % 100, (unsigned)tm.tm_sec % 100);
	sign = tm.tm_gmtoff < 0 ? '-' : '+';
	zone = (unsigned)(tm.tm_gmtoff < 0 ? -tm.tm_gmtoff : tm.tm_gmtoff) / 60;
	snprintf(d->zone, sizeof(d->zone), "%c%02u:%02u", sign, zone / 60 % 100, zone % 60);
}

static void put_date(struct out *o, struct log_dates *d)
{
	struct timespec ts;

	/* A full second is all this format shows, and the coarse clock is the cheapest one. */
	clock_gettime(CLOCK_REALTIME_COARSE, &ts);
	if (unlikely(ts.tv_sec != d->second))
		update_dates(d, ts.tv_sec);
	put(o, d->syslog, strlen(d->syslog));
}

static void put_iso(struct out *o, struct log_dates *d)
{
	struct timespec ts;
	char usec[6];
	unsigned v;

	clock_gettime(CLOCK_REALTIME, &ts);
	if (unlikely(ts.tv_sec != d->second))
		update_dates(d, ts.tv_sec);
	v = (unsigned)ts.tv_nsec / 1000;
	for (int i = 5; i >= 0; i--) {
		usec[i] = (char)('0' + v % 10);
		v /= 10;
	}
	put(o, d->iso_head, strlen(d->iso_head));
	put(o, usec, sizeof(usec));
	put(o, d->zone, strlen(d->zone));
	PUT_LIT(o, " ");
}

/* "2026-03-01T08:15:30.042123+01:00 host tag pid - sd " (RFC 5424 6). */
static void put_rfc5424(struct out *o, struct log_dates *dates, struct str host, struct str tag,
			const struct log_identity *id, struct str sd)
{
	PUT_LIT(o, "1 ");
	put_iso(o, dates);
	if (host.len)
		put(o, host.p, host.len);
	else
		PUT_LIT(o, "-");
	PUT_LIT(o, " ");
	if (tag.len)
		put(o, tag.p, tag.len);
	else
		PUT_LIT(o, "-");
	PUT_LIT(o, " ");
	put(o, id->pid_text, id->pid_len);
	PUT_LIT(o, " - ");
	if (sd.len)
		put(o, sd.p, sd.len);
	else
		PUT_LIT(o, "-");
	PUT_LIT(o, " ");
}

static void put_rfc3164(struct out *o, struct log_dates *dates, struct str host, struct str tag,
			const struct log_identity *id)
{
	put_date(o, dates);
	if (host.len) {
		put(o, host.p, host.len);
		PUT_LIT(o, " ");
	}
	put(o, tag.p, tag.len);
	PUT_LIT(o, "[");
	put(o, id->pid_text, id->pid_len);
	PUT_LIT(o, "]: ");
}

size_t log_format_bound(const struct log_identity *id, struct str tag, struct str sd,
			struct str line)
{
	return FIXED_MAX + id->host_len + (tag.len ? tag.len : id->tag_len) + sd.len + line.len;
}

size_t log_format_line(char *out, size_t max, const struct log_target *t, enum log_level level,
		       const struct log_identity *id, struct log_dates *dates, struct str tag,
		       struct str sd, struct str line)
{
	struct out o = { out, out + max - 1 };
	struct str host = str_make(id->host, id->host_len);

	if (!tag.len)
		tag = str_make(id->tag, id->tag_len);
	switch (t->format) {
	case LOG_FMT_LOCAL:
		host = STR_NULL;
		/* fall through */
	case LOG_FMT_DEFAULT:
		put_priority(&o, t->facility * 8u + level);
		put_rfc3164(&o, dates, host, tag, id);
		break;
	case LOG_FMT_RFC3164:
		put_priority(&o, t->facility * 8u + level);
		put_rfc3164(&o, dates, host.len ? host : STR("localhost"), tag, id);
		break;
	case LOG_FMT_RFC5424:
		put_priority(&o, t->facility * 8u + level);
		put_rfc5424(&o, dates, host, tag, id, sd);
		break;
	case LOG_FMT_PRIORITY:
		put_priority(&o, t->facility * 8u + level);
		break;
	case LOG_FMT_SHORT:
		put_priority(&o, level);
		break;
	case LOG_FMT_TIMED:
		put_priority(&o, level);
		put_iso(&o, dates);
		break;
	case LOG_FMT_ISO:
		put_iso(&o, dates);
		break;
	case LOG_FMT_RAW:
		break;
	}
	put(&o, line.p, line.len);
	*o.p++ = '\n';
	return (size_t)(o.p - out);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Log lines. Two kinds of caller: any thread says something about the process (log_msg()), and
 * workers emit traffic lines (log_emit()). Both put finished datagrams in the ring of the calling
 * thread; one writer thread drains all rings and writes to the targets. A full ring or a dead target
 * never blocks the caller: what is lost is counted.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/addr.h"
#include "base/err.h"
#include "base/str.h"

/* Syslog severities (RFC 5424 6.2.1). */
enum log_level {
	LOG_LVL_EMERG,
	LOG_LVL_ALERT,
	LOG_LVL_CRIT,
	LOG_LVL_ERR,
	LOG_LVL_WARNING,
	LOG_LVL_NOTICE,
	LOG_LVL_INFO,
	LOG_LVL_DEBUG,
};

enum log_format {
	LOG_FMT_LOCAL, /* <PRI>Mmm dd hh:mm:ss tag[pid]: msg */
	LOG_FMT_RFC3164, /* the same with the host name */
	LOG_FMT_RFC5424,
	LOG_FMT_PRIORITY, /* <PRI>msg */
	LOG_FMT_SHORT, /* <level>msg */
	LOG_FMT_TIMED, /* <level>date msg */
	LOG_FMT_ISO,
	LOG_FMT_RAW, /* msg */
	LOG_FMT_DEFAULT, /* rfc3164 with a host name (log-send-hostname), else local */
};

enum log_transport {
	LOG_TO_UDP,
	LOG_TO_UNIX, /* datagram socket such as /dev/log */
	LOG_TO_FD, /* stdout, stderr, fd@N: one line each, with a newline */
	LOG_TO_STORE, /* a ring of the configuration: log_store.h */
};

#define LOG_SAMPLE_RANGES 8
#define LOG_STORE_NAME	  64 /* bytes of a ring's name */

/* Where lines go: one `log` line of the configuration. Immutable once in use. */
struct log_target {
	enum log_transport transport;
	union {
		struct addr udp;
		struct sockaddr_un un;
		int fd;
		char store[LOG_STORE_NAME + 1]; /* its name; none there: the line is lost */
	};
	enum log_format format;
	uint8_t facility; /* 0..23 */
	uint8_t max_level, min_level; /* lines less severe than max are dropped; more severe than min are sent as min */
	uint16_t max_len; /* of a datagram, newline included, bytes; 1024 unless `len` says otherwise */
	/* `sample 1,3-5:10`: of every `sample_of` lines those within a range, counted from 1; 0: all of them */
	uint16_t sample_of;
	uint8_t n_samples;
	struct log_range {
		uint16_t lo, hi;
	} samples[LOG_SAMPLE_RANGES];
};

/*
 * Start-up order: log_init() once; log_thread_enter() in every thread that emits (a thread without a
 * ring writes synchronously to stderr); log_writer_start() after daemonising; log_writer_stop() drains.
 */
HG_WUR int log_init(void);
HG_WUR int log_thread_enter(void);
void log_thread_leave(void);
HG_WUR int log_writer_start(void);
void log_writer_stop(void);

/* Process-wide: program name in the tag, pid (again after fork), host name (empty: none is sent). Control thread. */
void log_set_identity(struct str tag, int pid, struct str host);
/*
 * The targets of log_msg(); NULL and 0: stderr only. Copied. Control thread. 0, or -ENOMEM and the
 * old ones stay.
 */
int log_set_global_targets(const struct log_target *targets, unsigned n);
/* Also to stderr as "[NOTICE] …" (foreground, -V). Start-up default: true. */
void log_set_stderr(bool on);

/* A message about the process, without trailing newline. Any thread, never blocks. */
void log_msg(enum log_level level, const char *fmt, ...) HG_PRINTF(2, 3);
/* A traffic line for these targets; `tag` empty: the process's. Never blocks. */
void log_emit(const struct log_target *targets, unsigned n, enum log_level level, struct str tag,
	      struct str sd, struct str line);

uint64_t log_dropped(void); /* lines lost since start, all threads */
/* "emerg" … "debug", "kern" … "local7"; -1 when unknown. */
int log_level_from_name(struct str name);
int log_facility_from_name(struct str name);
const char *log_level_name(enum log_level level);

#endif

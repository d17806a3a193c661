/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rings of the configuration (`ring <name>`): the last lines that `log ring@<name>` sent, in memory. The log
 * writer puts lines in, the control thread makes the rings and reads them; one lock for all of them, which
 * no line takes before it has left the thread that said it.
 */
#ifndef BASE_LOG_STORE_H
#define BASE_LOG_STORE_H

#include <stdio.h>

#include "base/log.h"

struct log_store_spec {
	struct str name, description; /* name: at most LOG_STORE_NAME bytes */
	uint32_t size; /* bytes; a line takes two more than it has */
	struct str path; /* a file that has the bytes, and outlives the process; empty: memory */
};

/* A reader's place. Zero: the oldest line. */
struct log_cursor {
	uint64_t pos, line;
};

/*
 * From now on these are the rings. One that was there by that name keeps its lines, the newest that fit. 0, or
 * -ENOMEM, or what a file's path gave, and all stays as it was. Control thread.
 */
HG_WUR int log_stores_set(const struct log_store_spec *specs, unsigned n);
/* An eventfd that is written after lines came; -1: none. Control thread, which keeps it open until it has said so. */
void log_stores_notify(int eventfd);

/* The place behind the newest line. 0 or -ENOENT. Control thread. */
HG_WUR int log_store_end(struct str name, struct log_cursor *ret);
/*
 * The next line, without its newline, at most `room` bytes of it: its length, -EAGAIN when there is none,
 * -ENOENT. Lines that were overwritten before they were read count as dropped by the ring. Control thread.
 */
HG_WUR int log_store_next(struct str name, struct log_cursor *at, char *out, size_t room);
/* Ring `i`: false behind the last. *ret stays valid until log_stores_set(). Control thread. */
bool log_store_info(unsigned i, struct log_store_spec *ret, uint64_t *ret_dropped);

/* Prints the lines of a file, oldest first. 0, -EBADMSG: it is no ring; -errno. Any process. */
HG_WUR int log_store_file_print(const char *path, FILE *out);

#endif

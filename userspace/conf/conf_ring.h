/* SPDX-License-Identifier: BSD-2-Clause */
/* Part of conf/conf.h: section `ring`, lines of the log that are kept in memory and sent on by TCP. */
#ifndef CONF_CONF_RING_H
#define CONF_CONF_RING_H

#define CONF_RING_SERVERS 8

struct conf_ring_server {
	char *name;
	struct addr addr; /* family AF_UNIX: see path */
	char *path; /* of a Unix socket, as conn_dial() takes it; NULL: none */
	bool is_counted; /* frames begin with their length (RFC 6587 3.4.1), or end with a newline (3.4.2) */
};

struct conf_ring {
	struct list link; /* conf.rings */
	struct conf_pos pos; /* of the section, or of its first use */
	char *name;
	bool is_defined;
	char *description; /* NULL: the name */
	char *backing_file; /* NULL: in memory */
	uint8_t format; /* enum log_format: raw */
	uint32_t max_len, size; /* 1,024 bytes of a line; 16 KiB of all of them */
	uint64_t timeout_connect, timeout_server; /* 0: none */
	struct conf_ring_server servers[CONF_RING_SERVERS];
	unsigned n_servers;
};

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* What lines say about connections themselves. Part of conf.h. */
#ifndef CONF_CONF_LINK_H
#define CONF_CONF_LINK_H

/* What sockets of a bind or server line are opened with, beyond addresses. */
struct conf_socket {
	uint64_t user_timeout; /* tcp-ut; 0: the system's */
	char *congestion; /* cc; NULL: the system's */
	char *netns; /* namespace: below /run/netns; NULL: the process's own */
	unsigned netns_number; /* from 1, in conf.namespaces; 0: none */
};

/* `proxy-v2-options`: what PROXY headers of version 2 say beyond addresses. */
enum conf_pp_option {
	PP_SSL = 1 << 0,
	PP_CERT_CN = 1 << 1,
	PP_SSL_CIPHER = 1 << 2,
	PP_CERT_SIG = 1 << 3,
	PP_CERT_KEY = 1 << 4,
	PP_AUTHORITY = 1 << 5,
	PP_CRC32C = 1 << 6,
	PP_UNIQUE_ID = 1 << 7,
};

/* What the places of a server on the ring of `hash-type consistent` are made from. */
enum conf_hash_key {
	HASH_KEY_ID,
	HASH_KEY_ADDR,
	HASH_KEY_ADDR_PORT
};

#define CONF_GUID_MAX	    127
#define CONF_CONGESTION_MAX 16 /* TCP_CA_NAME_MAX, with its NUL */
#define CONF_NETNS_MAX	    64
#define CONF_PP_TLVS	    32 /* set-proxy-v2-tlv-fmt, of one server */

/* Servers share those of default-server lines, so lists are never changed: a new one stands in front. */
struct conf_pp_tlv {
	const struct conf_pp_tlv *before; /* the one written before this one */
	struct logfmt *value;
	uint8_t type;
};

#endif

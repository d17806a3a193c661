/* SPDX-License-Identifier: BSD-2-Clause */
/* TLS settings in the language. Part of conf/conf.h. Any thread. */
#ifndef CONF_CONF_TLS_H
#define CONF_CONF_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A set of OpenSSL's verification errors; bit n: code n. */
#define CONF_VERIFY_ERROR_MAX 127
struct conf_verify_errors {
	uint64_t bits[2];
};

/* TLS settings that global, bind and server share. Strings NULL: not set. */
struct conf_tls {
	char *ciphers, *ciphersuites, *curves, *sigalgs;
	char *alpn; /* wire format: length-prefixed names; alpn_len 0: none */
	size_t alpn_len;
	bool has_alpn; /* written, perhaps empty (no-alpn) */
	char *ca_file, *crl_file, *ca_verify_file;
	uint8_t verify; /* enum conf_verify */
	uint16_t min_version, max_version; /* 0x0303 …, 0: library default */
	bool no_tickets, prefer_client_ciphers, strict_sni, no_ca_names;
	bool wants_tickets, wants_lax_sni; /* written: whatever the defaults say */
	bool renegotiates, never_renegotiates; /* servers: up to TLS 1.2; the second as written, whatever the defaults say */
	char *client_sigalgs;
	/* Faults of a client's certificate that are let pass, by X509_V_ERR_*: its own, and those of its chain. */
	struct conf_verify_errors crt_ignore, ca_ignore;
};
enum conf_verify { CONF_VERIFY_UNSET, CONF_VERIFY_NONE, CONF_VERIFY_OPTIONAL, CONF_VERIFY_REQUIRED };

#endif

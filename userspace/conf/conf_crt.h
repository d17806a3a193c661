/* SPDX-License-Identifier: BSD-2-Clause */
/* Where certificates come from. Part of conf/conf.h. Any thread. */
#ifndef CONF_CONF_CRT_H
#define CONF_CONF_CRT_H

/* A `load` line of a crt-store. */
struct conf_crt {
	struct list link;
	struct conf_pos pos;
	struct str name; /* "@store/alias"; without both the path of its certificate */
	char *crt, *key, *ocsp, *issuer, *sctl; /* paths; NULL: not given */
	char *written; /* the certificate as the line calls it */
	char *alias;
};

/* Files beside a certificate that are looked for: ssl-load-extra-files. */
#define CONF_EXTRA_BUNDLE (1u << 0) /* FILE.rsa, FILE.ecdsa */
#define CONF_EXTRA_OCSP	  (1u << 1)
#define CONF_EXTRA_ISSUER (1u << 2)
#define CONF_EXTRA_KEY	  (1u << 3)
#define CONF_EXTRA_SCTL	  (1u << 4)
#define CONF_EXTRA_ALL	  31u

struct conf_crt_files {
	unsigned not_extra; /* CONF_EXTRA_*: not looked for */
	bool drops_ext; /* ssl-load-extra-del-ext */
	char *key_base, *issuers, *dh_params; /* NULL: not set */
};

#endif

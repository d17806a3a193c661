/* SPDX-License-Identifier: BSD-2-Clause */
/* The version texts of -v and -vv. */
#include "ctl/version.h"

void version_print(FILE *out, bool is_long)
{
	fprintf(out, "Headgate version %s - %s\n", HG_VERSION, CTL_RELEASE_DATE);
	if (!is_long)
		return;
	fprintf(out,
		"HAProxy-compatible version %s\n"
		"Compiler     : " __VERSION__ "\n"
		"Feature list : +EPOLL +OPENSSL +THREAD +PCRE2 +PCRE2_JIT +TPROXY +ACCEPT4 +CRYPT_H"
		" +GETADDRINFO +TFO +NS +CPU_AFFINITY +BPF +XDP -LUA -QUIC -DEVICEATLAS -51DEGREES "
		"-WURFL -OT\n"
		"Polling      : epoll\n"
		"Multiplexers : h1 : mode=HTTP side=FE|BE, none : mode=TCP side=FE|BE\n",
		CTL_HAPROXY_VERSION);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* PROXY headers towards servers. Worker's thread. */
#ifndef PROXY_PP_HEADER_H
#define PROXY_PP_HEADER_H

#include "proxy/stream.h"

/* The header that the stream's server wants, in the stream's arena; empty: none. 0, -ENOMEM, or -E2BIG: too long. */
HG_WUR int pp_header(struct stream *st, struct str *ret);

#endif

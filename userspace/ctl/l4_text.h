/* SPDX-License-Identifier: BSD-2-Clause */
/* Services of the kernel tier as text. */
#ifndef CTL_L4_TEXT_H
#define CTL_L4_TEXT_H

#include "base/addr.h"
#include "dp/dp.h"

#define L4_KEY_MAX (ADDR_TEXT_MAX + 8)

const char *l4_mode_text(uint8_t mode); /* "ipip" */
/* "tcp@192.0.2.1:80" */
void l4_key_text(const struct hg_service_key *k, char *out, size_t size);

#endif

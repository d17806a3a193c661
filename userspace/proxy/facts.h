/* SPDX-License-Identifier: BSD-2-Clause */
/* Answers to expressions that ask for more than the subject holds: members of subject_ops. Worker's thread. */
#ifndef PROXY_FACTS_H
#define PROXY_FACTS_H

#include "proxy/stream.h"

int facts_of_stream(const struct subject *s, enum subject_fact f, struct sample *ret);
int facts_of_client(const struct subject *s, enum subject_fact f, struct sample *ret);
int facts_stream_tlv(const struct subject *s, uint8_t type, struct str *ret);
int facts_client_tlv(const struct subject *s, uint8_t type, struct str *ret);
int facts_capture(const struct subject *s, bool is_rsp, unsigned slot, struct str value);

/* Nothing went wrong, as `option dontlog-normal` and `when(error)` see it: an answer of our own is normal. */
bool stream_is_normal(const struct stream *st);
/* Into a slot of st->fe's captures, at most `max` bytes (0: as declared). 0 or -ENOMEM. */
HG_WUR int capture_put(struct stream *st, bool is_rsp, unsigned slot, struct str value, size_t max);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * xdp-drop: the worker mails the client's prefix to control, which denies it in the kernel a moment later. What
 * is denied is the address that packets come from; a client that is only known by a PROXY header cannot
 * be told from others there. Workers.
 */
#include <string.h>
#include <sys/socket.h>

#include "proxy/worker_priv.h"

/* Under way from all workers. A flood must not fill the memory with bans. */
#define BANS_MAX 16384

/* Where packets of the connection come from; false: not known, or not the client. */
static bool packet_source(const struct client *cl, struct addr *ret)
{
	socklen_t len = sizeof(*ret);
	struct addr a = { 0 };
	const uint8_t *b = (const uint8_t *)&a.in6.sin6_addr;

	if (getpeername(cl->conn->ev.fd, (struct sockaddr *)&a, &len) != 0 ||
	    !addr_is_ip_eq(&a, &cl->conn->peer))
		return false;
	*ret = a;
	/* A socket of both families says so of IPv4 packets. */
	if (a.sa.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&a.in6.sin6_addr)) {
		*ret = (struct addr){ .in.sin_family = AF_INET };
		memcpy(&ret->in.sin_addr, b + 12, 4);
	}
	return ret->sa.sa_family == AF_INET || ret->sa.sa_family == AF_INET6;
}

static struct conf_prefix prefix_to_ban(const struct addr *a, const struct conf_ban *ban)
{
	struct addr_prefix whole = { .addr = *a };
	struct conf_prefix p;

	p = conf_prefix_of(&whole);
	p.bits = ban->bits[p.is_v6];
	for (unsigned i = 0; i < sizeof(p.addr); i++) {
		unsigned kept = p.bits > i * 8 ? p.bits - i * 8 : 0;

		if (kept < 8)
			p.addr[i] &= (uint8_t)(0xff00u >> kept);
	}
	return p;
}

void ban_client(struct client *cl, const struct conf_ban *ban)
{
	struct proxy_shared *sh = cl->w->o.shared;
	struct ban *b;
	struct addr a;

	if (!cl->w->o.on_ban || !packet_source(cl, &a))
		return;
	b = atomic_load_explicit(&sh->bans, memory_order_relaxed) < BANS_MAX ? mem_alloc(sizeof(*b))
									     : NULL;
	if (!b) {
		atomic_fetch_add_explicit(&sh->bans_lost, 1, memory_order_relaxed);
		return;
	}
	*b = (struct ban){ .owner = cl->w->o.owner,
			   .prefix = prefix_to_ban(&a, ban),
			   .ttl_ns = ban->ttl_ns,
			   .is_told = ban->is_told };
	b->mail.deliver = cl->w->o.on_ban;
	atomic_fetch_add_explicit(&sh->bans, 1, memory_order_relaxed);
	mailbox_send(cl->w->o.control, &b->mail);
}

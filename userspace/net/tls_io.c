/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What lies between OpenSSL and the socket. Worker's thread.
 *
 * Instead of OpenSSL's socket BIO, which reads record heads and bodies separately and writes every
 * record by itself, a BIO of our own reads once into OpenSSL's buffer (read_ahead) and gathers all
 * records of a call in the worker's buffer, for one send. That buffer is empty between calls; what the kernel
 * refuses is kept with the connection. See struct tls about what "taken" means.
 */
#include <errno.h>

#include "base/log.h"
#include "net/tls_priv.h"

static BIO_METHOD *bio_method;

/* Whatever is left after `sent` bytes of pending and out becomes the new pending. */
static int keep_rest(struct tls *t, struct tls_io *io, size_t sent)
{
	size_t total = t->pending_len + io->out_len;
	size_t rest = total - sent,
	       from_pending = sent < t->pending_len ? t->pending_len - sent : 0;
	char *p;

	if (rest == 0) {
		mem_free(t->pending);
		t->pending = NULL;
		t->pending_len = 0;
		io->out_len = 0;
		return 0;
	}
	if (from_pending && sent)
		memmove(t->pending, t->pending + sent, from_pending);
	p = mem_realloc(t->pending, rest);
	if (!p) {
		io->out_len = 0;
		return -ENOMEM;
	}
	memcpy(p + from_pending, io->out + (io->out_len - (rest - from_pending)),
	       rest - from_pending);
	t->pending = p;
	t->pending_len = rest;
	io->out_len = 0;
	return 0;
}

int tls_flush(struct tls *t, bool more)
{
	struct conn *c = t->c;
	struct tls_io *io = c->nw->tls_io;
	struct iovec iov[2] = { { t->pending, t->pending_len }, { io->out, io->out_len } };
	ssize_t n = 0;
	int r;

	t->is_held = false;
	if (io->out_len == 0 && (t->pending_len == 0 || !c->raw_write))
		return 0;
	if (c->raw_write)
		n = raw_sendv(c, t->pending_len ? iov : iov + 1, t->pending_len ? 2 : 1, more);
	if (n < 0 && n != -EAGAIN) {
		io->out_len = 0;
		t->io_err = (int)-n;
		return (int)n;
	}
	if (n > 0)
		t->n_sent += (size_t)n;
	r = keep_rest(t, io, n > 0 ? (size_t)n : 0);
	if (r) {
		t->io_err = -r;
		return conn_fail(c, CONN_ERR_SYSTEM, r);
	}
	if (t->has_shut && t->pending_len == 0)
		tcp_ops.shut_write(c);
	return 0;
}

int tls_hold(struct tls *t)
{
	int r = keep_rest(t, t->c->nw->tls_io, 0);

	if (r) {
		t->io_err = -r;
		return conn_fail(t->c, CONN_ERR_SYSTEM, r);
	}
	t->is_held = t->pending_len != 0;
	return 0;
}

static int bio_write(BIO *b, const char *data, size_t len, size_t *ret_written)
{
	struct tls *t = BIO_get_data(b);
	struct tls_io *io = t->c->nw->tls_io;
	size_t left = len;

	BIO_clear_retry_flags(b);
	while (left) {
		size_t n = OUT_SIZE - io->out_len;

		if (n > left)
			n = left;
		memcpy(io->out + io->out_len, data, n);
		io->out_len += n;
		t->n_out += n;
		data += n;
		left -= n;
		if (left && tls_flush(t, true))
			return -1;
	}
	*ret_written = len;
	return 1;
}

static int bio_read(BIO *b, char *data, size_t size, size_t *ret_read)
{
	struct tls *t = BIO_get_data(b);
	ssize_t n = -EAGAIN;

	BIO_clear_retry_flags(b);
	*ret_read = 0;
	if (t->c->raw_read)
		n = raw_recv(t->c, data, size);
	if (n > 0) {
		*ret_read = (size_t)n;
		return 1;
	}
	if (n == 0)
		t->is_eof = true;
	else if (n == -EAGAIN)
		BIO_set_retry_read(b);
	else
		t->io_err = (int)-n;
	return n == 0 ? 0 : -1;
}

static long bio_ctrl(BIO *b, int cmd, long num, void *ptr)
{
	struct tls *t = BIO_get_data(b);

	(void)num;
	(void)ptr;
	switch (cmd) {
	case BIO_CTRL_FLUSH:
		return 1;
	case BIO_CTRL_EOF:
		return t->is_eof;
	default:
		return 0;
	}
}

void net_tls_global_init(void)
{
	OPENSSL_init_ssl(OPENSSL_INIT_LOAD_SSL_STRINGS | OPENSSL_INIT_LOAD_CRYPTO_STRINGS, NULL);
	if (bio_method)
		return;
	if (tls_kdf_global_init())
		log_msg(LOG_LVL_WARNING,
			"TLS: OpenSSL does not take our key schedule, handshakes will be slower: "
			"%s",
			tls_reason());
	bio_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "connection");
	BUG_ON(!bio_method);
	BIO_meth_set_write_ex(bio_method, bio_write);
	BIO_meth_set_read_ex(bio_method, bio_read);
	BIO_meth_set_ctrl(bio_method, bio_ctrl);
}

int tls_set_bio(struct tls *t)
{
	BIO *bio;

	BUG_ON(!bio_method);
	bio = BIO_new(bio_method);
	if (!bio)
		return -ENOMEM;
	BIO_set_data(bio, t);
	BIO_set_init(bio, 1);
	SSL_set_bio(t->ssl, bio, bio);
	return 0;
}

struct tls_io *tls_io_get(struct net_worker *nw)
{
	struct tls_io *io = nw->tls_io;

	if (io)
		return io;
	io = mem_alloc(sizeof(*io));
	if (!io)
		return NULL;
	io->out_len = 0;
	pool_init(&io->tls, "tls", sizeof(struct tls), 1024);
	nw->tls_io = io;
	return io;
}

void tls_io_free(struct net_worker *nw)
{
	if (!nw->tls_io)
		return;
	pool_trim(&nw->tls_io->tls);
	mem_free(nw->tls_io);
	nw->tls_io = NULL;
}

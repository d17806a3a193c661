/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * TLS connections: the conn_ops over an SSL object. Worker's thread. `struct tls` and its SSL belong
 * to the connection; the output buffer is one per worker and empty between calls.
 */
#include <errno.h>
#include <openssl/err.h>

#include "net/tls_priv.h"

/* --- failures --- */

/*
 * Before every call whose result SSL_get_error() may be asked about. ERR_clear_error() walks all entries of the queue, also
 * of an empty one: 800 instructions, a twelfth of what encrypting a short record takes.
 */
static void forget_errors(void)
{
	if (unlikely(ERR_peek_error()))
		ERR_clear_error();
}

static enum conn_error reason_to_error(int reason)
{
	switch (reason) {
	case SSL_R_CERTIFICATE_VERIFY_FAILED:
	case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
		return CONN_ERR_TLS_VERIFY;
	case SSL_R_NO_APPLICATION_PROTOCOL:
	case SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL:
		return CONN_ERR_TLS_ALPN;
	case SSL_R_TLSV1_UNRECOGNIZED_NAME:
		return CONN_ERR_TLS_NO_CERT;
	case SSL_R_HTTP_REQUEST:
	case SSL_R_HTTPS_PROXY_REQUEST:
	case SSL_R_WRONG_VERSION_NUMBER:
	case SSL_R_UNSUPPORTED_PROTOCOL:
	case SSL_R_BAD_RECORD_TYPE:
	case SSL_R_UNEXPECTED_MESSAGE:
	case SSL_R_UNEXPECTED_RECORD:
	case SSL_R_LENGTH_MISMATCH:
	case SSL_R_PACKET_LENGTH_TOO_LONG:
	case SSL_R_BAD_PACKET:
	case SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC:
		return CONN_ERR_TLS_PROTOCOL;
	default:
		return CONN_ERR_TLS_OTHER;
	}
}

static enum conn_error handshake_error(const struct tls *t)
{
	if (t->has_no_cert)
		return CONN_ERR_TLS_NO_CERT;
	if (t->has_alpn_failed)
		return CONN_ERR_TLS_ALPN;
	if (t->io_err == ECONNRESET || t->io_err == EPIPE)
		return CONN_ERR_TLS_CLOSED;
	if (t->io_err)
		return conn_error_from_errno(t->io_err);
	if (t->is_eof)
		return CONN_ERR_TLS_CLOSED;
	return reason_to_error(ERR_GET_REASON(t->ssl_err));
}

/* After a fatal error the SSL object must not be used again, not even for a close_notify (SSL_get_error(3)). */
static int tls_fail(struct tls *t)
{
	struct conn *c = t->c;
	enum conn_error why = CONN_ERR_TLS_PROTOCOL;
	int err;

	if (!t->ssl_err)
		t->ssl_err = ERR_peek_error();
	ERR_clear_error();
	t->is_failed = true;
	/* The alert, when there is one. */
	if (!t->io_err)
		(void)tls_flush(t, false);
	c->nw->tls_io->out_len = 0;
	err = t->io_err ? t->io_err : t->is_eof ? ECONNRESET : EPROTO;
	if (c->state != CONN_OPEN)
		why = handshake_error(t);
	else if (err != EPROTO)
		why = conn_error_from_errno(err);
	t->io_err = err;
	return conn_fail(c, why, -err);
}

/* --- handshake --- */

static int tls_new_server_ssl(struct tls *t)
{
	SSL *ssl = SSL_new(t->srv->base->ctx);

	if (!ssl)
		return -ENOMEM;
	SSL_set_accept_state(ssl);
	SSL_set_app_data(ssl, t);
	t->ssl = ssl;
	return 0;
}

static int tls_new_ssl(struct tls *t)
{
	int r = t->ssl ? 0 : tls_new_server_ssl(t);

	return r ? r : tls_set_bio(t);
}

/*
 * What OpenSSL wrote last may join the first data in one send. A server's TLS 1.3 tickets do when the
 * request came with the client's Finished; otherwise they go at once, because their acknowledgement is what a
 * client under Nagle's algorithm waits for before it sends its request (40 ms else). A client's
 * Finished waits for the request until the end of this iteration.
 */
static int finish_handshake(struct tls *t)
{
	struct conn *c = t->c;

	c->state = CONN_OPEN;
	c->doing = "open";
	c->can_read = c->raw_read || SSL_has_pending(t->ssl);
	if (c->nw->tls_io->out_len == 0 || !c->raw_write)
		return tls_flush(t, false);
	if (t->cli)
		loop_defer(c->nw->loop, &t->flush);
	else if (SSL_version(t->ssl) != TLS1_3_VERSION || !SSL_has_pending(t->ssl))
		return tls_flush(t, false);
	return tls_hold(t);
}

static int tls_advance(struct conn *c)
{
	struct tls *t = c->tls;
	int r = raw_advance(c), e;

	if (r)
		return r;
	if (t->is_failed)
		return -t->io_err;
	c->doing = "TLS handshake";
	if (!t->ssl || !SSL_get_rbio(t->ssl)) {
		r = tls_new_ssl(t);
		if (r)
			return conn_fail(c, CONN_ERR_SYSTEM, r);
	}
	forget_errors();
	r = SSL_do_handshake(t->ssl);
	if (r == 1) {
		r = finish_handshake(t);
		c->can_write = c->raw_write;
		if (r == 0)
			return 0;
		c->state = CONN_HANDSHAKE;
		return tls_fail(t);
	}
	e = SSL_get_error(t->ssl, r);
	if (e != SSL_ERROR_WANT_READ && e != SSL_ERROR_WANT_WRITE)
		return tls_fail(t);
	if (tls_flush(t, false))
		return tls_fail(t);
	c->can_read = c->raw_read;
	c->can_write = c->raw_write;
	return -EAGAIN;
}

/* --- data --- */

static ssize_t tls_recv(struct conn *c, void *mem, size_t size)
{
	struct tls *t = c->tls;
	size_t got = 0, n;
	ssize_t r = -EAGAIN;

	if (t->is_failed)
		return -t->io_err;
	while (got < size) {
		int e;

		if (!c->raw_read && !SSL_has_pending(t->ssl) &&
		    !(SSL_get_shutdown(t->ssl) & SSL_RECEIVED_SHUTDOWN))
			break;
		forget_errors();
		if (SSL_read_ex(t->ssl, (char *)mem + got, size - got, &n)) {
			got += n;
			continue;
		}
		e = SSL_get_error(t->ssl, 0);
		if (e == SSL_ERROR_WANT_READ || e == SSL_ERROR_WANT_WRITE)
			break;
		if (e == SSL_ERROR_ZERO_RETURN) {
			c->peer_closed = true;
			r = 0;
		} else {
			r = tls_fail(t);
		}
		break;
	}
	/* A KeyUpdate's or alert's answer; tickets that wait go on waiting. */
	if (c->nw->tls_io->out_len && !t->is_failed && tls_flush(t, false))
		r = tls_fail(t);
	if (t->waits_to_write && SSL_is_init_finished(t->ssl)) {
		t->waits_to_write = false;
		c->can_write = c->raw_write;
	}
	/* The end, and an error, stay there to be read again. */
	c->can_read = r != -EAGAIN || c->raw_read || (got == size && SSL_has_pending(t->ssl));
	return got ? (ssize_t)got : r;
}

/* A place in the caller's vector. */
struct cursor {
	const struct iovec *iov;
	int n;
	size_t off;
};

static void cursor_skip(struct cursor *k, size_t n)
{
	while (k->n && n >= k->iov->iov_len - k->off) {
		n -= k->iov->iov_len - k->off;
		k->off = 0;
		k->iov++;
		k->n--;
	}
	if (k->n)
		k->off += n;
}

/* The next record's bytes: in place when one piece fills it or is the last, else copied together. */
static const char *cursor_take(struct cursor *k, char *plain, size_t max, size_t *ret_len)
{
	size_t len = k->iov->iov_len - k->off;
	const char *p = (const char *)k->iov->iov_base + k->off;

	if (len >= max || k->n == 1) {
		len = len < max ? len : max;
		cursor_skip(k, len);
		*ret_len = len;
		return p;
	}
	*ret_len = 0;
	while (k->n && *ret_len < max) {
		len = k->iov->iov_len - k->off;
		if (len > max - *ret_len)
			len = max - *ret_len;
		memcpy(plain + *ret_len, (const char *)k->iov->iov_base + k->off, len);
		*ret_len += len;
		cursor_skip(k, len);
	}
	return plain;
}

/* Encrypts records as long as the next fits the buffer, sends them, and says how much of them has left. */
static ssize_t write_records(struct tls *t, struct cursor *k, bool more)
{
	struct tls_io *io = t->c->nw->tls_io;
	struct {
		uint64_t end;
		size_t plain;
	} rec[BATCH_SMALL];
	size_t max = t->srv ? t->srv->record_max : t->cli->record_max;
	size_t taken = 0, n;
	int n_rec = 0;

	while (k->n && n_rec < BATCH_SMALL && OUT_SIZE - io->out_len >= max + RECORD_COST) {
		size_t len, written;
		const char *p = cursor_take(k, io->plain, max, &len);

		if (len == 0)
			continue;
		/* Ours never makes it wait but in a renegotiation: errors of before need not be forgotten each time. */
		if (unlikely(!SSL_write_ex(t->ssl, p, len, &written))) {
			t->waits_to_write = SSL_get_error(t->ssl, 0) == SSL_ERROR_WANT_READ;
			if (!t->waits_to_write)
				return tls_fail(t);
			break;
		}
		/* The BIO never blocks, so a record is written whole. */
		BUG_ON(written != len);
		rec[n_rec].end = t->n_out;
		rec[n_rec++].plain = len;
	}
	if (tls_flush(t, more || k->n))
		return tls_fail(t);
	for (int i = 0; i < n_rec; i++) {
		n = rec[i].plain;
		if (rec[i].end <= t->n_sent)
			taken += n;
		else
			t->early += n;
	}
	return (ssize_t)taken;
}

static ssize_t tls_sendv(struct conn *c, const struct iovec *iov, int n, bool more)
{
	struct tls *t = c->tls;
	struct cursor k = { iov, n, 0 };
	size_t total = 0, skipped;
	ssize_t r = 0;

	if (t->is_failed)
		return -t->io_err;
	for (int i = 0; i < n; i++)
		total += iov[i].iov_len;
	if (total == 0)
		return 0;
	if (t->pending_len && !t->is_held && tls_flush(t, more))
		return tls_fail(t);
	if (!c->raw_write || (t->pending_len && !t->is_held)) {
		c->can_write = false;
		return -EAGAIN;
	}
	/* The bytes that were encrypted by a call before and have left meanwhile. */
	skipped = t->early < total ? t->early : total;
	t->early -= skipped;
	cursor_skip(&k, skipped);
	if (k.n)
		r = write_records(t, &k, more);
	c->can_write = c->raw_write && !t->waits_to_write;
	if (r < 0)
		return skipped ? (ssize_t)skipped : r;
	if ((size_t)r + skipped == 0)
		return -EAGAIN;
	return r + (ssize_t)skipped;
}

void tls_on_writable(struct conn *c)
{
	struct tls *t = c->tls;

	if (t->is_failed || t->is_held || t->pending_len == 0)
		return;
	if (tls_flush(t, false))
		(void)tls_fail(t);
}

static void tls_on_deferred(struct deferred *d)
{
	struct tls *t = container_of(d, struct tls, flush);

	if (!t->is_failed && t->is_held && tls_flush(t, false))
		(void)tls_fail(t);
}

static void tls_shut_write(struct conn *c)
{
	struct tls *t = c->tls;

	if (t->is_failed || t->has_shut)
		return;
	forget_errors();
	(void)SSL_shutdown(t->ssl);
	t->has_shut = true;
	/* Also does the FIN, now or when the rest has left. */
	if (t->pending_len + c->nw->tls_io->out_len == 0)
		tcp_ops.shut_write(c);
	else
		(void)tls_flush(t, false);
}

static void tls_bye(struct conn *c)
{
	struct tls *t = c->tls;

	if (t->is_failed || t->has_shut)
		return;
	forget_errors();
	(void)SSL_shutdown(t->ssl);
	(void)tls_flush(t, false);
}

static void tls_idle(struct conn *c)
{
	struct tls *t = c->tls;

	/*
	 * What the handshake leaves behind, once: afterwards SSL_MODE_RELEASE_BUFFERS gives buffers back as soon as they are
	 * empty, and this would be 650 instructions per request for nothing. Refused, harmlessly, while something is buffered.
	 */
	if (t->ssl && !t->is_failed && !t->has_been_idle)
		t->has_been_idle = SSL_free_buffers(t->ssl) == 1;
}

bool tls_is_reusable(struct conn *c)
{
	struct tls *t = c->tls;
	char byte;
	int r, e;

	if (t->is_failed)
		return false;
	/* TLS 1.3 tickets are no surprise: OpenSSL takes them and finds no data (RFC 8446 4.6.1). */
	forget_errors();
	r = SSL_peek(t->ssl, &byte, 1);
	e = r > 0 ? SSL_ERROR_NONE : SSL_get_error(t->ssl, r);
	if (e != SSL_ERROR_WANT_READ || (c->nw->tls_io->out_len && tls_flush(t, false))) {
		c->nw->tls_io->out_len = 0;
		return false;
	}
	c->can_read = c->raw_read;
	return !c->peer_closed && !c->is_broken;
}

/* --- life --- */

static struct tls *tls_new(struct conn *c)
{
	struct tls_io *io = tls_io_get(c->nw);
	struct tls *t = io ? pool_get(&io->tls) : NULL;

	if (!t)
		return NULL;
	memset(t, 0, sizeof(*t));
	t->c = c;
	deferred_init(&t->flush, tls_on_deferred);
	if (c->nw->n_tls)
		atomic_fetch_add_explicit(c->nw->n_tls, 1, memory_order_relaxed);
	c->tls = t;
	c->ops = &tls_ops;
	c->state = CONN_HANDSHAKE;
	c->doing = "TLS handshake";
	return t;
}

int tls_start_server(struct conn *c, struct tls_server *srv)
{
	struct tls *t = tls_new(c);

	if (!t)
		return -ENOMEM;
	atomic_fetch_add_explicit(&srv->refs, 1, memory_order_relaxed);
	t->srv = srv;
	return 0;
}

int tls_start_client(struct conn *c, struct tls_client *cli, struct str sni, struct str alpn)
{
	struct tls *t = tls_new(c);

	if (!t)
		return -ENOMEM;
	atomic_fetch_add_explicit(&cli->refs, 1, memory_order_relaxed);
	t->cli = cli;
	if (sni.len) {
		t->sni = mem_strdup(sni);
		if (!t->sni)
			return -ENOMEM;
	}
	t->ssl = tls_client_ssl(cli, t, sni);
	if (!t->ssl || (alpn.len && SSL_set_alpn_protos(t->ssl, (const unsigned char *)alpn.p,
							(unsigned)alpn.len)))
		return -ENOMEM;
	return 0;
}

static void tls_free(struct conn *c)
{
	struct tls *t = c->tls;

	if (!t)
		return;
	loop_undefer(&t->flush);
	if (t->ssl && !t->is_failed) {
		/* However the connection ends, the session stays good (SSL_set_shutdown(3)). */
		SSL_set_shutdown(t->ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
	}
	SSL_free(t->ssl);
	if (t->srv)
		tls_server_put(t->srv);
	if (t->cli)
		tls_client_put(t->cli);
	tls_capture_free(t);
	mem_free(t->sni);
	mem_free(t->pending);
	c->nw->tls_io->out_len = 0;
	c->tls = NULL;
	pool_put(&c->nw->tls_io->tls, t);
	if (!c->nw->n_tls)
		return;
	/* Sequentially consistent: a listener that pauses meanwhile sees one, or is seen (proxy/accept.c). */
	atomic_fetch_sub(c->nw->n_tls, 1);
	c->nw->on_tls_end(c->nw);
}

const struct conn_ops tls_ops = {
	.name = "tls",
	.recv = tls_recv,
	.sendv = tls_sendv,
	.advance = tls_advance,
	.shut_write = tls_shut_write,
	.idle = tls_idle,
	.free = tls_free,
	.bye = tls_bye,
};

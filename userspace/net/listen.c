/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opening listening sockets: one per worker with SO_REUSEPORT, or one shared for Unix paths and inherited
 * descriptors. Control thread. A listen_socket is counted by the configurations that use it, so that
 * a reload takes sockets over with the connections waiting in them.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/net_priv.h"

#define DEFAULT_BACKLOG 4096 /* the kernel cuts it to net.core.somaxconn */
#define TFO_QUEUE	256
#define DEFER_SECONDS	1

size_t str_to_cstr(struct str s, char *out, size_t size)
{
	size_t n = s.len < size ? s.len : size - 1;

	if (n)
		memcpy(out, s.p, n);
	out[n] = '\0';
	return n;
}

/* "0.0.0.0:80", "/run/x.sock", "abns@x", "fd@3": also what identifies the socket at a reload. */
static char *endpoint_text(const struct endpoint *ep)
{
	char text[sizeof(((struct sockaddr_un *)0)->sun_path) + 16];

	switch (ep->kind) {
	case ENDPOINT_IP:
		addr_format(&ep->addr, text, sizeof(text));
		break;
	case ENDPOINT_UNIX:
		str_to_cstr(ep->path, text, sizeof(text));
		break;
	case ENDPOINT_ABNS:
		snprintf(text, sizeof(text), "abns@" STR_FMT, STR_ARG(ep->path));
		break;
	case ENDPOINT_FD:
		snprintf(text, sizeof(text), "fd@%d", ep->fd);
		break;
	case ENDPOINT_NAME:
		snprintf(text, sizeof(text), STR_FMT, (int)(ep->host.len < 64 ? ep->host.len : 64),
			 ep->host.p);
		break;
	}
	return mem_strdup(str_from_cstr(text));
}

/* What an errno means here, and what helps. */
static const char *bind_reason(int err)
{
	switch (err) {
	case EADDRINUSE:
		return "address already in use (another program listens there; 'ss -ltnp' shows "
		       "it)";
	case EADDRNOTAVAIL:
		return "no interface has this address (add it, or use 'transparent')";
	case EACCES:
		return "permission denied (a port below 1024 needs root or CAP_NET_BIND_SERVICE, "
		       "a path needs a writable directory)";
	case EPERM:
		return "not permitted ('transparent' and 'interface' need CAP_NET_ADMIN or "
		       "CAP_NET_RAW)";
	case ENODEV:
		return "no such interface";
	case EAFNOSUPPORT:
		return "this kernel does not speak that address family";
	case EMFILE:
	case ENFILE:
		return "out of file descriptors (raise 'ulimit-n')";
	case ENOENT:
		return "no such directory";
	case ENAMETOOLONG:
		return "the path is too long for a Unix socket";
	default:
		return strerror(err);
	}
}

static int set_int(int fd, int level, int opt, int value)
{
	return setsockopt(fd, level, opt, &value, sizeof(value)) < 0 ? -errno : 0;
}

/* Accepted sockets inherit TCP_NODELAY, SO_KEEPALIVE and its kin from the listening one: no system call for each. */
static int set_options(int fd, const struct conf_bind *b)
{
	bool is_v6 = b->ep.addr.sa.sa_family == AF_INET6;
	int r = set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);

	if (r == 0)
		r = set_int(fd, SOL_SOCKET, SO_REUSEPORT, 1);
	if (r == 0)
		r = set_int(fd, SOL_TCP, TCP_NODELAY, 1);
	if (r == 0 && b->proxy && b->proxy->options & (CONF_OPT(TCPKA) | CONF_OPT(CLITCPKA)))
		r = tcp_set_keepalive(fd, &b->proxy->ka_client);
	/* Before listen(): the window scale is chosen with the first SYN (tcp(7)). */
	if (r == 0 && b->proxy && b->proxy->conf)
		r = tcp_set_buffers(fd, b->proxy->conf->global.rcvbuf_client,
				    b->proxy->conf->global.sndbuf_client);
	if (r == 0 && b->mss)
		r = set_int(fd, SOL_TCP, TCP_MAXSEG, b->mss);
	if (r == 0 && is_v6 && (b->v6only || b->v4v6))
		r = set_int(fd, SOL_IPV6, IPV6_V6ONLY, b->v6only);
	if (r == 0 && b->transparent)
		r = is_v6 ? set_int(fd, SOL_IPV6, IPV6_TRANSPARENT, 1)
			  : set_int(fd, SOL_IP, IP_TRANSPARENT, 1);
	if (r == 0 && b->interface &&
	    setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, b->interface,
		       (socklen_t)strlen(b->interface) + 1) < 0)
		r = -errno;
	if (r == 0)
		r = tcp_set_socket(fd, &b->sock);
	if (r == 0 && b->defer_accept)
		r = set_int(fd, SOL_TCP, TCP_DEFER_ACCEPT, DEFER_SECONDS);
	if (r == 0 && b->tfo)
		r = set_int(fd, SOL_TCP, TCP_FASTOPEN, TFO_QUEUE);
	return r;
}

static int backlog_of(const struct conf_bind *b)
{
	uint32_t n = b->backlog;

	if (n == 0 && b->proxy)
		n = b->proxy->backlog;
	if (n == 0)
		n = DEFAULT_BACKLOG;
	return n > INT32_MAX ? INT32_MAX : (int)n;
}

static int open_ip(const struct conf_bind *b)
{
	int fd = socket(b->ep.addr.sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int r;

	if (fd < 0)
		return -errno;
	r = set_options(fd, b);
	if (r == 0 && bind(fd, &b->ep.addr.sa, addr_len(&b->ep.addr)) < 0)
		r = -errno;
	if (r == 0 && listen(fd, backlog_of(b)) < 0)
		r = -errno;
	if (r) {
		close(fd);
		return r;
	}
	return fd;
}

/*
 * SO_REUSEPORT lets a second process of the same user in without a word, and the kernel then deals
 * connections to both. A socket without it cannot be bound beside one that listens: that is the question asked here.
 */
static bool is_shared_with_others;

void listen_share_with_others(bool on)
{
	is_shared_with_others = on;
}

static int probe_port(const struct conf_bind *b)
{
	int one = 1, off = 0, r = 0;
	int fd;

	if (is_shared_with_others)
		return 0;
	fd = socket(b->ep.addr.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (set_options(fd, b) != 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &off, sizeof(off)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
	    bind(fd, &b->ep.addr.sa, addr_len(&b->ep.addr)) < 0)
		r = -errno;
	close(fd);
	return r;
}

static int bind_unix(const struct sockaddr_un *un, socklen_t len, const struct conf_bind *b)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int r = 0;

	if (fd < 0)
		return -errno;
	if (bind(fd, (const struct sockaddr *)un, len) < 0)
		r = -errno;
	/* Rights before listen(): nobody connects in between. */
	if (r == 0 && un->sun_path[0] && b->mode >= 0 && chmod(un->sun_path, (mode_t)b->mode) < 0)
		r = -errno;
	if (r == 0 && un->sun_path[0] && (b->uid >= 0 || b->gid >= 0) &&
	    chown(un->sun_path, (uid_t)b->uid, (gid_t)b->gid) < 0)
		r = -errno;
	if (r == 0 && listen(fd, backlog_of(b)) < 0)
		r = -errno;
	if (r) {
		close(fd);
		return r;
	}
	return fd;
}

static int open_abns(const struct conf_bind *b)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };

	if (b->ep.path.len >= sizeof(un.sun_path))
		return -ENAMETOOLONG;
	memcpy(un.sun_path + 1, b->ep.path.p, b->ep.path.len);
	return bind_unix(
		&un, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + b->ep.path.len), b);
}

/* Bound under another name and renamed, so that a live socket of the same path is replaced atomically. */
static int open_unix(const struct conf_bind *b, struct listen_socket *ls)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	char path[sizeof(un.sun_path)];
	struct stat st;
	int fd, n;

	if (str_to_cstr(b->ep.path, path, sizeof(path)) != b->ep.path.len)
		return -ENAMETOOLONG;
	n = snprintf(un.sun_path, sizeof(un.sun_path), "%s.%d.tmp", path, (int)getpid());
	if (n < 0 || (size_t)n >= sizeof(un.sun_path))
		return -ENAMETOOLONG;
	if (lstat(path, &st) == 0 && !S_ISSOCK(st.st_mode))
		return -EEXIST;
	unlink(un.sun_path);
	fd = bind_unix(&un, sizeof(un), b);
	if (fd >= 0 && (lstat(un.sun_path, &st) < 0 || rename(un.sun_path, path) < 0)) {
		int r = -errno;

		close(fd);
		fd = r;
	}
	if (fd < 0) {
		unlink(un.sun_path);
		return fd;
	}
	ls->path_dev = st.st_dev;
	ls->path_ino = st.st_ino;
	return fd;
}

/* A supervisor's socket: duplicated, so that the configuration may name it again; perhaps still blocking. */
static int open_inherited(const struct conf_bind *b)
{
	int is_listening = 0, fd, r = 0;
	socklen_t len = sizeof(is_listening);

	if (getsockopt(b->ep.fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &len) < 0)
		return -errno;
	fd = fcntl(b->ep.fd, F_DUPFD_CLOEXEC, 3);
	if (fd < 0)
		return -errno;
	if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0)
		r = -errno;
	if (r == 0 && !is_listening && listen(fd, backlog_of(b)) < 0)
		r = -errno;
	if (r) {
		close(fd);
		return r;
	}
	return fd;
}

static int open_shared(const struct conf_bind *b, struct listen_socket *ls)
{
	switch (b->ep.kind) {
	case ENDPOINT_UNIX:
		return open_unix(b, ls);
	case ENDPOINT_ABNS:
		return open_abns(b);
	default:
		return open_inherited(b);
	}
}

static int open_all(const struct conf_bind *b, struct listen_socket *ls)
{
	for (unsigned i = 0; i < ls->n_fds; i++) {
		int fd = ls->is_shared && i ? ls->fds[0]
			 : ls->is_shared    ? open_shared(b, ls)
					    : open_ip(b);

		if (fd < 0)
			return fd;
		ls->fds[i] = fd;
	}
	return 0;
}

static bool is_text_eq(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool is_same(const struct listen_socket *ls, const struct listen_socket *wanted)
{
	return ls->ep.kind == wanted->ep.kind && is_text_eq(ls->text, wanted->text) &&
	       is_text_eq(ls->interface, wanted->interface) &&
	       is_text_eq(ls->netns, wanted->netns) && ls->transparent == wanted->transparent &&
	       ls->v6only == wanted->v6only && ls->n_fds == wanted->n_fds;
}

/* Taken over: the backlog (listen(2) again) and what new connections inherit may change. */
static struct listen_socket *take_over(struct list *old, const struct listen_socket *wanted,
				       const struct conf_bind *b)
{
	struct list *pos;

	if (!old)
		return NULL;
	list_for_each(pos, old) {
		struct listen_socket *ls = list_entry(pos, struct listen_socket, link);

		if (!is_same(ls, wanted))
			continue;
		for (unsigned i = 0; i < (ls->is_shared ? 1 : ls->n_fds); i++) {
			if (listen(ls->fds[i], backlog_of(b)) < 0)
				return NULL;
			if (ls->ep.kind == ENDPOINT_IP && tcp_set_socket(ls->fds[i], &b->sock))
				return NULL;
		}
		ls->users++;
		return ls;
	}
	return NULL;
}

static bool holds_address(const struct list *old, const struct listen_socket *wanted)
{
	const struct list *pos;

	if (!old)
		return false;
	list_for_each(pos, old) {
		const struct listen_socket *ls = list_entry(pos, struct listen_socket, link);

		if (ls->ep.kind == ENDPOINT_IP &&
		    addr_port(&ls->ep.addr) == addr_port(&wanted->ep.addr))
			return true;
	}
	return false;
}

static int check_bind(const struct conf_bind *b, struct err *err)
{
	if (b->ep.is_dgram)
		return err_set(err, -EINVAL,
			       "cannot listen on %s: datagram addresses need 'mode l4'", b->text);
	if (b->ep.is_sockpair)
		return err_set(err, -EINVAL, "cannot listen on %s: sockpair@ is not supported",
			       b->text);
	if (b->ep.kind == ENDPOINT_NAME)
		return err_set(
			err, -EINVAL,
			"cannot listen on %s: not an address ('bind' does not resolve names)",
			b->text);
	if (b->ep.kind == ENDPOINT_IP && addr_port(&b->ep.addr) == 0)
		return err_set(err, -EINVAL, "cannot listen on %s: missing port", b->text);
	return 0;
}

/* Everything but the sockets. */
static struct listen_socket *listen_alloc(const struct conf_bind *b, unsigned n_workers)
{
	struct listen_socket *ls = mem_zalloc(sizeof(*ls));

	if (!ls)
		return NULL;
	list_init(&ls->link);
	ls->ep = b->ep;
	ls->users = 1;
	ls->steer_map = -1;
	ls->transparent = b->transparent;
	ls->v6only = b->v6only;
	ls->is_shared = b->ep.kind != ENDPOINT_IP;
	ls->text = endpoint_text(&b->ep);
	ls->fds = mem_alloc(n_workers * sizeof(*ls->fds));
	ls->interface = b->interface ? mem_strdup(str_from_cstr(b->interface)) : NULL;
	ls->netns = b->sock.netns ? mem_strdup(str_from_cstr(b->sock.netns)) : NULL;
	if (!ls->text || !ls->fds || (b->interface && !ls->interface) ||
	    (b->sock.netns && !ls->netns)) {
		listen_close(ls);
		return NULL;
	}
	ls->n_fds = n_workers;
	for (unsigned i = 0; i < n_workers; i++)
		ls->fds[i] = -1;
	/* The endpoint's slices point into the configuration, which goes before the socket does. */
	ls->ep.host = STR_NULL;
	ls->ep.path = ls->ep.kind == ENDPOINT_UNIX ? str_from_cstr(ls->text) : STR_NULL;
	return ls;
}

/* In the namespace that the line names; an error about that is in `err`, which is empty otherwise. */
static int open_sockets(const struct conf_bind *b, struct listen_socket *ls, struct list *old,
			struct err *err)
{
	int fd = -1, r;

	err->text[0] = '\0';
	if (ls->netns) {
		r = netns_open(ls->netns, &fd, err);
		if (r == 0)
			r = netns_enter(fd);
		if (fd >= 0)
			close(fd);
		if (r)
			return r;
	}
	/* A property may have changed while the address is ours already. */
	r = ls->is_shared || holds_address(old, ls) ? 0 : probe_port(b);
	if (r == 0)
		r = open_all(b, ls);
	if (ls->netns)
		netns_leave();
	return r;
}

int listen_open(const struct conf_bind *b, unsigned n_workers, struct list *old,
		struct listen_socket **ret_ls, struct err *err)
{
	struct listen_socket *ls, *taken;
	int r = check_bind(b, err);

	if (r)
		return r;
	ls = listen_alloc(b, n_workers);
	if (!ls)
		return err_set(err, -ENOMEM, "cannot listen on %s: out of memory", b->text);
	taken = take_over(old, ls, b);
	if (taken) {
		listen_close(ls);
		*ret_ls = taken;
		return 0;
	}
	r = open_sockets(b, ls, old, err);
	if (r && b->sock.netns && err->text[0]) {
		listen_close(ls);
		return r;
	}
	if (r) {
		err_set(err, r, "cannot bind to %s: %s", b->text,
			r == -EEXIST ? "the path exists and is not a socket"
			: r == -EBADF || r == -ENOTSOCK
				? "not an inherited socket (is the supervisor passing it?)"
				: bind_reason(-r));
		listen_close(ls);
		return r;
	}
	*ret_ls = ls;
	return 0;
}

/* Our copy is closed; a master's, a worker's or a new process's may still listen. */
static bool is_listened_on(const char *path)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	bool is_refused;

	if (fd < 0 || strlen(path) >= sizeof(un.sun_path))
		return true;
	memcpy(un.sun_path, path, strlen(path) + 1);
	is_refused = connect(fd, (struct sockaddr *)&un, sizeof(un)) < 0 && errno == ECONNREFUSED;
	close(fd);
	return !is_refused;
}

/* Only if it is still ours: a newer process may have put its own there, or have taken this one over. */
static void remove_path(const struct listen_socket *ls)
{
	struct stat st;

	if (ls->path_ino && lstat(ls->text, &st) == 0 && st.st_dev == ls->path_dev &&
	    st.st_ino == ls->path_ino && !is_listened_on(ls->text))
		unlink(ls->text);
}

void listen_end_steering(struct listen_socket *ls)
{
	if (ls->steer_map >= 0)
		close(ls->steer_map);
	ls->steer_map = -1;
}

void listen_shut(struct listen_socket *ls)
{
	listen_end_steering(ls);
	for (unsigned i = 0; i < ls->n_fds; i++) {
		if (ls->fds[i] >= 0 && (i == 0 || !ls->is_shared))
			close(ls->fds[i]);
		ls->fds[i] = -1;
	}
	remove_path(ls);
	ls->path_ino = 0;
	list_del(&ls->link);
}

void listen_close(struct listen_socket *ls)
{
	if (!ls || --ls->users > 0)
		return;
	listen_shut(ls);
	mem_free(ls->fds);
	mem_free(ls->text);
	mem_free(ls->interface);
	mem_free(ls->netns);
	mem_free(ls);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* The runtime API's sockets: opened, kept and closed as the configuration says. Control thread. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"
#include "ctl/admin_priv.h"

static void socket_accept(struct ev_fd *ev, uint32_t events)
{
	struct admin_socket *as = container_of(ev, struct admin_socket, ev);

	for (;;) {
		int fd = accept4(ev->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0)
			return;
		if (admin_client_open(as, fd) != 0)
			close(fd);
	}
}

/* /run is empty after a boot: the socket's own directory is made, one level, for everybody to see, ours to write. */
static void make_parent(const char *path)
{
	char dir[sizeof(((struct sockaddr_un *)0)->sun_path)];
	const char *slash = strrchr(path, '/');

	if (!slash || slash == path || (size_t)(slash - path) >= sizeof(dir))
		return;
	memcpy(dir, path, (size_t)(slash - path));
	dir[slash - path] = '\0';
	(void)mkdir(dir, 0755); /* when it cannot be made, bind() says what is wrong */
}

static int socket_bind_unix(const struct conf_stats_socket *cs, struct err *err)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	char temp[sizeof(un.sun_path)], path[sizeof(un.sun_path)];
	int fd, rc = 0;

	if (cs->ep.path.len + 8 > sizeof(un.sun_path))
		return err_set(err, -ENAMETOOLONG, "socket path too long");
	memcpy(path, cs->ep.path.p, cs->ep.path.len);
	path[cs->ep.path.len] = '\0';
	if (snprintf(temp, sizeof(temp), "%s.%d", path, (int)getpid() % 1000000) >=
	    (int)sizeof(temp))
		return err_set(err, -ENAMETOOLONG, "socket path too long");
	memcpy(un.sun_path, temp, sizeof(temp));
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_set(err, -errno, "cannot make a socket: %m");
	make_parent(path);
	(void)unlink(temp);
	/* Bound beside and renamed over: a socket of that name answers at every moment. */
	if (bind(fd, (struct sockaddr *)&un, sizeof(un)) != 0)
		rc = err_set(err, -errno, "cannot bind %s: %m", path);
	else if ((cs->mode >= 0 && chmod(temp, (mode_t)cs->mode) != 0) ||
		 ((cs->uid >= 0 || cs->gid >= 0) &&
		  chown(temp, (uid_t)cs->uid, (gid_t)cs->gid) != 0))
		rc = err_set(err, -errno, "cannot set owner or mode of %s: %m", path);
	else if (listen(fd, 64) != 0 || rename(temp, path) != 0)
		rc = err_set(err, -errno, "cannot listen on %s: %m", path);
	if (rc != 0) {
		(void)unlink(temp);
		close(fd);
		return rc;
	}
	return fd;
}

static int socket_bind_ip(const struct conf_stats_socket *cs, struct err *err)
{
	int one = 1,
	    fd = socket(cs->ep.addr.sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return err_set(err, -errno, "cannot make a socket: %m");
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, &cs->ep.addr.sa, addr_len(&cs->ep.addr)) != 0 || listen(fd, 64) != 0) {
		int rc = err_set(err, -errno, "cannot bind %s: %m", cs->text);

		close(fd);
		return rc;
	}
	return fd;
}

static int socket_inherit(int given, struct err *err)
{
	int fd = fcntl(given, F_DUPFD_CLOEXEC, 3);

	if (fd < 0 || fcntl(fd, F_SETFL, O_NONBLOCK) < 0) {
		if (fd >= 0)
			close(fd);
		return err_set(err, -EBADF, "fd@%d is not open", given);
	}
	return fd;
}

static int socket_bind(const struct conf_stats_socket *cs, struct err *err)
{
	switch (cs->ep.kind) {
	case ENDPOINT_UNIX:
		return socket_bind_unix(cs, err);
	case ENDPOINT_IP:
		return socket_bind_ip(cs, err);
	case ENDPOINT_FD:
		return socket_inherit(cs->ep.fd, err);
	default:
		return err_set(err, -EINVAL,
			       "a stats socket is a path, an address with port, or fd@N");
	}
}

static void socket_close(struct admin_socket *as)
{
	int fd = as->ev.fd;
	struct stat st;

	loop_del_fd(as->admin->ctl->loop, &as->ev);
	if (fd >= 0)
		close(fd);
	/* Only ours: a process that replaces us has put its own there. */
	if (as->path && lstat(as->path, &st) == 0 && st.st_dev == as->path_dev &&
	    st.st_ino == as->path_ino)
		(void)unlink(as->path);
	list_del(&as->link);
	mem_free(as->path);
	mem_free(as->text);
	mem_free(as);
}

static void socket_remember_path(struct admin_socket *as, struct str path)
{
	struct stat st;

	as->path = mem_strdup(path);
	if (as->path && lstat(as->path, &st) == 0) {
		as->path_dev = st.st_dev;
		as->path_ino = st.st_ino;
	}
}

int admin_open_socket(struct admin *a, const struct conf_stats_socket *cs, struct err *err)
{
	struct admin_socket *as = mem_zalloc(sizeof(*as));
	int fd, rc;

	if (!as)
		return err_set(err, -ENOMEM, "out of memory");
	list_init(&as->link);
	as->admin = a;
	as->level = (enum conf_level)cs->level;
	as->severity = cs->severity;
	as->exposes_fd = cs->expose_fd;
	as->ev.fd = -1;
	as->ev.on_event = socket_accept;
	as->is_wanted = true;
	as->text = mem_strdup(str_from_cstr(cs->text));
	fd = as->text ? socket_bind(cs, err) : err_set(err, -ENOMEM, "out of memory");
	if (fd < 0) {
		mem_free(as->text);
		mem_free(as);
		return cs->pos.file ? err_prefix(err, fd, "%s:%u:%u: error", cs->pos.file,
						 cs->pos.line, cs->pos.column)
				    : fd;
	}
	if (cs->ep.kind == ENDPOINT_UNIX)
		socket_remember_path(as, cs->ep.path);
	list_push_back(&a->sockets, &as->link);
	rc = loop_add_fd(a->ctl->loop, &as->ev, fd, LOOP_LEVEL);
	if (rc != 0) {
		close(fd);
		socket_close(as);
		return err_set(err, rc, "cannot watch the stats socket");
	}
	return 0;
}

static struct admin_socket *socket_find(struct admin *a, const char *text)
{
	struct list *l;

	list_for_each(l, &a->sockets) {
		struct admin_socket *as = list_entry(l, struct admin_socket, link);

		if (strcmp(as->text, text) == 0)
			return as;
	}
	return NULL;
}

int admin_configure(struct admin *a, const struct conf *conf, struct err *err)
{
	struct list *l, *next;

	a->timeout_ns = conf->global.stats_timeout ? conf->global.stats_timeout : 10000000000ull;
	list_for_each(l, &a->sockets)
		list_entry(l, struct admin_socket, link)->is_wanted = false;
	list_for_each(l, &conf->global.stats_sockets) {
		const struct conf_stats_socket *cs = list_entry(l, struct conf_stats_socket, link);
		struct admin_socket *as = socket_find(a, cs->text);
		int rc;

		if (as) {
			as->is_wanted = true;
			as->level = (enum conf_level)cs->level;
			as->severity = cs->severity;
			as->exposes_fd = cs->expose_fd;
			continue;
		}
		if ((rc = admin_open_socket(a, cs, err)) != 0)
			return rc;
	}
	list_for_each_safe(l, next, &a->sockets)
		if (!list_entry(l, struct admin_socket, link)->is_wanted)
			socket_close(list_entry(l, struct admin_socket, link));
	return 0;
}

void admin_list_sockets(struct admin *a, FILE *out)
{
	static const char *const levels[] = { "user", "operator", "admin" };
	struct list *l;

	list_for_each(l, &a->sockets) {
		struct admin_socket *as = list_entry(l, struct admin_socket, link);

		fprintf(out, "%s%s %s all\n", as->path ? "unix@" : "", as->text, levels[as->level]);
	}
}

int admin_create(struct ctl *ctl, struct admin **ret_admin)
{
	struct admin *a = mem_zalloc(sizeof(*a));

	if (!a)
		return -ENOMEM;
	a->ctl = ctl;
	a->timeout_ns = 10000000000ull;
	list_init(&a->sockets);
	list_init(&a->clients);
	*ret_admin = a;
	return 0;
}

void admin_leave(struct admin *a)
{
	struct list *l;

	list_for_each(l, &a->clients)
		close(list_entry(l, struct admin_client, link)->ev.fd);
	list_for_each(l, &a->sockets)
		close(list_entry(l, struct admin_socket, link)->ev.fd);
}

void admin_destroy(struct admin *a)
{
	struct list *l, *next;

	if (!a)
		return;
	/* The workers are gone and their mails delivered: no answer is under way. */
	list_for_each_safe(l, next, &a->clients)
		admin_client_close(list_entry(l, struct admin_client, link));
	list_for_each_safe(l, next, &a->sockets)
		socket_close(list_entry(l, struct admin_socket, link));
	mem_free(a);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reload in process: read, build beside what runs, publish, let the old one end with its last stream.
 * Anything that fails before publishing changes nothing. Control thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ctl/ctl_priv.h"
#include "ctl/dns.h"
#include "ctl/findings.h"
#include "ctl/master.h"

/* What a running process cannot change; said, not silently dropped. */
static void reload_remarks(struct ctl *ctl, const struct conf *old, const struct conf *new,
			   FILE *out)
{
	if (new->global.nbthread &&new->global.nbthread != ctl->n_workers)
		fprintf(out, "note: nbthread changes with a restart; %u workers go on\n",
			ctl->n_workers);
	if (old->global.seccomp != new->global.seccomp)
		fprintf(out, "note: 'seccomp' has an effect at a start only\n");
	if (old->global.is_daemon != new->global.is_daemon)
		fprintf(out, "note: 'daemon' has an effect at a start only\n");
}

static int reload_attach(struct ctl *ctl, const struct conf *conf, struct err *err)
{
	if (list_is_empty(&conf->global.xdp_interfaces))
		return 0;
	if (!ctl->dp || !dp_has_kernel_tier(ctl->dp))
		return err_set(err, -EOPNOTSUPP,
			       "'xdp interface' was added, but this process started without the "
			       "kernel tier: restart it");
	return start_attach(ctl, conf, err);
}

/* What only a start can make. Before anything changes. */
static int reload_check_nat(struct ctl *ctl, const struct conf *conf, struct err *err)
{
	struct list *l;

	if (!ctl->dp || !dp_has_kernel_tier(ctl->dp) || dp_has_nat(ctl->dp))
		return 0;
	list_for_each(l, &conf->proxies) {
		const struct conf_proxy *px = list_entry(l, struct conf_proxy, link);

		if (px->forward == FORWARD_NAT && !px->is_disabled)
			return err_set(err, -EOPNOTSUPP,
				       "section %s: the first 'forward nat' was added, but its "
				       "table is made at the start: restart this process",
				       px->name);
	}
	return 0;
}

static int reload_apply(struct ctl *ctl, struct conf *conf, FILE *out, struct err *err)
{
	const struct conf *old = ctl->current->conf;
	struct err dns_err = { "" };
	struct proxy_snapshot *snap;
	int health_rc, dns_rc, rc = reload_check_nat(ctl, conf, err);

	if (rc == 0)
		rc = steering_check(ctl, conf, err);
	if (rc != 0) {
		conf_free(conf);
		return rc;
	}
	rc = ctl_build_snapshot(ctl, conf, &snap, err); /* frees it when it fails */
	if (rc != 0)
		return rc;
	reload_remarks(ctl, old, conf, out);
	rc = ctl_publish(ctl, snap, err);
	if (rc != 0)
		return rc;
	/* From here on the new configuration runs; what fails now is reported, and the rest goes on. */
	ctl_apply_log_settings(ctl);
	/* First, and whatever else fails: the checks must not look at a configuration that is on its way out. */
	health_rc = health_configure(ctl->health, snap);
	dns_rc = dns_configure(ctl->dns, snap, &dns_err);
	worker_link_sockets(ctl);
	rc = reload_attach(ctl, conf, err);
	if (rc == 0)
		rc = steering_apply(ctl, err);
	if (rc == 0)
		rc = admin_configure(ctl->admin, conf, err);
	if (rc == 0 && health_rc != 0)
		rc = err_set(err, health_rc, "health checks: %s", strerror(-health_rc));
	if (rc == 0 && dns_rc != 0)
		rc = err_set(err, dns_rc, "resolvers: %s", dns_err.text);
	if (ctl->dp)
		loop_defer(ctl->loop, &ctl->dp_sync);
	return rc;
}

int ctl_reload(struct ctl *ctl, FILE *out)
{
	struct findings f = { 0 };
	struct err err = { "" };
	struct conf *conf = NULL;
	size_t size = 0;
	char *text = NULL;
	FILE *mem;
	int rc;

	if (ctl->phase != CTL_RUNNING)
		return -EBUSY;
	if (ctl->taker || ctl->is_handed_over) {
		if (out)
			fputs("a new process is taking over: it reads the configuration\n", out);
		log_msg(LOG_LVL_NOTICE, "no reload: a new process is taking over");
		return -EBUSY;
	}
	mem = open_memstream(&text, &size);
	if (!mem)
		return -ENOMEM;
	notify_reloading(ctl);
	f.out = mem;
	f.running = &ctl->registry;
	rc = findings_load(ctl->opts, &f, &conf);
	if (rc == 0 && !conf->has_listener) {
		fputs("the configuration has no listener: nothing would be served\n", mem);
		conf_free(conf);
		conf = NULL;
		rc = -EINVAL;
	} else if (rc == 0) {
		rc = reload_apply(ctl, conf, mem, &err);
		if (rc != 0)
			fprintf(mem, "%s\n", err.text);
	}
	fclose(mem);
	worker_link_reloaded(ctl, rc == 0);
	notify_ready(ctl);
	if (out)
		fputs(text, out);
	for (struct str rest = str_from_cstr(text), line; rest.p && rest.len;) {
		line = str_cut(&rest, '\n');
		if (line.len)
			log_msg(rc ? LOG_LVL_ERR : LOG_LVL_NOTICE, "reload: " STR_FMT,
				STR_ARG(line));
	}
	free(text); /* lint: libc memory, open_memstream's */
	if (rc == 0)
		log_msg(LOG_LVL_NOTICE, "configuration reloaded, generation %llu",
			(unsigned long long)ctl->current->snap.generation);
	else if (ctl->current->conf != conf)
		log_msg(LOG_LVL_ERR, "reload failed, the configuration before stays");
	else
		log_msg(LOG_LVL_ERR, "the new configuration runs, except for what is said above");
	return rc;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* `headgate tune`: how interfaces, interrupts, CPUs and workers of this host lie, from /sys and /proc. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "dp/dp.h"
#include "tool_tune.h"

/* --- sets of CPUs ----------------------------------------------------------------------------------------- */

bool tune_cpus_has(const struct tune_cpus *c, unsigned cpu)
{
	return cpu < TUNE_CPUS && c->bits[cpu / 64] >> cpu % 64 & 1;
}

void tune_cpus_add(struct tune_cpus *c, unsigned cpu)
{
	if (cpu < TUNE_CPUS)
		c->bits[cpu / 64] |= 1ull << cpu % 64;
}

unsigned tune_cpus_count(const struct tune_cpus *c)
{
	unsigned n = 0;

	for (unsigned i = 0; i < TUNE_CPUS / 64; i++)
		n += (unsigned)__builtin_popcountll(c->bits[i]);
	return n;
}

bool tune_cpus_parse(const char *text, struct tune_cpus *ret)
{
	const char *at = text;

	memset(ret, 0, sizeof(*ret));
	while (*at) {
		char *end;
		unsigned long from = strtoul(at, &end, 10), to = from;

		if (end == at || !isdigit((unsigned char)*at))
			return false;
		if (*end == '-') {
			at = end + 1;
			to = strtoul(at, &end, 10);
			if (end == at || !isdigit((unsigned char)*at))
				return false;
		}
		if (from > to || to >= TUNE_CPUS || (*end && *end != ','))
			return false;
		while (from <= to)
			tune_cpus_add(ret, (unsigned)from++);
		at = *end ? end + 1 : end;
	}
	return true;
}

/* --- files ------------------------------------------------------------------------------------------------- */

bool tune_read_file(const struct tune *t, const char *path, char ret[TUNE_TEXT])
{
	char full[PATH_MAX];
	ssize_t n;
	int fd;

	if (snprintf(full, sizeof(full), "%s%s", t->root, path) >= PATH_MAX)
		return false;
	fd = open(full, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, ret, TUNE_TEXT - 1);
	if (fd >= 0)
		close(fd);
	if (n < 0)
		return false;
	ret[n] = '\0';
	ret[strcspn(ret, "\n")] = '\0';
	return true;
}

static DIR *open_dir(const struct tune *t, const char *path)
{
	char full[PATH_MAX];

	return snprintf(full, sizeof(full), "%s%s", t->root, path) < PATH_MAX ? opendir(full)
									      : NULL;
}

static FILE *open_text(const struct tune *t, const char *path)
{
	char full[PATH_MAX];

	return snprintf(full, sizeof(full), "%s%s", t->root, path) < PATH_MAX ? fopen(full, "re")
									      : NULL;
}

/* Last part of where a link points to; "" when there is none. */
static void link_name(const struct tune *t, const char *path, char *ret, size_t size)
{
	char full[PATH_MAX], to[PATH_MAX];
	const char *base;
	ssize_t n;

	ret[0] = '\0';
	if (snprintf(full, sizeof(full), "%s%s", t->root, path) >= PATH_MAX)
		return;
	n = readlink(full, to, sizeof(to) - 1);
	if (n < 0)
		return;
	to[n] = '\0';
	base = strrchr(to, '/');
	snprintf(ret, size, "%.*s", (int)size - 1, base ? base + 1 : to);
}

/* Entries of a directory that begin with `prefix`. */
static unsigned count_entries(const struct tune *t, const char *path, const char *prefix)
{
	DIR *d = open_dir(t, path);
	struct dirent *e;
	unsigned n = 0;

	while (d && (e = readdir(d)))
		n += strncmp(e->d_name, prefix, strlen(prefix)) == 0;
	if (d)
		closedir(d);
	return n;
}

/* --- CPUs and workers ----------------------------------------------------------------------------------------- */

static bool read_cpus(struct tune *t)
{
	char text[TUNE_TEXT], path[TUNE_PATH];

	if (!tune_read_file(t, "/sys/devices/system/cpu/online", text) ||
	    !tune_cpus_parse(text, &t->online))
		return false;
	for (unsigned i = 0; i < TUNE_CPUS; i++) {
		t->node[i] = -1;
		if (tune_cpus_has(&t->online, i))
			t->n_cpus = i + 1;
	}
	for (int node = 0; node < 64; node++) {
		struct tune_cpus cpus;

		snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
		if (!tune_read_file(t, path, text) || !tune_cpus_parse(text, &cpus))
			continue;
		for (unsigned i = 0; i < TUNE_CPUS; i++)
			if (tune_cpus_has(&cpus, i))
				t->node[i] = (int16_t)node;
	}
	return true;
}

/* CPU that a thread is pinned to; TUNE_NO_CPU: it may run on several. */
static unsigned thread_cpu(const struct tune *t, const char *task)
{
	static const char key[] = "Cpus_allowed_list:";
	char path[TUNE_PATH + 8], line[256];
	unsigned cpu = TUNE_NO_CPU;
	FILE *f;

	snprintf(path, sizeof(path), "%s/status", task);
	f = open_text(t, path);
	while (f && fgets(line, sizeof(line), f)) {
		struct tune_cpus cpus;

		if (strncmp(line, key, sizeof(key) - 1) != 0)
			continue;
		line[strcspn(line, "\n")] = '\0';
		if (tune_cpus_parse(line + sizeof(key) - 1 + strspn(line + sizeof(key) - 1, " \t"),
				    &cpus) &&
		    tune_cpus_count(&cpus) == 1)
			for (cpu = 0; !tune_cpus_has(&cpus, cpu);)
				cpu++;
	}
	if (f)
		fclose(f);
	return cpu;
}

static void read_workers(struct tune *t, long pid)
{
	char dir[64], task[TUNE_PATH], name[TUNE_TEXT], path[TUNE_PATH + 8];
	struct dirent *e;
	DIR *d;

	snprintf(dir, sizeof(dir), "/proc/%ld/task", pid);
	d = open_dir(t, dir);
	while (d && (e = readdir(d))) {
		unsigned number, cpu;

		snprintf(task, sizeof(task), "%s/%.32s", dir, e->d_name);
		snprintf(path, sizeof(path), "%s/comm", task);
		if (!tune_read_file(t, path, name) || sscanf(name, "hg-worker-%u", &number) != 1)
			continue;
		t->n_workers++;
		cpu = thread_cpu(t, task);
		if (cpu != TUNE_NO_CPU) {
			tune_cpus_add(&t->workers, cpu);
			t->worker[cpu] = (uint16_t)(number + 1);
		}
	}
	if (d)
		closedir(d);
}

static void read_daemon(struct tool *tool, struct tune *t)
{
	char *info = tool_ask(tool, "show info;show steering", 1);
	const char *pid = info ? strstr(info, "\nPid: ") : NULL;
	const char *steering = info ? strstr(info, "\nsk-steer: ") : NULL;

	t->has_daemon = pid;
	if (pid)
		read_workers(t, strtol(pid + 6, NULL, 10));
	t->steering[0] = '\0';
	if (steering && sscanf(steering, "\nsk-steer: %23[a-z]", t->steering) != 1)
		t->steering[0] = '\0';
	mem_free(info);
}

/* It moves interrupts about, against what is set here. */
static bool is_running(const struct tune *t, const char *comm)
{
	DIR *d = open_dir(t, "/proc");
	bool found = false;
	struct dirent *e;

	while (!found && d && (e = readdir(d))) {
		char path[TUNE_PATH], name[TUNE_TEXT];

		snprintf(path, sizeof(path), "/proc/%.32s/comm", e->d_name);
		found = isdigit((unsigned char)e->d_name[0]) && tune_read_file(t, path, name) &&
			strcmp(name, comm) == 0;
	}
	if (d)
		closedir(d);
	return found;
}

/* --- interrupts ------------------------------------------------------------------------------------------------ */

/* Interrupts of a device that belong to no queue: names as drivers give them. */
static bool is_of_no_queue(const char *name)
{
	static const char *const words[] = { "async", "config", "ctrl",	 "control", "adminq",
					     "misc",  "fdir",	"mgmnt", "pages",   "cmd" };

	for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strstr(name, words[i]))
			return true;
	return false;
}

/* The queue in a name such as eth0-TxRx-3, mlx5_comp3@pci:…, virtio0-input.3; a name without a number is queue 0's. */
static unsigned queue_of(const char *name)
{
	size_t end = strcspn(name, "@"), at = end;

	while (at && isdigit((unsigned char)name[at - 1]))
		at--;
	/* The number of the device itself, "virtio1", is no queue. */
	if (at == end || !strpbrk(name, "-.@_"))
		return 0;
	return (unsigned)strtoul(name + at, NULL, 10);
}

static void add_irq(const struct tune *t, struct tune_if *i, unsigned number, const char *name)
{
	char path[TUNE_PATH], text[TUNE_TEXT];
	struct tune_irq *irq;
	unsigned at;

	if (i->n_irqs == TUNE_IRQS || is_of_no_queue(name))
		return;
	for (at = i->n_irqs; at && i->irqs[at - 1].queue > queue_of(name); at--)
		i->irqs[at] = i->irqs[at - 1];
	irq = &i->irqs[at];
	*irq = (struct tune_irq){ .number = number, .queue = queue_of(name) };
	snprintf(irq->name, sizeof(irq->name), "%s", name);
	snprintf(path, sizeof(path), "/proc/irq/%u/smp_affinity_list", number);
	if (!tune_read_file(t, path, text) || !tune_cpus_parse(text, &irq->cpus))
		memset(&irq->cpus, 0, sizeof(irq->cpus));
	i->n_irqs++;
}

/* By the device's list of interrupts, where the bus has one; else by name. */
static bool is_irq_of(const struct tune *t, const struct tune_if *i, const char *device,
		      unsigned number, const char *name)
{
	static const char *const lists[] = { "device/msi_irqs", "device/../msi_irqs" };
	char path[TUNE_PATH + 64], full[PATH_MAX];
	bool has_list = false;

	for (unsigned k = 0; k < 2; k++) {
		snprintf(path, sizeof(path), "%s/sys/class/net/%s/%s", t->root, i->name, lists[k]);
		if (access(path, F_OK) != 0)
			continue;
		has_list = true;
		if (snprintf(full, sizeof(full), "%s/%u", path, number) < PATH_MAX &&
		    access(full, F_OK) == 0)
			return true;
	}
	if (has_list)
		return false;
	return (device[0] && strncmp(name, device, strlen(device)) == 0 &&
		!isdigit((unsigned char)name[strlen(device)])) ||
	       (strncmp(name, i->name, strlen(i->name)) == 0 &&
		!isdigit((unsigned char)name[strlen(i->name)]));
}

static void read_irqs(const struct tune *t, struct tune_if *i)
{
	char path[TUNE_PATH], device[64], *line = NULL;
	FILE *f = open_text(t, "/proc/interrupts");
	size_t cap = 0;

	snprintf(path, sizeof(path), "/sys/class/net/%s/device", i->name);
	link_name(t, path, device, sizeof(device));
	while (f && getline(&line, &cap, f) > 0) {
		char *end, *name;
		unsigned long number = strtoul(line, &end, 10);

		line[strcspn(line, "\n")] = '\0';
		if (end == line || *end != ':')
			continue;
		name = strrchr(line, ' ');
		if (name && is_irq_of(t, i, device, (unsigned)number, name + 1))
			add_irq(t, i, (unsigned)number, name + 1);
	}
	free(line);
	if (f)
		fclose(f);
}

/* --- interfaces ------------------------------------------------------------------------------------------------- */

static int channels_ioctl(const char *ifname, struct ethtool_channels *c)
{
	struct ifreq ifr = { .ifr_data = (void *)c };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc;

	if (fd < 0)
		return -errno;
	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", ifname);
	rc = ioctl(fd, SIOCETHTOOL, &ifr) == 0 ? 0 : -errno;
	close(fd);
	return rc;
}

bool tune_channels_read(const char *ifname, struct tune_channels *ret)
{
	struct ethtool_channels c = { .cmd = ETHTOOL_GCHANNELS };

	*ret = (struct tune_channels){ 0 };
	if (channels_ioctl(ifname, &c) != 0)
		return false;
	*ret = (struct tune_channels){ .rx = c.rx_count,
				       .tx = c.tx_count,
				       .combined = c.combined_count,
				       .max_rx = c.max_rx,
				       .max_tx = c.max_tx,
				       .max_combined = c.max_combined };
	return true;
}

int tune_channels_write(const char *ifname, uint32_t rx, uint32_t tx, uint32_t combined)
{
	struct ethtool_channels c = { .cmd = ETHTOOL_GCHANNELS };
	int rc = channels_ioctl(ifname, &c);

	if (rc != 0)
		return rc;
	c.cmd = ETHTOOL_SCHANNELS;
	c.rx_count = rx;
	c.tx_count = tx;
	c.combined_count = combined;
	return channels_ioctl(ifname, &c);
}

static int add_interface(struct tune *t, const char *name)
{
	char path[TUNE_PATH], text[TUNE_TEXT];
	struct tune_if *i;

	snprintf(path, sizeof(path), "%s/sys/class/net/%.15s", t->root, name);
	if (strlen(name) > 15 || strchr(name, '/') || access(path, F_OK) != 0) {
		fprintf(stderr, "headgate: tune: there is no interface '%s' on this host\n", name);
		return -ENODEV;
	}
	if (t->n_ifs == TUNE_IFS) {
		fprintf(stderr, "headgate: tune: more than %d interfaces; name some\n", TUNE_IFS);
		return -E2BIG;
	}
	i = &t->ifs[t->n_ifs++];
	memset(i, 0, sizeof(*i));
	snprintf(i->name, sizeof(i->name), "%s", name);
	snprintf(path, sizeof(path), "/sys/class/net/%s/device/driver", name);
	link_name(t, path, i->driver, sizeof(i->driver));
	i->node = -1;
	snprintf(path, sizeof(path), "/sys/class/net/%s/device/numa_node", name);
	if (tune_read_file(t, path, text))
		i->node = (int)strtol(text, NULL, 10);
	snprintf(path, sizeof(path), "/sys/class/net/%s/queues", name);
	i->n_rx = count_entries(t, path, "rx-");
	i->n_tx = count_entries(t, path, "tx-");
	if (!t->root[0])
		(void)tune_channels_read(name, &i->channels);
	read_irqs(t, i);
	return 0;
}

/* Those that our programs are on; else those with a device. */
static int add_interfaces(struct tool *tool, struct tune *t)
{
	struct dp_attachment a[TUNE_IFS];
	int n = t->root[0] ? 0 : dp_attachments(tool->bpffs, a, TUNE_IFS), rc = 0;
	struct dirent *e;
	DIR *d;

	for (int i = 0; i < n && rc == 0; i++)
		if (!a[i].is_foreign)
			rc = add_interface(t, a[i].ifname);
	if (rc != 0 || t->n_ifs)
		return rc;
	d = open_dir(t, "/sys/class/net");
	while (rc == 0 && d && (e = readdir(d))) {
		char path[PATH_MAX];

		if (e->d_name[0] != '.' &&
		    snprintf(path, sizeof(path), "%s/sys/class/net/%s/device", t->root, e->d_name) <
			    PATH_MAX &&
		    access(path, F_OK) == 0)
			rc = add_interface(t, e->d_name);
	}
	if (d)
		closedir(d);
	return rc;
}

int tune_read(struct tool *tool, struct tune *t, char **names, unsigned n)
{
	int rc = 0;

	t->n_ifs = t->n_cpus = t->n_workers = 0;
	memset(&t->workers, 0, sizeof(t->workers));
	memset(t->worker, 0, sizeof(t->worker));
	if (!read_cpus(t)) {
		fprintf(stderr, "headgate: tune: cannot read %s/sys/devices/system/cpu/online\n",
			t->root);
		return -ENOENT;
	}
	read_daemon(tool, t);
	t->has_irqbalance = is_running(t, "irqbalance");
	for (unsigned i = 0; i < n && rc == 0; i++)
		rc = add_interface(t, names[i]);
	return rc == 0 && n == 0 ? add_interfaces(tool, t) : rc;
}

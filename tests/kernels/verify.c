/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Loads BPF objects and prints what the verifier had to do: one line per program. Exits with 1 when one
 * does not load, after the verifier's last words. Usage: verify FILE.bpf.o...
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>

#define STATS_ONLY 4 /* BPF_LOG_STATS */
#define LOG_BYTES  (1 << 20)

static int quiet(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	return level == LIBBPF_WARN ? vfprintf(stderr, fmt, ap) : 0;
}

static char missing[64];

/* Has the kernel all its functions that the object calls? If not, one is in `missing`. The daemon asks, too. */
static bool is_for(const struct btf *kernel, const char *path)
{
	struct btf *btf = btf__parse_elf(path,
					 NULL); /* as it is: opening an object changes its types */
	bool all = true;

	for (unsigned id = 1; btf && id < btf__type_cnt(btf); id++) {
		const struct btf_type *f = btf__type_by_id(btf, id);
		const char *name = btf__name_by_offset(btf, f->name_off);

		if (btf_is_func(f) && btf_vlen(f) == BTF_FUNC_EXTERN &&
		    btf__find_by_name_kind(kernel, name, BTF_KIND_FUNC) < 0) {
			snprintf(missing, sizeof(missing), "%s", name);
			all = false;
		}
	}
	btf__free(btf);
	return all;
}

static int verify(const char *path, const struct btf *kernel, char *log)
{
	LIBBPF_OPTS(bpf_object_open_opts, o, .kernel_log_level = STATS_ONLY, .kernel_log_buf = log,
		    .kernel_log_size = LOG_BYTES);
	struct bpf_object *obj;
	const char *name = strrchr(path, '/'), *counts;
	int rc;

	if (!is_for(kernel, path)) {
		printf("verifier: %-20s not for this kernel: it has no %s()\n",
		       name ? name + 1 : path, missing);
		return 0;
	}
	log[0] = '\0';
	obj = bpf_object__open_file(path, &o);
	if (!obj) {
		perror(path);
		return -1;
	}
	rc = bpf_object__load(obj);
	counts = strstr(log, "processed ");
	if (rc)
		printf("%s: does not load: %s\n%s\n", path, strerror(-rc), log);
	else
		printf("verifier: %-20s %.*s\n", name ? name + 1 : path,
		       counts ? (int)strcspn(counts, "\n") : 0, counts ? counts : "");
	bpf_object__close(obj);
	return rc;
}

int main(int argc, char **argv)
{
	struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };
	struct btf *kernel = btf__load_vmlinux_btf();
	char *log = malloc(LOG_BYTES);
	struct utsname u;
	int failed = 0;

	if (!log || !kernel)
		return 1;
	setrlimit(RLIMIT_MEMLOCK, &unlimited);
	libbpf_set_print(quiet);
	if (!uname(&u))
		printf("kernel: %s\n", u.release);
	for (int i = 1; i < argc; i++)
		failed |= verify(argv[i], kernel, log) != 0;
	btf__free(kernel);
	free(log);
	return failed;
}

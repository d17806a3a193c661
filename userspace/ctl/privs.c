/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * System calls that the daemon never makes once it runs, taken away from all its threads: who gets code of his own to run
 * here finds no shell to start, no other process to look into, no mount, no module and no clock. A list of what is
 * denied, not of what is allowed: the C library, OpenSSL and libbpf may change how they do their work, but none of them
 * comes to need these. Workers and control are threads of one process and have one filter. The master has none: it
 * starts processes, and reads nothing that comes from clients.
 */
#include <errno.h>
#include <sched.h>
#include <seccomp.h>
#include <string.h>

#include "base/log.h"
#include "base/sanitize.h"
#include "ctl/privs.h"

/* By name: those that an architecture or the library does not know are left out. */
static const char *const denied[] = {
	/* files of the system */
	"mount",
	"umount2",
	"umount",
	"pivot_root",
	"move_mount",
	"open_tree",
	"fsopen",
	"fsconfig",
	"fsmount",
	"fspick",
	"mount_setattr",
	"swapon",
	"swapoff",
	"quotactl",
	"quotactl_fd",
	"acct",
	"open_by_handle_at",
	"name_to_handle_at",
	"mknod",
	"mknodat",
	"fanotify_init",
	"chroot",
	/* the kernel */
	"init_module",
	"finit_module",
	"delete_module",
	"create_module",
	"kexec_load",
	"kexec_file_load",
	"reboot",
	"syslog",
	"_sysctl",
	"uselib",
	"nfsservctl",
	"vhangup",
	"perf_event_open",
	"lookup_dcookie",
	/* the host's clock and name */
	"settimeofday",
	"clock_settime",
	"clock_adjtime",
	"adjtimex",
	"stime",
	"sethostname",
	"setdomainname",
	/* namespaces, keys, identities */
	"unshare",
	"add_key",
	"request_key",
	"keyctl",
	"setuid",
	"setgid",
	"setreuid",
	"setregid",
	"setresuid",
	"setresgid",
	"setfsuid",
	"setfsgid",
	"setgroups",
	/* memory that others handle, registers of devices, ways around other checks */
	"userfaultfd",
	"migrate_pages",
	"move_pages",
	"remap_file_pages",
	"iopl",
	"ioperm",
	"modify_ldt",
	"vm86",
	"vm86old",
	"io_uring_setup",
	"io_uring_enter",
	"io_uring_register",
	"pidfd_getfd",
};

/* What sanitizers need themselves: other processes. */
static const char *const denied_processes[] = {
	"execve",	   "execveat",	       "fork", "vfork",
	"ptrace",	   "process_vm_readv", "kcmp", "process_vm_writev",
	"process_madvise", "personality"
};

static int deny(scmp_filter_ctx f, uint32_t action, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int nr = seccomp_syscall_resolve_name(names[i]), rc;

		if (nr < 0) /* unknown, or a pseudo number: not on this architecture */
			continue;
		rc = seccomp_rule_add(f, action, nr, 0);
		if (rc != 0)
			return rc;
	}
	return 0;
}

/* Threads, but no processes: whether clone() makes one is in its first argument, for clone3() in memory. */
static int deny_processes(scmp_filter_ctx f, uint32_t action)
{
	int rc = deny(f, action, denied_processes,
		      sizeof(denied_processes) / sizeof(denied_processes[0]));

	if (rc == 0)
		rc = seccomp_rule_add(f, action, SCMP_SYS(clone), 1,
				      SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
	/* The C library takes clone() then. */
	if (rc == 0)
		rc = seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
	return rc;
}

/* Sockets in other network namespaces (`namespace`) are made there; into a namespace of any other kind nothing goes. */
static int deny_namespaces(scmp_filter_ctx f, uint32_t action)
{
	return seccomp_rule_add(f, action, SCMP_SYS(setns), 1, SCMP_A1(SCMP_CMP_NE, CLONE_NEWNET));
}

int privs_deny_calls(enum conf_seccomp mode, struct err *err)
{
	uint32_t action = mode == CONF_SECCOMP_KILL ? SCMP_ACT_KILL_PROCESS : SCMP_ACT_LOG;
	scmp_filter_ctx f;
	int rc;

	if (mode == CONF_SECCOMP_OFF)
		return 0;
	f = seccomp_init(SCMP_ACT_ALLOW);
	if (!f)
		return err_set(err, -ENOMEM, "seccomp: out of memory");
	rc = deny(f, action, denied, sizeof(denied) / sizeof(denied[0]));
	if (rc == 0)
		rc = deny_namespaces(f, action);
	if (rc == 0 && !IS_SANITIZED)
		rc = deny_processes(f, action);
	/* Calls of another architecture on this one. */
	if (rc == 0)
		rc = seccomp_attr_set(f, SCMP_FLTATR_ACT_BADARCH, action);
	if (rc == 0)
		rc = seccomp_attr_set(f, SCMP_FLTATR_CTL_TSYNC, 1);
	/* A search instead of a list, where the kernel does not remember what it may let pass (Linux 5.11). */
	if (rc == 0)
		(void)seccomp_attr_set(f, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	/* Before Linux 5.16 a filter switched speculation of stores off as well, at the price of a tenth of our speed. */
	if (rc == 0)
		(void)seccomp_attr_set(f, SCMP_FLTATR_CTL_SSB, 1);
	if (rc == 0)
		rc = seccomp_load(f);
	seccomp_release(f);
	return rc == 0 ? 0
		       : err_set(err, rc,
				 "the filter of system calls cannot be set: %s ('seccomp off' in "
				 "the global "
				 "section goes without)",
				 strerror(-rc));
}

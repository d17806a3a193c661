#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Boots a Debian kernel in qemu (no KVM needed), loads every program there, runs the packet tests and
# prints the verifier's instruction counts. Usage: run.sh BUILD [kernel package]; the package is fetched
# with apt-get into BUILD/kernels once. HG_KERNEL=FILE takes a bzImage instead.
set -euo pipefail

build=$(realpath "$1")
package=${2:-}
work=$build/kernels
seconds=${HG_KERNEL_TIMEOUT:-900}

need() {
	local missing=()
	command -v qemu-system-x86_64 >/dev/null || missing+=(qemu-system-x86)
	[ -x /bin/busybox ] && ! ldd /bin/busybox >/dev/null 2>&1 || missing+=(busybox-static)
	command -v cpio >/dev/null || missing+=(cpio)
	[ ${#missing[@]} = 0 ] && return
	echo "  APT      ${missing[*]}"
	apt-get install -y -q --no-install-recommends "${missing[@]}" >"$work/apt.log" 2>&1 || {
		tail -n 20 "$work/apt.log" >&2
		exit 1
	}
}

# Prints the path of the kernel image.
kernel() {
	if [ -n "${HG_KERNEL:-}" ]; then
		realpath "$HG_KERNEL"
		return
	fi
	if [ -z "$package" ]; then
		apt-cache depends linux-image-amd64 2>/dev/null | grep -q Depends || apt-get update -q >"$work/apt.log" 2>&1
		package=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-.*\)/\1/p' | head -n 1)
	fi
	if [ ! -e "$work/$package/veth.ko" ]; then
		mkdir -p "$work/$package"
		(cd "$work/$package" && apt-get download -q "$package" >../apt.log 2>&1 &&
			dpkg-deb --fsys-tarfile ./*.deb |
			tar x --wildcards './boot/vmlinuz-*' './lib/modules/*/drivers/net/veth.ko*' &&
			mv boot/vmlinuz-* vmlinuz && mv lib/modules/*/kernel/drivers/net/veth.ko* . &&
			{ [ -e veth.ko ] || unxz veth.ko.xz; } && rm -rf boot lib ./*.deb)
	fi
	echo "$work/$package/vmlinuz"
}

# Copies a program and the libraries it wants.
take() {
	local root=$1 program=$2
	cp "$program" "$root/tests/"
	ldd "$program" | grep -o '/[^ ]*' | while read -r lib; do
		mkdir -p "$root$(dirname "$lib")"
		cp -Ln "$lib" "$root$lib"
	done
}

initramfs() {
	local root=$work/root t
	rm -rf "$root"
	mkdir -p "$root"/{bin,dev,proc,sys,tmp,tests}
	cp /bin/busybox "$root/bin/"
	for t in "$build"/packet/test_*; do
		[ -x "$t" ] && [ -f "$t" ] && [[ $t != *.* ]] && take "$root" "$t"
	done
	take "$root" "$work/verify"
	# Busybox's ip makes no veth pairs, and its shell would take that one whatever PATH says.
	take "$root" "$(command -v ip)"
	take "$root" "$(command -v dash)"
	veth=$(dirname "$image")/veth.ko
	[ ! -e "$veth" ] || cp "$veth" "$root/tests/"
	cp "$build"/bpf/*.bpf.o "$root/tests/"
	cat >"$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/tests:/bin HG_PACKET_MUTATIONS=10000
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mount -t bpf bpf /sys/fs/bpf 2>/dev/null
ln -sf /tests/dash /bin/sh
[ ! -e /tests/veth.ko ] || insmod /tests/veth.ko
ip link set lo up
cd /tests
failed=0
./verify *.bpf.o || failed=1
for t in test_*; do
	if ./$t >/tmp/log 2>&1; then
		echo "ok $t $(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' /tmp/log | tail -n 1) tests"
	else
		echo "FAILED $t"
		tail -n 40 /tmp/log
		failed=1
	fi
done
echo "result: $failed"
poweroff -f
INIT
	chmod 755 "$root/init"
	(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initramfs.gz"
}

mkdir -p "$work"
need
image=$(kernel)
[ -e "$image" ] || {
	echo "no kernel image; see $work/apt.log" >&2
	exit 1
}
initramfs
timeout -k 5 "$seconds" qemu-system-x86_64 -M q35 -cpu max -accel tcg,thread=multi -smp 2 -m 1024 -nographic \
	-no-reboot -kernel "$image" -initrd "$work/initramfs.gz" \
	-append 'console=ttyS0 quiet panic=-1 mitigations=off' </dev/null 2>&1 |
	tr -d '\r\033' | tee "$work/boot.log" | grep -E 'kernel: |^(verifier:|ok |FAILED|result:|\[  FAILED|ERROR|.*does not load|[0-9]+: \()' || true
grep -q '^result: 0$' "$work/boot.log" || {
	echo "failed; the whole log is $work/boot.log" >&2
	tail -n 60 "$work/boot.log" >&2
	exit 1
}

#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# What a reviewer should never have to say: layering, sizes, forbidden calls, licence line, format.
# Prints every finding, exits 1 when there is one.
set -u
cd "$(dirname "$0")/.." || exit 1
found=$(mktemp)
trap 'rm -f "$found"' EXIT
mapfile -t sources < <(git ls-files -co --exclude-standard '*.c' '*.h')
say() { printf '%s\n' "$*" >>"$found"; }

# --- who may include whom (docs/ARCHITECTURE.md has the table with its reasons) ------------------
declare -A may=(
	[base]="base" [ev]="base ev" [http]="base http" [expr]="base http expr"
	[conf]="base http expr conf headgate"
	[net]="base ev expr conf net"
	[lb]="base ev expr conf net lb headgate"
	[dp]="base conf lb dp headgate"
	[proxy]="base ev http expr conf net lb proxy headgate"
	[ctl]="base ev http expr conf net lb dp proxy ctl headgate"
)
for f in "${sources[@]}"; do
	case $f in
	userspace/main.c) module=main allowed="ctl base" ;;
	userspace/*/*) module=${f#userspace/} module=${module%%/*} allowed=${may[$module]:-} ;;
	*) continue ;;
	esac
	while IFS=: read -r line text; do
		inc=$(sed -n 's/.*#include [<"]\([^>"]*\)[>"].*/\1/p' <<<"$text")
		# <net/if.h> and its like are libc's; ours are in quotes, but for the contract.
		[[ $text == *'<net/'* ]] && continue
		case $inc in
		base/* | ev/* | http/* | expr/* | conf/* | net/* | lb/* | dp/* | proxy/* | ctl/* | headgate/*)
			target=${inc%%/*}
			[[ " $allowed " == *" $target "* ]] ||
				say "$f:$line: $module/ may not include $inc (may: $allowed)"
			[[ $inc == *_priv.h && $target != "$module" ]] &&
				say "$f:$line: $inc is private to $target/"
			;;
		../*) say "$f:$line: include from the root, not \"$inc\"" ;;
		openssl/*) [[ $module == net || $f == userspace/expr/* ]] || say "$f:$line: OpenSSL belongs to net/" ;;
		nghttp2/*) [[ $f == userspace/http/h2* ]] || say "$f:$line: nghttp2 belongs to http/h2" ;;
		pcre2.h) [[ $module == expr ]] || say "$f:$line: PCRE2 belongs to expr/" ;;
		ares.h) [[ $module == ctl ]] || say "$f:$line: c-ares belongs to ctl/" ;;
		bpf/* | xdp/*) [[ $module == dp ]] || say "$f:$line: libbpf and libxdp belong to dp/" ;;
		esac
	done < <(grep -nE '^[[:space:]]*#include' "$f")
done
grep -nE '#include [<"][^>"]*\.c[>"]' "${sources[@]}" /dev/null | grep -v '^tests/bench/' |
	sed 's/$/  -- including a .c file/' >>"$found"

# --- sizes: a file of 600 lines or a function of 80 is missing an idea -----------------------------
for f in "${sources[@]}"; do
	case $f in userspace/* | bpf/* | include/* | tools/*) ;; *) continue ;; esac
	n=$(wc -l <"$f")
	[ "$n" -le 600 ] || say "$f: $n lines (600 at most)"
	awk -v f="$f" '
		/^[a-zA-Z_].*\(/ && !/;[[:space:]]*$/ && !/^(typedef|#)/ && !/\{[[:space:]]*$/ { head = NR; name = $0 }
		/^\{/ { start = head }
		/lint: long switch/ { excused = 1 }
		/^\}/ {
			if (start && NR - start + 1 > 80 && !excused) {
				sub(/\(.*/, "", name)
				printf "%s:%d: %s() has %d lines (80 at most)\n", f, start, name, NR - start + 1
			}
			start = 0; excused = 0
		}' "$f" >>"$found"
done

# --- licence, forbidden calls ------------------------------------------------------------------------
for f in "${sources[@]}" $(git ls-files -co --exclude-standard '*.sh' '*.py'); do
	head -n 3 "$f" | grep -q 'SPDX-License-Identifier: ' || say "$f:1: no SPDX line"
done
mapfile -t product < <(printf '%s\n' "${sources[@]}" | grep -E '^(userspace|tools)/')
forbidden='\b(strcpy|strcat|sprintf|vsprintf|gets|strtok|alloca|atoi|atol|system|popen|rand|srand)[[:space:]]*\('
grep -nE "$forbidden" "${product[@]}" /dev/null | grep -vE ':[[:space:]]*(/?\*|//)' |
	sed 's/$/  -- forbidden call/' >>"$found"
grep -nE '(^|[^_a-zA-Z>.])(malloc|calloc|realloc|strdup|strndup|free)[[:space:]]*\(' \
	"${product[@]}" /dev/null | grep -vE '^userspace/base/mem\.c|^tools/|:[[:space:]]*(/?\*|//)|lint: libc memory' |
	sed 's/$/  -- use mem_alloc() and its kin/' >>"$found"
grep -nE '^[[:space:]]*typedef struct' "${product[@]}" /dev/null | sed 's/$/  -- no typedef of structs/' >>"$found"
# A merge left over, a promise instead of work.
grep -nE '\b(TODO|FIXME|XXX)\b|^<<<<<<<|^>>>>>>>' "${sources[@]}" /dev/null >>"$found"

# --- format ---------------------------------------------------------------------------------------------
mapfile -t formatted < <(printf '%s\n' "${sources[@]}" | grep -E '^(userspace|bpf|tools|tests)/.*\.c$')
if [ ${#formatted[@]} -gt 0 ] && ! out=$(clang-format-19 --dry-run -Werror "${formatted[@]}" 2>&1); then
	grep -E 'error:' <<<"$out" | cut -d: -f1 | sort | uniq -c |
		awk '{ print $2 ": " $1 " places not formatted (make format)" }' >>"$found"
fi
command -v shellcheck >/dev/null && git ls-files -co --exclude-standard '*.sh' |
	xargs -r shellcheck -S warning -f gcc >>"$found"

if [ -s "$found" ]; then
	cat "$found"
	echo "lint: $(wc -l <"$found") findings in ${#sources[@]} files"
	exit 1
fi
echo "lint: ${#sources[@]} files clean"

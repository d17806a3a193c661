/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `headgate completion bash`: a completion script out of the tables of commands, the tool's own and those of the runtime
 * API. Names of servers come from the running daemon.
 */
#include <stdio.h>
#include <string.h>

#include "ctl/cmd.h"
#include "tools_priv.h"

/* Commands that go to the daemon word by word. */
static bool is_of_tool(const char *words, const char *(*name_at)(unsigned i))
{
	size_t n = strcspn(words, " ");
	const char *name;

	for (unsigned i = 0; (name = name_at(i)); i++) {
		if (strlen(name) == n && memcmp(name, words, n) == 0)
			return true;
	}
	return false;
}

static void put_commands(const char *(*name_at)(unsigned i))
{
	const char *name;

	for (unsigned i = 0; (name = name_at(i)); i++) {
		if (i == 0 || strcmp(name, name_at(i - 1)) != 0)
			printf("%s\n", name);
	}
	for (const struct cmd_row *const *table = cmd_tables; *table; table++) {
		for (const struct cmd_row *row = *table; row->words; row++) {
			if (row->help && is_of_tool(row->words, name_at) && strchr(row->words, ' '))
				printf("%s\n", row->words);
		}
	}
}

static const char script_begin[] =
	"# bash completion for headgate(1); made by `headgate completion bash`\n"
	"_headgate_commands='";

static const char script_end[] =
	"'\n"
	"_headgate()\n"
	"{\n"
	"	local cur=${COMP_WORDS[COMP_CWORD]} line rest words=\n"
	"	COMPREPLY=()\n"
	"	line=\"${COMP_WORDS[*]:1:COMP_CWORD-1}\"\n"
	"	case \"$line\" in\n"
	"	check* | *' -w' | -s | --bpffs)\n"
	"		compopt -o filenames 2>/dev/null\n"
	"		COMPREPLY=($(compgen -f -- \"$cur\"))\n"
	"		return ;;\n"
	"	tune*)\n"
	"		words=\"$(ls /sys/class/net) --json --apply --undo --nic-cpus --state\" "
	";;\n"
	"	attach)\n"
	"		words=$(ls /sys/class/net) ;;\n"
	"	drain | undrain | *' server' | 'enable health' | 'disable health' | *' weight' | "
	"*' agent')\n"
	"		words=$(headgate show stat 2>/dev/null |\n"
	"			awk -F, '/^[^#]/ && $2 != \"FRONTEND\" && $2 != \"BACKEND\" { "
	"print $1 \"/\" $2 }') ;;\n"
	"	'set server '*'/'*' state')\n"
	"		words='ready drain maint' ;;\n"
	"	*)\n"
	"		while IFS= read -r rest; do\n"
	"			[[ -z $line || $rest == \"$line \"* ]] || continue\n"
	"			rest=${rest#\"${line:+$line }\"} rest=${rest%% *}\n"
	"			[[ \" $words \" == *\" $rest \"* ]] || words+=\" $rest\"\n"
	"		done <<<\"$_headgate_commands\"\n"
	"		[[ $cur == -* ]] && words+=' --json --help --version' ;;\n"
	"	esac\n"
	"	COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
	"}\n"
	"complete -F _headgate headgate\n";

int tool_completion(int argc, char **argv, const char *(*name_at)(unsigned i))
{
	if (argc != 2 || strcmp(argv[1], "bash") != 0) {
		fprintf(stderr, "usage: headgate completion bash\n");
		return 1;
	}
	fputs(script_begin, stdout);
	put_commands(name_at);
	fputs(script_end, stdout);
	return 0;
}

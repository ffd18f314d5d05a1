"""`esim-dealer completion`: a script by which a shell completes the commands and their options."""

import argparse
from collections.abc import Mapping

from esim_dealer.cli.arguments import Commands
from esim_dealer.cli.session import Session

_BASH = """_esim_dealer() {{
  local at="" word words=""
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$at $word" in {paths}) at="$at $word" ;; esac
  done
  case "$at" in
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _esim_dealer esim-dealer
"""
_ZSH = "autoload -Uz bashcompinit && bashcompinit\n"
SHELLS = ("bash", "zsh", "fish")


def add_commands(commands: Commands) -> None:
    command = commands.add("completion", completion, "print a script that completes commands in your shell")
    command.add_argument("shell", choices=SHELLS)
    command.epilog = (
        'bash: eval "$(esim-dealer completion bash)"; zsh the same; fish: esim-dealer completion fish | source'
    )


def completion(_: Session, options: argparse.Namespace) -> None:
    words = {
        " ".join(path): [*parser.commands, *(name for name in parser.option_names if name.startswith("--"))]
        for path, parser in options.root.walk()
    }
    print(_fish(words) if options.shell == "fish" else (_ZSH if options.shell == "zsh" else "") + _bash(words), end="")


def _bash(words: Mapping[str, list[str]]) -> str:
    paths = "|".join(f'" {path}"' for path in words if path)
    cases = "\n".join(f'    "{path and " " + path}") words="{" ".join(known)}" ;;' for path, known in words.items())
    return _BASH.format(paths=paths, cases=cases)


def _fish(words: Mapping[str, list[str]]) -> str:
    """Below a command its words; above it, the commands."""
    lines = ["complete -c esim-dealer -f"]
    for path, known in words.items():
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in path.split())
        below = [name for name in known if not name.startswith("--")]
        none = f"not __fish_seen_subcommand_from {' '.join(below)}" if below else ""
        condition = "; and ".join(filter(None, (seen, none)))
        lines += [
            f"complete -c esim-dealer -n '{condition}' "
            + (f"-l {name.removeprefix('--')}" if name.startswith("--") else f"-a {name}")
            for name in known
        ]
    return "\n".join(lines) + "\n"

"""The child that runs a chat template: reads a job on stdin, writes what came of it to stdout.

It limits itself before it looks at the template. Knows nothing of models.
"""

import json
import resource
import sys
from datetime import date
from typing import Any, NoReturn

import msgspec
from jinja2.ext import Extension
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from edgeprof.profiling.chat import Rendered, RenderJob

_MOST_SECONDS = 5  # of processor time; a template needs some milliseconds
_MOST_BYTES = 1 << 29  # of address space, Python's own included
_MOST_TEXT = 1 << 22  # characters of one chat
_LONGEST_FAULT = 300
_TODAY = date(2024, 7, 26)  # for all time: a prompt shall be the same whenever it is run


class _Refused(Exception):
    """The template itself says that it does not serve."""


class _AnswerMarks(Extension):
    """``{% generation %}`` marks the answers for those who train on them; here it is nothing."""

    tags = {"generation"}  # noqa: RUF012  (as Jinja declares it)

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_MOST_SECONDS, _MOST_SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=RenderJob)
    try:
        rendered = Rendered(texts=_render(job))
    except _Refused as error:
        rendered = Rendered(fault=f"refuses the prompt: {_short(error)}")
    except MemoryError:
        rendered = Rendered(fault="used more memory than any template needs")
    except Exception as error:  # whatever a program from outside can raise
        rendered = Rendered(fault=f"cannot be run: {_short(error)}")
    try:
        answer = msgspec.json.encode(rendered)
    except UnicodeEncodeError:
        fault = "cannot be run: it gives half a surrogate pair, which is no character"
        answer = msgspec.json.encode(Rendered(fault=fault))
    sys.stdout.buffer.write(answer)


def _render(job: RenderJob) -> list[str]:
    """The settings are those of Hugging Face Transformers, for which templates are written."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _AnswerMarks]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _TODAY.strftime
    template = environment.from_string(job.template)
    texts = []
    for chat in job.chats:
        pieces: list[str] = []
        length = 0
        for piece in template.generate(messages=chat, add_generation_prompt=True, **job.variables):
            length += len(piece)
            if length > _MOST_TEXT:
                raise ValueError(f"it gives more than {_MOST_TEXT} characters")
            pieces.append(piece)
        texts.append("".join(pieces))
    return texts


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As plain text, with the arguments that templates give; Jinja's own filter writes HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _refuse(message: str) -> NoReturn:
    raise _Refused(message)


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:_LONGEST_FAULT] or type(error).__name__


if __name__ == "__main__":
    main()

"""The child that runs a chat template: reads a job on stdin, writes what came of it to stdout.

It limits itself before it looks at the template. Knows nothing of models.
"""

import resource
import sys
from datetime import date
from typing import Any, NoReturn

import msgspec

from edgeprof.profiling.chat import Rendered, RenderJob

_MOST_SECONDS = 5  # of processor time; a template needs some milliseconds
_MOST_BYTES = 1 << 29  # of address space, Python's own included
_MOST_TEXT = 1 << 22  # characters of one chat
_LONGEST_FAULT = 300
_TODAY = date(2024, 7, 26)  # for all time: a prompt shall be the same whenever it is run


class _Refused(Exception):
    """The template itself says that it does not serve."""


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
    sys.stdout.buffer.write(msgspec.json.encode(rendered))


def _render(job: RenderJob) -> list[str]:
    """The settings are those of Hugging Face Transformers, for which templates are written."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
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


def _to_json(value: Any, indent: int | None = None) -> str:
    """As plain text; Jinja's own filter writes it for HTML."""
    import json

    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise _Refused(message)


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:_LONGEST_FAULT] or type(error).__name__


if __name__ == "__main__":
    main()

"""Puts prompts into a model's own chat template.

A template is a program that came with a model, from outside. It is run by Jinja's sandbox in a
child process of its own with little memory and time, so that one that loops or fills the memory
costs a message and nothing else.
"""

import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec

import msgspec
from msgspec import Struct

from edgeprof.errors import EnvironmentFault, FileFault
from edgeprof.process_end import describe_end
from edgeprof.profiling.children import child_environment
from edgeprof.profiling.model_words import ChatTemplate, ModelWords

_PATIENCE_S = 20.0  # most of it for a slow board to start Python


class RenderJob(Struct, frozen=True, kw_only=True):
    """The chats to render, each a list of turns, and what the template may refer to."""

    template: str
    chats: list[list[dict[str, str]]]
    variables: dict[str, str]


class Rendered(Struct, frozen=True, kw_only=True):
    """One text a chat, or why there is none."""

    texts: list[str] = []
    fault: str | None = None


def render_chats(
    template: ChatTemplate, words: ModelWords, prompts: Sequence[str], system: str | None = None
) -> list[str]:
    """The text that a chat model is given for each prompt, up to where its answer begins.

    Raises FileFault for a template that does not give one, EnvironmentFault without jinja2.
    """
    if find_spec("jinja2") is None:
        raise EnvironmentFault(
            "a chat template needs the package jinja2: pip install 'edgeprof[cpu]', or on a Jetson "
            "pip install jinja2"
        )
    opening = [] if system is None else [{"role": "system", "content": system}]
    job = RenderJob(
        template=template.source,
        chats=[[*opening, {"role": "user", "content": prompt}] for prompt in prompts],
        variables={"bos_token": words.bos_token or "", "eos_token": words.eos_token or ""},
    )
    rendered = _in_a_child(template, job)
    if rendered.fault is not None:
        raise FileFault(f"{template.path}: the chat template {rendered.fault}")
    return rendered.texts


def _in_a_child(template: ChatTemplate, job: RenderJob) -> Rendered:
    try:
        done = subprocess.run(
            [sys.executable, "-m", "edgeprof.profiling.chat_child"],
            input=msgspec.json.encode(job),
            capture_output=True,
            timeout=_PATIENCE_S,
            env=child_environment(),
            cwd="/",
        )
        return msgspec.json.decode(done.stdout, type=Rendered)
    except subprocess.TimeoutExpired:
        return Rendered(fault=f"did not come to an end within {_PATIENCE_S:.0f} s")
    except msgspec.DecodeError:  # it was stopped before it could say why
        if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            return Rendered(fault="used more time or memory than any template needs")
        words = done.stderr.decode(errors="replace").strip()
        return Rendered(fault=f"cannot be run: its process {describe_end(done.returncode, words)}")

"""Whether a provider works on this machine: one real operator on it, in a process of its own."""

import re
import subprocess
import sys
from typing import Any

import msgspec
from msgspec import Struct

from edgeprof.errors import EnvironmentFault
from edgeprof.process_end import describe_end
from edgeprof.profiling.children import child_environment

_MODULE = "edgeprof.runner.provider_probe"
_WAIT_S = 120.0  # the first use of a GPU after a start takes its time
_TAIL_CHARACTERS = 4000
_REASON_CHARACTERS = 600
# How onnxruntime and the loader of libraries tell what is missing.
_REASONS = (
    r"error: (\S+: cannot open shared object file[^\n]*)",
    r"(Failed to create \w+ExecutionProvider\.[^\n]*)",
    r"(no kernel image is available[^\n]*)",
    r"(CUDA (?:failure|error)[^\n]*)",
)


class ProviderState(Struct, frozen=True, kw_only=True):
    """``reason`` says why a provider is not usable, in one line."""

    provider: str
    usable: bool
    reason: str | None = None
    onnxruntime: str | None = None


class _Answer(Struct):
    usable: bool
    reason: str | None = None
    onnxruntime: str | None = None


def probe_provider(provider: str, *, wait_s: float = _WAIT_S) -> ProviderState:
    """What came of one operator on ``provider``; a probe that dies or hangs is an answer too."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", _MODULE, provider],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=wait_s,
            stdin=subprocess.DEVNULL,
            env=child_environment(),
            cwd="/",
            check=False,
        )
    except subprocess.TimeoutExpired:
        reason = f"an operator on it has not come back after {wait_s:.0f} s"
        return ProviderState(provider=provider, usable=False, reason=reason)
    except OSError as error:
        reason = f"its probe cannot be started: {error.strerror}"
        return ProviderState(provider=provider, usable=False, reason=reason)
    words = done.stderr[-_TAIL_CHARACTERS:].strip()
    answer = _answer(done.stdout)
    if answer is None:
        reason = f"its probe {describe_end(done.returncode, words)}"
        return ProviderState(provider=provider, usable=False, reason=_one_line(reason))
    told = None if answer.usable else _reason(answer.reason or "", words)
    return ProviderState(
        provider=provider, usable=answer.usable, reason=told, onnxruntime=answer.onnxruntime
    )


def require_providers(providers: set[str]) -> None:
    """EnvironmentFault for the first that is not usable. The CPU's is taken to be: the decoder
    finds out by itself, as early."""
    for provider in sorted(providers - {"cpu"}):
        state = probe_provider(provider)
        if not state.usable:
            raise EnvironmentFault(
                f"provider {provider!r} is not usable here: {state.reason}; see docs/providers.md"
            )


def _answer(stdout: str) -> _Answer | None:
    """The last line of what the probe printed: libraries may have printed before."""
    lines = stdout.strip().splitlines()
    try:
        return msgspec.json.decode(lines[-1], type=_Answer) if lines else None
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None


def _reason(reason: str, words: str) -> str:
    """The probe's reason, and what lies behind it where onnxruntime only warned of that."""
    causes: list[Any] = [match[1] for p in _REASONS if (match := re.search(p, words))]
    return _one_line(f"{causes[0]}: {reason}" if causes else reason)


def _one_line(text: str) -> str:
    clean = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(clean.split())[:_REASON_CHARACTERS]

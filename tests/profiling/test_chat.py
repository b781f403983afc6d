"""Chat templates: those that models come with, and those that mean harm."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from edgeprof.errors import EnvironmentFault, FileFault
from edgeprof.profiling.chat import render_chats
from edgeprof.profiling.model_words import ChatTemplate, ModelWords

CHATML = """\
{%- for message in messages %}
    {%- if loop.first and messages[0]['role'] != 'system' %}
        {{- '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}
    {%- endif %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


def render(source: str, *prompts: str, **words: Any) -> list[str]:
    template = ChatTemplate(path="m/tokenizer_config.json", source=source)
    system = words.pop("system", None)
    return render_chats(template, ModelWords(**words), prompts or ("hi",), system)


def test_every_prompt_is_a_chat_of_its_own() -> None:
    before = "<|im_start|>system\nYou are helpful.<|im_end|>\n<|im_start|>user\n"
    after = "<|im_end|>\n<|im_start|>assistant\n"
    assert render(CHATML, "one", "{{ 1 + 1 }}") == [
        f"{before}one{after}", f"{before}{{{{ 1 + 1 }}}}{after}",
    ]  # fmt: skip


def test_a_system_message_comes_first() -> None:
    assert render(CHATML, "hi", system="Be brief.") == [
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
        "<|im_start|>assistant\n"
    ]


def test_what_templates_rely_on_is_there() -> None:
    source = (
        "{{ bos_token }}|{{ eos_token }}|{{ messages[0] | tojson }}|{{ strftime_now('%Y') }}|"
        "{% for n in range(9) %}{% if n == 2 %}{% break %}{% endif %}{{ n }}{% endfor %}|"
        "{% set ns = namespace(x=1) %}{% set ns.x = 2 %}{{ ns.x }}|{{ tools is defined }}"
    )
    assert render(source, "<\N{EURO SIGN}>", bos_token="<s>") == [
        '<s>||{"role": "user", "content": "<\N{EURO SIGN}>"}|2024|01|2|False'
    ]


def test_marks_for_training_and_arguments_of_tojson_are_taken() -> None:
    source = "{% generation %}{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}{% endgeneration %}"
    assert render(source) == ['{"a": 2, "b": 1}']


def test_a_text_that_is_none_is_told() -> None:
    for source in ("{{ '\\ud800' }}", "{{ raise_exception('\\ud800') }}"):
        with pytest.raises(FileFault, match="half a surrogate pair, which is no character"):
            render(source)


def test_a_child_that_dies_of_something_else_is_not_called_greedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "resource.py").write_text("raise OSError('no limits here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("edgeprof.profiling.chat.child_environment", lambda: {**os.environ})
    says = "cannot be run: its process ended with exit code 1: OSError: no limits here"
    with pytest.raises(FileFault, match=says):
        render(CHATML)


def test_a_template_may_refuse() -> None:
    source = "{% if messages[0].role == 'system' %}{{ raise_exception('no\nsystem') }}{% endif %}ok"
    assert render(source) == ["ok"]
    with pytest.raises(FileFault, match=r"m/tokenizer_config\.json: .* refuses the prompt: no sys"):
        render(source, system="x")


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__class__.__base__.__subclasses__() }}",
        "{{ '{0.__class__.__mro__}'.format(messages) }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='x') }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{{ range(10 ** 9) | list }}",
        "{{ no_such_function() }}",
        "{% for %}",
        "{% if %}",
        "{{ 1 / 0 }}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
    ],
)
def test_a_template_that_reaches_out_or_is_broken_is_told_in_one_line(source: str) -> None:
    with pytest.raises(FileFault, match="the chat template cannot be run: ") as caught:
        render(source)
    assert caught.value.exit_code == 1
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_what_a_template_must_not_see_is_not_there() -> None:
    assert render("a{{ raise_exception.__globals__ }}{{ strftime_now.__self__ }}b") == ["ab"]


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x' * 10 ** 10 }}",
        "{% set ns = namespace(x='xx') %}{% for n in range(60) %}{% set ns.x = ns.x + ns.x %}"
        "{% endfor %}{{ ns.x }}",
        "{% for a in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
        "{{ [messages] * 10 ** 9 }}",
        "{{ messages | tojson(indent=10 ** 9) }}",
    ],
)
def test_a_template_that_fills_the_memory_is_stopped(source: str) -> None:
    with pytest.raises(FileFault, match=r"memory than any template|more than 4194304 characters"):
        render(source)


def test_a_template_that_loops_is_stopped() -> None:
    loops = "".join(f"{{% for n{depth} in range(99999) %}}" for depth in range(3))
    started = time.monotonic()
    with pytest.raises(FileFault, match=r"more time or memory|did not come to an end"):
        render(loops + "{% endfor %}" * 3)
    assert time.monotonic() - started < 30


def test_without_jinja2_the_line_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(EnvironmentFault, match="jinja2: pip install"):
        render(CHATML)

"""Packaging and imports: light where it must be, complete where it is easy to forget."""

import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest

import edgeprof

ROOT = Path(__file__).parents[1]
HEAVY = {"numpy", "matplotlib", "onnxruntime", "onnx", "gguf", "psutil", "tokenizers", "jtop",
         "huggingface_hub"}  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["roofline", "--device", "orin-nano", "--model", "7b-q4"],
        ["roofline", "--device", "orin-nano", "--model", "7b-q4", "--json"],
        ["plan", "--device", "orin-nano", "--target", "7b-q4", "--draft", "smollm2-135m"],
        ["devices"],
        ["models", "qwen3-30b-a3b"],
        ["pair", "qwen2.5-7b", "qwen2.5-0.5b"],
    ],
)
def test_light_commands_import_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        f"sys.argv = ['edgeprof', *{arguments!r}]\n"
        "from edgeprof.cli import main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        f"    print(sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_setup_cfg_lists_every_package() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = set(config["options"]["packages"].split())
    found = {
        ".".join(init.parent.relative_to(ROOT).parts)
        for init in (ROOT / "edgeprof").rglob("__init__.py")
    }
    assert found | {"edgeprof.device_profiles", "edgeprof.recipes"} == listed


def test_setup_cfg_takes_every_file_that_is_not_python_along() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    patterns = config["options.package_data"]
    for package in config["options"]["packages"].split():
        if package in ("edgeprof.device_profiles", "edgeprof.recipes"):
            continue
        for file in (ROOT / package.replace(".", "/")).iterdir():
            if file.is_file() and file.suffix != ".py":
                taken = patterns.get(package, "").split()
                assert any(file.match(pattern) for pattern in taken), file


def test_changelog_and_version_agree() -> None:
    versions = re.findall(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == edgeprof.__version__

"""How a diagnosis is shown: from findings that are made by hand."""

import subprocess

from made_findings import BOARD, runtime
from msgspec import structs

from edgeprof.diagnosis import SCHEMA, Blocker, Diagnosis, Findings, GpuLibrary, JobFinding, Step
from edgeprof.report.doctor import doctor_document, doctor_markdown, doctor_text

HOME = "/home/al"
LACKING = "it holds GPU code for sm_89, sm_120 and none for this board's sm_87"


def diagnosis(findings: Findings, *steps: str) -> Diagnosis:
    return Diagnosis(
        schema=SCHEMA,
        created_utc="2026-01-01T00:00:00Z",
        edgeprof_version="0.1.0",
        job="run",
        jobs=[JobFinding(job="run", possible=True, blocking=[], limits=[])],
        next_steps=[Step(command=command, why="because") for command in steps],
        findings=findings,
    )


def called(*, script: str | None, on_path: bool, executable: str = "/v/bin/python3") -> Findings:
    return structs.replace(
        BOARD,
        python=structs.replace(
            BOARD.python, script=script, script_on_path=on_path, executable=executable
        ),
    )


def test_the_block_to_paste_has_no_home_and_keeps_its_commands_whole() -> None:
    findings = called(script=f"{HOME}/v/bin/edgeprof", on_path=True)
    text = doctor_markdown(
        diagnosis(findings, f"'{HOME}/my v/bin/python' -m pip", f"{HOME}/v/bin/python", HOME), HOME
    )
    assert HOME not in text and "script: ~/v/bin/edgeprof" in text
    block = text[text.index("```sh") :].splitlines()
    assert block[1:-1] == [
        "# because", "~/'my v/bin/python' -m pip",  # a shell takes no ~ between quotes
        "# because", "~/v/bin/python",
        "# because", "~",
    ]  # fmt: skip
    done = subprocess.run(
        ["sh", "-c", f"echo {block[2]}"], env={"HOME": HOME}, capture_output=True, text=True
    )
    assert done.stdout == f"{HOME}/my v/bin/python -m pip\n"


def test_another_folder_that_begins_like_home_is_not_home() -> None:
    text = doctor_markdown(diagnosis(BOARD, "ls /home/alice /home/al-2 /home/al.old"), HOME)
    assert "ls /home/alice /home/al-2 /home/al.old" in text
    nobody = doctor_markdown(diagnosis(BOARD, "ls /etc"), "/")
    assert "ls /etc" in nobody


def test_k08_the_script_and_what_does_the_same_without_it() -> None:
    text = doctor_text(diagnosis(called(script=None, on_path=False)), 200)
    assert "the script edgeprof is nowhere: `/v/bin/python3 -m edgeprof` does the same" in text
    aside = called(script="/v/bin/edgeprof", on_path=False, executable="/my v/python3")
    text = doctor_text(diagnosis(aside), 200)
    module = "`'/my v/python3' -m edgeprof` does the same"
    assert f"script: /v/bin/edgeprof, not on PATH: {module}" in text
    assert 'export PATH="/v/bin:$PATH"' in text


def test_where_no_command_helps_nothing_is_called_well() -> None:
    fine = diagnosis(BOARD)
    assert doctor_text(fine, 100).endswith("What to do next\nnothing: all is as it should be")
    full = Blocker(reason="/s: 0 MiB are free, too little for sessions", fix=None)
    stuck = structs.replace(
        fine, jobs=[JobFinding(job="run", possible=False, blocking=[full], limits=[])]
    )
    assert doctor_text(stuck, 100).endswith("What to do next\nno command mends it: see above")


def test_i02_the_gpu_code_of_the_wheel_stands_beside_what_the_board_needs() -> None:
    gpu = GpuLibrary(
        library="/v/cuda.so", architectures=(89, 120), ptx_architectures=(), runs_here=False,
        reason=LACKING,
    )  # fmt: skip
    found = runtime(("onnxruntime-gpu", "1.31.1"), package="onnxruntime-gpu", gpu=gpu)
    findings = structs.replace(BOARD, onnxruntime=found)
    text = doctor_text(diagnosis(findings), 200)
    assert "GPU code in /v/cuda.so: sm_89, sm_120\n" in text and LACKING in text
    shown = doctor_document(diagnosis(findings))["onnxruntime"].gpu
    assert shown.runs_here is False and shown.reason == LACKING

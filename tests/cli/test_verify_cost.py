"""What --verify-cost reads: a table, or the held passes of a session."""

from pathlib import Path

import pytest

from edgeprof.cli.verify_cost import read_verify_cost
from edgeprof.errors import EdgeprofError, FileFault, UsageFault


def table(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "costs.csv"
    path.write_text(text)
    return path


def test_a_table_with_further_columns_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = table(
        tmp_path,
        "\ufeffboard,n_tokens,kernel,pass_cost_vs_1\norin,1,mvq,1.0\norin,2,mvq,1.359\norin,8,mvq,3\n",
    )
    assert read_verify_cost(path) == {1: 1.0, 2: 1.359, 8: 3.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column n_tokens"),
        ("n_tokens;pass_cost_vs_1\n2;1,3\n", "no column n_tokens"),
        ("n_tokens,cost\n2,1.3\n", "no column pass_cost_vs_1"),
        ("n_tokens,pass_cost_vs_1\n1,1\n", "no cost of a pass over 2 tokens or more"),
        ("n_tokens,pass_cost_vs_1\n2,1.3\n2,0.9\n", "line 3: n_tokens 2 is there twice"),
        ("n_tokens,pass_cost_vs_1\n1,17.7\n2,29.2\n", "of one token is 17.7"),
        ("n_tokens,pass_cost_vs_1\n2,nan\n", "line 2: pass_cost_vs_1 must be above 0"),
        ("n_tokens,pass_cost_vs_1\n2,inf\n", "pass_cost_vs_1 must be above 0"),
        ("n_tokens,pass_cost_vs_1\n2,-1\n", "pass_cost_vs_1 must be above 0"),
        ("n_tokens,pass_cost_vs_1\n2\n", "pass_cost_vs_1 must be above 0"),
        ("n_tokens,pass_cost_vs_1\n0,1\n", "line 2: n_tokens must be 1 to 65536"),
        ("n_tokens,pass_cost_vs_1\n2.5,1\n", "n_tokens must be 1 to 65536"),
        ("n_tokens,pass_cost_vs_1\n²,1\n", "n_tokens must be 1 to 65536"),
        ("n_tokens,pass_cost_vs_1\n" + "9" * 5000 + ",1\n", "n_tokens must be 1 to 65536"),
        ("n_tokens,pass_cost_vs_1\n2," + "9" * 200_000 + "\n", "not CSV"),
    ],
)
def test_tables_that_say_nothing_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(FileFault, match=r"costs\.csv") as caught:
        read_verify_cost(table(tmp_path, text))
    assert message in str(caught.value)


def test_files_that_are_no_table(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match="cannot be read: No such file"):
        read_verify_cost(tmp_path / "none.csv")
    with pytest.raises(UsageFault, match="cannot be read: Is a directory"):
        read_verify_cost(tmp_path)
    binary = tmp_path / "costs.csv"
    binary.write_bytes(b"\x00\xff\xfe" * 100)
    with pytest.raises(FileFault, match="neither a session nor text"):
        read_verify_cost(binary)
    binary.write_bytes(b"n" * (2 << 20))
    with pytest.raises(FileFault, match="larger than 1 MiB"):
        read_verify_cost(binary)
    binary.write_bytes(b"SQLite format 3\x00" + b"\xff" * 100)
    with pytest.raises(EdgeprofError, match=r"costs\.csv"):
        read_verify_cost(binary)
    with pytest.raises(UsageFault, match="names a model of a session"):
        read_verify_cost(table(tmp_path, "n_tokens,pass_cost_vs_1\n2,1.3\n"), "fp32")


def test_held_passes_of_a_session(session_file: Path) -> None:
    assert read_verify_cost(session_file, "fp32") == pytest.approx({1: 1.0, 3: 1.0, 5: 1.2})
    assert read_verify_cost(session_file, "int4") == pytest.approx({1: 1.0, 3: 1.8})
    with pytest.raises(UsageFault, match="passes of fp32, int4 were held; choose one"):
        read_verify_cost(session_file)
    with pytest.raises(UsageFault, match="no target with held passes named 'int8'"):
        read_verify_cost(session_file, "int8")

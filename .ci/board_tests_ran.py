"""Fails where a test on the emulated board was skipped: the argument is pytest's JUnit file."""

import sys
from xml.etree import ElementTree

cases = [
    case
    for case in ElementTree.parse(sys.argv[1]).iter("testcase")
    if case.get("classname", "").startswith("tests.telemetry.board.")
]
skipped = [case.get("name") for case in cases if case.find("skipped") is not None]
if not cases or skipped:
    sys.exit(f"tests on the emulated board: {len(cases)} collected, skipped: {skipped}")
print(f"tests on the emulated board: {len(cases)} ran")

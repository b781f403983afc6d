"""Fails where one of some tests was skipped, or none of them is there.

The arguments are pytest's JUnit file and what the dotted names of these tests start with.
"""

import sys
from xml.etree import ElementTree

report, start = sys.argv[1:]
cases = [
    case
    for case in ElementTree.parse(report).iter("testcase")
    if case.get("classname", "").startswith(start)
]
skipped = [case.get("name") for case in cases if case.find("skipped") is not None]
if not cases or skipped:
    sys.exit(f"{start}*: {len(cases)} tests collected, skipped: {skipped}")
print(f"{start}*: {len(cases)} tests ran")

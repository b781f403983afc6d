"""What every command prints as a document."""

import json
import os

from msgspec import Struct

from edgeprof.cli.output import json_text


class Place(Struct):
    path: str
    free_bytes: int | None


def test_a_name_that_is_no_utf8_is_shown_and_the_rest_is_as_it_was() -> None:
    odd = os.fsdecode(b"/srv/caf\xe9")
    found = json_text({"places": [Place(odd, None), Place("/é", 1 << 40)], odd: [True, 0.5]})
    assert json.loads(found) == {
        "places": [
            {"path": "/srv/caf\\xe9", "free_bytes": None},
            {"path": "/é", "free_bytes": 1 << 40},
        ],
        "/srv/caf\\xe9": [True, 0.5],
    }


def test_keys_are_shown_in_their_order() -> None:
    assert json_text({"schema": "x/1", "a": 1}) == '{\n  "schema": "x/1",\n  "a": 1\n}'

"""Markdown as sections of HTML."""

from edgeprof.report.sections_html import sections_html

TABLE = """\
# Title

**Simulated samples: not read from a board in this session.**

**Bold** but no stamp

## Speed (tokens/s)

| variant   | tokens/s |
| --------- | -------: |
| a \\<b\\> \\| |     45.0 |

![A plot](plot.svg)

## Environment

|       |   |
| ----- | --- |
| board | X |
"""
STAMP = "Simulated samples: not read from a board in this session."


def test_sections_have_ids_and_titles() -> None:
    opening, speed, environment = sections_html(TABLE, {"plot.svg": "data:x"}, [STAMP])
    assert (opening.id, opening.title) == ("", "")
    assert (speed.id, speed.title) == ("section-speed-tokens-s", "Speed (tokens/s)")
    assert '<h2 id="section-speed-tokens-s">Speed (tokens/s)</h2>' in speed.html
    assert environment.id == "section-environment"


def test_only_a_stamp_is_framed() -> None:
    opening = sections_html(TABLE, {"plot.svg": "data:x"}, [STAMP])[0].html
    assert f'<p class="stamp"><strong>{STAMP}</strong></p>' in opening
    assert "<p><strong>Bold</strong> but no stamp</p>" in opening


def test_the_first_cell_names_its_row_and_a_heading_without_words_is_none() -> None:
    _, speed, environment = sections_html(TABLE, {"plot.svg": "data:x"}, [])
    assert '<th scope="col">variant</th>' in speed.html
    assert '<th class="right" scope="col">tokens/s</th>' in speed.html
    assert '<th scope="row">a &lt;b&gt; |</th>' in speed.html
    assert '<td class="right">45.0</td>' in speed.html
    assert "<td></td>\n<td></td>" in environment.html
    assert '<th scope="row">board</th>\n<td>X</td>' in environment.html


def test_a_plot_is_an_image_or_what_stands_in_for_it() -> None:
    image = sections_html(TABLE, {"plot.svg": "data:x"}, [])[1].html
    assert '<figure><img src="data:x" alt="A plot"><figcaption>A plot</figcaption>' in image
    chart = sections_html(TABLE, {"plot.svg": "<figure id='c'></figure>"}, [])[1].html
    assert "<figure id='c'></figure>" in chart and "<p><figure" not in chart


def test_tags_are_not_let_through() -> None:
    (page,) = sections_html("<script>x</script>\n\n[a](javascript:x) <b>y</b>\n", {}, [])
    assert "<script" not in page.html and "<b>" not in page.html and "<a" not in page.html


def test_nothing_in_it_leads_anywhere() -> None:
    text = "- [b]: https://example.org 'why'\n\n[b] ![b] <https://example.org> ![c](d.png)\n"
    (page,) = sections_html(text, {}, [])
    assert "<a" not in page.html and "<img" not in page.html and "href" not in page.html

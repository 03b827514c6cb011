"""The page in a real browser, from the disk: heads are chosen, tokens say their weights, nothing complains."""

import pytest

from manyheads.config import DataConfig, ModelConfig, PairKind
from manyheads.inference.folder import load
from manyheads.plugins.interpret.maps import answer_batch, layer_maps, only_batch, record_attention
from manyheads.plugins.interpret.page import look_at
from manyheads.plugins.interpret.shown import Chosen

TEXT = 'a good <script>alert(1)</script> film\u2028so "fine"'


@pytest.fixture(scope="module")
def page(model_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("look")
    chosen = Chosen([0, 1], [0, 1])
    return look_at(load(model_folder), TEXT, None, chosen, folder=folder, source="a <b>run</b>").page


@pytest.fixture(scope="module")
def weights(model_folder):
    """The weights of the text by layer: `(H, L, M)`."""
    import torch

    predictor = load(model_folder)
    with torch.no_grad(), record_attention(predictor.network) as calls:
        answer_batch(predictor, only_batch(predictor, TEXT, None))
    return [layer_maps(call).weights_HLM for call in calls]


def readout(chromium):
    """Token asked, and the weights listed, as they are read on the page."""
    lines = chromium.value(
        "[...document.querySelectorAll('#weights li')].map(one => [...one.children].map(x => x.textContent))"
    )
    return chromium.value("document.getElementById('asked').textContent"), [(name, value) for name, value, _ in lines]


def test_it_opens_from_the_disk_and_asks_for_nothing(chromium, page):
    chromium.open(page)
    assert chromium.value("location.protocol") == "file:"
    assert chromium.complaints == []
    assert chromium.value("document.getElementById('chosen').textContent") == "Layer 1, head 1"
    assert chromium.value("document.querySelectorAll('#grid button').length") == 4
    tokens = chromium.value("[...document.querySelectorAll('#text .token > span')].map(one => one.textContent)")
    assert tokens[:5] == ["[CLS]", "a", "good", "</", "script"] or tokens[:4] == ["[CLS]", "a", "good", "<"]
    assert chromium.value("document.querySelectorAll('script').length") == 6  # four maps, the page, ours
    assert chromium.value("document.querySelector('.eyebrow').textContent") == "Attention of a <b>run</b>"


def test_hovering_a_token_says_its_weights(chromium, page, weights):
    chromium.open(page)
    chromium.point("#grid button[data-at='1 1']", click=True)
    chromium.wait("document.getElementById('chosen').textContent === 'Layer 2, head 2'")
    assert chromium.value("document.querySelector('#grid [aria-pressed=true]').dataset.at") == "1 1"
    chromium.point("#text [data-at='2']")
    map_LM = weights[1][1]
    small = chromium.value("[...document.querySelectorAll('#text .token small')].map(one => one.textContent)")
    for shown, expected in zip(small, map_LM[2].tolist(), strict=True):
        assert float(shown) == pytest.approx(expected, abs=6e-5)
    asked, listed = readout(chromium)
    assert asked == "good looks at"
    best = map_LM[2].sort(descending=True).values.tolist()
    assert [float(value) for _, value in listed] == pytest.approx(best[: len(listed)], abs=6e-5)
    assert chromium.value("document.getElementById('rest').textContent").endswith("All together 1.000.")
    chromium.point("#way [data-value=to]", click=True)
    chromium.point("#text [data-at='2']")
    asked, listed = readout(chromium)
    assert asked == "good is looked at by"
    best = map_LM[:, 2].sort(descending=True).values.tolist()
    assert [float(value) for _, value in listed] == pytest.approx(best[: len(listed)], abs=6e-5)
    assert chromium.complaints == []


def test_a_cell_of_the_matrix_says_its_weight(chromium, page, weights):
    chromium.open(page, "#view=matrix&block=1&head=0")
    place = chromium.value("({left: matrixView.left(), above: matrixView.above(), cell: matrixView.cell()})")
    x, y = (place[side] + (at + 0.5) * place["cell"] for side, at in (("left", 3), ("above", 2)))
    chromium.point("#matrix", x=x, y=y)
    assert chromium.value("JSON.stringify([state.hover.token, state.hover.key])") == "[2,3]"
    here = chromium.value("document.querySelector('#weights .here').children[1].textContent")
    assert float(here) == pytest.approx(weights[1][0][2, 3].item(), abs=6e-5)
    rgb = chromium.value(
        f"[...document.querySelector('#matrix canvas').getContext('2d').getImageData({x + 3}, {y + 3}, 1, 1).data]"
    )
    expected = chromium.value("shade(weight(current, 2, 3), current.most)")
    assert rgb[:3] == pytest.approx(expected, abs=2)
    assert chromium.complaints == []


def test_lines_answer_on_both_sides(chromium, page, weights):
    chromium.open(page, "#view=lines")
    sides = chromium.value("lineView.sides(document.getElementById('lines').clientWidth)")
    for x, asked, best in (
        (sides["left"] - 20, "good looks at", weights[0][0][2].max()),
        (sides["right"] + 20, "good is looked at by", weights[0][0][:, 2].max()),
    ):
        chromium.point("#lines", x=x, y=8 + 2.5 * 25)
        said, listed = readout(chromium)
        assert said == asked
        assert float(listed[0][1]) == pytest.approx(best.item(), abs=6e-5)
    assert chromium.complaints == []


def test_the_keyboard_is_enough(chromium, page):
    chromium.open(page)
    chromium.value("document.querySelector('#grid [aria-pressed=true]').focus()")
    chromium.press("ArrowRight", "ArrowDown")
    chromium.wait("document.getElementById('chosen').textContent === 'Layer 2, head 2'")
    assert chromium.value("document.activeElement.dataset.at") == "1 1"
    chromium.press("Tab")
    assert chromium.value("document.activeElement.textContent") == "Text"
    chromium.press("ArrowRight", "ArrowRight")
    chromium.wait("!document.getElementById('matrix').hidden")
    chromium.press("Tab", "Tab", "ArrowDown", "ArrowRight", "Enter")
    assert chromium.value("document.activeElement.id") == "matrix"
    assert chromium.value("document.getElementById('live').textContent").startswith("good looks at ")
    assert chromium.value("location.hash") == "#block=1&head=1&view=matrix&token=2&way=from"
    chromium.open(page, "#token=2")
    chromium.value("document.querySelector('#text [data-at=\"2\"]').focus()")
    chromium.press("ArrowRight")
    assert chromium.value("document.activeElement.dataset.at") == "3"
    assert chromium.value("state.token") == 3
    assert chromium.complaints == []


def contrast(one, other):
    def luminance(rgb):
        linear = [x / 3294.6 if x <= 10 else ((x / 255 + 0.055) / 1.055) ** 2.4 for x in rgb]  # WCAG 2.2
        return sum(share * x for share, x in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_colours_can_be_read_and_their_lightness_has_one_direction(chromium, page, dark):
    chromium.open(page, dark=dark)
    ramp = chromium.value("ramp")
    grey = [0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in ramp]
    assert grey == sorted(grey, reverse=not dark)
    hexes = chromium.value("ramp.map(inkOn)")
    inks = [tuple(int(one[at : at + 2], 16) for at in (1, 3, 5)) for one in hexes]
    assert min(contrast(rgb, ink) for rgb, ink in zip(ramp, inks, strict=True)) >= 4.5
    read = "[1, 3, 5].map((from) => parseInt(colour(name).slice(from, from + 2), 16))"
    for name, behind in (("ink", "paper"), ("soft", "paper"), ("soft", "card"), ("held", "card"), ("accent", "card")):
        pair = [chromium.value(f"((name) => {read})('{one}')") for one in (name, behind)]
        assert contrast(*pair) >= 4.5, (name, behind)
    assert chromium.complaints == []


@pytest.fixture(scope="module")
def long_page(ship_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("long")
    shape = ModelConfig(n_layers=2, n_heads=4, d_model=16, d_k=4, d_v=4, d_ff=16)
    predictor = load(ship_model(folder / "model", data=DataConfig(max_length=512), shape=shape))
    text = " ".join(["good", "bad", "so", "film", "not", "very", "a"][at % 7] for at in range(600))
    return look_at(predictor, text, None, Chosen([0, 1], [0, 1, 2, 3]), folder=folder, source="run").page


SCROLL = """
new Promise((done) => {
  const box = document.getElementById("VIEW"), times = [];
  let before = null;
  const step = (now) => {
    if (before !== null) times.push(now - before);
    before = now;
    box.scrollTop += 97;
    box.scrollLeft += 53;
    times.length < 30 ? requestAnimationFrame(step) : done(times.sort((a, b) => a - b)[15]);
  };
  requestAnimationFrame(step);
})
"""


def test_512_tokens_open_and_scroll(chromium, long_page):
    chromium.open(long_page, "#view=matrix&block=1&head=2")
    assert chromium.value("page.tokens.length") == 512
    assert chromium.value("document.querySelectorAll('*').length") < 2000
    for view in ("matrix", "lines"):
        chromium.value(f"pick('view', '{view}')")
        chromium.wait(f"!document.getElementById('{view}').hidden")
        high, wide = chromium.value(f"((one) => [one.height, one.width])(document.querySelector('#{view} canvas'))")
        assert high < 900  # what is seen, not all rows
        assert wide < 1400
        assert chromium.value(f"document.getElementById('{view}').scrollHeight") > 5000
        assert chromium.value(SCROLL.replace("VIEW", view)) < 100  # ms a frame, also on a busy machine
        assert chromium.value(f"document.getElementById('{view}').scrollTop") > 1500
    chromium.value("pick('view', 'matrix')")
    chromium.point("#zoom button:nth-child(2)", click=True)
    chromium.wait(
        "document.getElementById('matrix').scrollHeight <= document.getElementById('matrix').clientHeight + 1"
    )
    assert chromium.complaints == []


def test_texts_read_apart_are_queries_and_keys(chromium, ship_model, tmp_path):
    shape = ModelConfig(n_layers=1, n_heads=2, d_model=16, d_k=4, d_v=6, d_ff=24, pair=PairKind.cross)
    predictor = load(ship_model(tmp_path / "model", pairs=True, shape=shape))
    chosen = Chosen(list(range(1 + shape.n_cross_layers)), [0, 1])
    looked = look_at(predictor, "good film", "bad", chosen, folder=tmp_path / "look", source="run")
    chromium.open(looked.page, "#block=2&head=1")
    assert chromium.value("document.getElementById('chosen').textContent") == "Layer 2, text A to text B, head 2"
    parts = chromium.value("[...document.querySelectorAll('#text .part > b')].map(one => one.textContent)")
    assert parts == ["A, the first text", "B, the second text"]
    chromium.point("#text [data-at='1']")
    assert readout(chromium)[0] == "good looks at"
    assert {name for name, _ in readout(chromium)[1]} == {"[CLS]", "bad", "[SEP]"}
    chromium.point("#text [data-at='5']")
    assert readout(chromium)[0] == "bad is looked at by"
    assert chromium.complaints == []


def test_an_address_of_another_page_does_no_harm(chromium, page):
    chromium.open(page, "#block=99&head=-1&view=constructor&way=toString&token=NaN&shade=<b>")
    assert chromium.value("document.getElementById('chosen').textContent") == "Layer 1, head 1"
    assert chromium.value("state.view + state.way") == "textfrom"
    assert chromium.complaints == []


def test_a_short_text_leaves_no_blank_area_and_a_long_title_is_seen_whole(chromium, page, model_folder, tmp_path):
    chromium.open(page, high=900)
    assert chromium.value("document.getElementById('text').clientHeight") < 200
    long = " ".join(["Wonderfully"] * 20)  # 239 letters, several lines of the title
    other = look_at(load(model_folder), long, None, Chosen([0], [0]), folder=tmp_path, source="a run").page
    chromium.open(other, wide=1100)
    words = "document.querySelector('.words')"
    assert chromium.value(f"{words}.scrollHeight <= {words}.clientHeight")
    assert chromium.value("document.title") == " ".join(["Wonderfully"] * 5) + "\u2026 \u2013 attention"

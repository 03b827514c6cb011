"""examples/attention_explained.py runs as it is typed, small, and what it says of attention holds."""

import json
import math
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def figures(python, tmp_path_factory):
    folder = tmp_path_factory.mktemp("attention")
    environment = os.environ | {"MANYHEADS_CACHE": str(folder / "cache")}
    done = python.run("examples/attention_explained.py", folder, "quick", cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads((folder / "attention.json").read_text())
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == list(found)
    assert {file.name for file in folder.glob("*.png")} == {file.name for file in DOCS.glob("pictures/attention-*.png")}
    return found


def test_the_blocks_are_the_formula(figures):
    assert figures["formula"]["largest_difference"] < 1e-6
    assert figures["formula"]["weight_on_itself"] > 0.98


@pytest.mark.parametrize("d_k", ["4", "64", "1024"])
def test_products_of_independent_vectors_have_mean_zero_and_variance_d_k(figures, d_k):
    found = figures["scale"][d_k]
    error = math.sqrt((2 + 6 / int(d_k)) / 2000)  # of the variance, relative: a product of normals has kurtosis 9
    assert abs(found["mean"]) < 4 * found["mean_error"]
    assert found["variance"] / int(d_k) == pytest.approx(1, abs=4 * error)
    assert found["mean_of_q_with_itself"] / int(d_k) == pytest.approx(1, abs=4 * math.sqrt(2 / int(d_k) / 2000))


def test_without_the_scale_the_softmax_saturates(figures):
    for found in figures["scale"].values():
        assert found["with_scale"]["entropy"] == pytest.approx(math.log(64) - 0.5, abs=0.1), "variance 1: half a nat"
        assert found["with_scale"]["dead_share"] == 0
    bare, scaled = figures["scale"]["1024"]["without"], figures["scale"]["1024"]["with_scale"]
    assert bare["dead_share"] > 0.5
    assert bare["jacobian_median"] < 0.01 < scaled["jacobian_median"]
    assert bare["query_gradient_mean"] > scaled["query_gradient_mean"], "few rows carry it, but it does not vanish"


def test_only_positions_masks_and_windows_see_order(figures):
    assert figures["order"]["no positions"]["words"] < 1e-13
    for case in ("sinusoidal", "learned", "rotary", "alibi", "causal mask", "window"):
        assert figures["order"][case]["words"] > 0.05
    for case in ("sinusoidal", "learned"):
        assert figures["order"][case]["vectors"] < 1e-13, "what is added to a vector goes along"


def test_heads_cost_the_same_parameters_and_products_but_not_the_same_memory(figures):
    for n_tokens in (64, 256):
        costs = figures["heads"][str(n_tokens)]
        assert {one["parameters"] for one in costs.values()} == {4 * 256**2 + 4 * 256}
        assert {one["flops"] for one in costs.values()} == {2 * 512 * (4 * 256**2 + 2 * n_tokens * 256)}
    kept = figures["heads"]["256"]["64"]["mebibytes"] - figures["heads"]["256"]["1"]["mebibytes"]
    assert kept == pytest.approx(63 * 512 * 256 * 4 / 2**20, rel=0.01), "63 more maps of T x T"


def test_the_formula_keeps_all_weights_and_the_fused_kernel_and_a_window_do_not(figures):
    costs = figures["length"]["lengths"]
    assert costs["256"]["textbook"]["mebibytes"] > 2 * 256**2 * 4 / 2**20, "two heads"
    assert figures["length"]["powers"].keys() == {
        f"{figure} of {kind}" for figure in ("milliseconds", "mebibytes") for kind in ("textbook", "fused", "window")
    }


def test_words_are_measured_in_trained_models(figures):
    assert figures["senses"]["training"]["steps"] == 2
    for word in ("check", "station"):
        for token in ("word", "full stop"):
            for found in figures["senses"][word][token].values():
                assert -1 <= found["other"] <= 1
                assert 0 <= found["nearest"] <= 1
    weights = figures["relations"]["weights"]
    assert all(0 <= most <= 1 for of_seeds in weights.values() for of_layers in of_seeds for most in of_layers)
    assert figures["relations"]["answers"].keys() >= {"the train left the station on time"}


def test_the_committed_figures_bear_out_the_claims_of_the_page():
    """They are of the full size, which takes minutes."""
    found = json.loads((DOCS / "pictures/attention.json").read_text())
    for figure in ("milliseconds", "mebibytes"):
        assert found["length"]["powers"][f"{figure} of textbook"] > 1.7
        assert found["length"]["powers"][f"{figure} of window"] < 1.2
    assert found["length"]["powers"]["mebibytes of fused"] < 1.2
    assert found["senses"]["training"]["test_accuracy"] > found["senses"]["training"]["cheap_accuracy"] + 0.2
    for word in ("check", "station"):
        top, bottom = (found["senses"][word]["word"][depth] for depth in ("layer 2", "embedding"))
        assert top["same"] - top["other"] > 0.2 > bottom["same"] - bottom["other"]
    for training in found["relations"]["training"]:
        assert training["test_accuracy"] > training["cheap_accuracy"] + 0.2


def test_the_page_shows_every_picture_and_links_to_what_exists():
    text = (DOCS / "attention.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"!\[[^\]]+\]\((pictures/[^)]+)\)", text))
    assert shown == {f"pictures/{file.name}" for file in (DOCS / "pictures").glob("attention-*.png")}
    for link in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert (DOCS / link).exists(), link
    for name, file in re.findall(r"\[`(?:[\w.]+\.)?(\w+)`\]\((?!http)([^)]+\.py)\)", text):
        code = (DOCS / file).read_text(encoding="utf-8")
        assert re.search(rf"(def|class) {name}\b|^{name} = |self\.{name} = ", code, re.M), (name, file)

"""`manyheads push`, and models of the hub by their names: the hub's real client against an endpoint on this machine
that speaks the calls it makes."""

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import huggingface_hub
import pytest
import yaml
from huggingface_hub import constants

from manyheads import load
from manyheads.cli.compose import compose
from manyheads.cli.main import main
from manyheads.cli.verbs import VERBS
from manyheads.config import RunConfig
from manyheads.config.conversion import to_plain
from manyheads.inference.card import add_results
from manyheads.inference.download import is_hub_name
from manyheads.inference.folder import load as load_model
from manyheads.inference.format import open_folder
from manyheads.inference.origin import find_origin
from manyheads.plugins.hub.card import card_of

TOKEN = "hf_" + "a1B2" * 8
FIGURES = {"accuracy": {"value": 0.91, "low": 0.88, "high": 0.93}, "loss": {"value": 0.3, "low": 0.25, "high": 0.36}}
OF_HUB = ["README.md", "config.json", "labels.json", "model.safetensors", "tokenizer.json"]


class Hub(ThreadingHTTPServer):
    """Repositories in memory. Each commit is all of its files; safetensors travel as large files. `status` is answered
    to all that is asked, if it is set; `without_tags`, no tag may be made."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Speaker)
        self.repos: dict[str, dict[str, Any]] = {}
        self.large: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.messages: list[str] = []
        self.status, self.without_tags = 0, False

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def add(self, repo: str, files: dict[str, bytes], *, private: bool = False) -> str:
        """Commit these files beside those that are there, to main."""
        self.repos.setdefault(repo, {"private": private, "tags": {}, "refs": {"main": self.commit({})}})
        refs = self.repos[repo]["refs"]
        refs["main"] = self.commit(self.commits[refs["main"]] | files)
        return refs["main"]

    commits: dict[str, dict[str, bytes]] = {}  # noqa: RUF012 - by what they hold

    def commit(self, files: dict[str, bytes]) -> str:
        name = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.commits[name] = files
        return name


class Speaker(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each body waits 40 ms for the acknowledgement of its head

    def log_message(self, *_: Any) -> None: ...

    def answer(self, content: Any = None, status: int = 200, **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps({} if content is None else content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status: int, code: str = "") -> None:
        self.answer({"error": code or "no"}, status, **({"X_Error_Code": code} if code else {}))

    def handle_one(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append(f"{self.command} {path}")
        given = self.headers.get("Authorization")
        if self.server.status:
            return self.refuse(self.server.status)
        if given not in (None, f"Bearer {TOKEN}"):
            return self.answer({"error": "Invalid credentials in Authorization header"}, 401,
                               X_Error_Message="Invalid credentials in Authorization header")  # fmt: skip
        if path == "/api/validate-yaml":
            return self.answer({"errors": [], "warnings": []})
        if path.startswith("/lfs/"):
            self.server.large[path[5:]] = body
            return self.answer()
        if path == "/api/repos/create":
            asked = json.loads(body)
            repo = f"{asked['organization']}/{asked['name']}"
            private = asked.get("private") or asked.get("visibility") == "private"
            self.server.repos[repo] = {"private": private, "tags": {}, "refs": {"main": self.server.commit({})}}
            return self.answer({"url": f"{self.server.address}/{repo}"})
        return self.of_repo(path, body, writer=given is not None)

    do_GET = do_HEAD = do_POST = do_PUT = handle_one

    def of_repo(self, path: str, body: bytes, *, writer: bool) -> None:
        parts = path.removeprefix("/api/models").strip("/").split("/")
        name = "/".join(parts[:2]).removesuffix(".git")
        repo, (verb, *rest) = self.server.repos.get(name), parts[2:] or ["info"]
        if repo is None or (repo["private"] and not writer):
            return self.refuse(404 if writer else 401, "RepoNotFound")
        refs, revision = repo["refs"], "/".join(rest[:1])
        if verb == "refs":
            tags = [{"name": one, "ref": f"refs/tags/{one}", "targetCommit": at} for one, at in repo["tags"].items()]
            return self.answer({"branches": [], "converts": [], "tags": tags})
        if verb == "branch":
            refs.setdefault("/".join(rest), refs["main"])
            return self.answer()
        if verb == "info" and rest:  # of .git/info/lfs
            return self.batch(json.loads(body))
        if verb == "preupload":
            files = json.loads(body)["files"]
            mode = {True: "lfs", False: "regular"}
            return self.answer({"files": [
                {"path": one["path"], "uploadMode": mode[one["path"].endswith(".safetensors")], "shouldIgnore": False}
                for one in files
            ]})  # fmt: skip
        revision = revision or "main"
        sha = refs.get(revision, revision)
        if sha not in self.server.commits or (sha == revision and sha not in refs.values()):
            return self.refuse(404, "RevisionNotFound")
        if verb == "tag":
            if self.server.without_tags:
                return self.refuse(403)
            refs[json.loads(body)["tag"]] = repo["tags"][json.loads(body)["tag"]] = sha
            return self.answer()
        if verb == "commit":
            return self.take(name, refs, revision, body)
        if verb in ("info", "revision"):
            return self.answer({"id": name, "sha": sha, "private": repo["private"], "siblings": []})
        files = self.server.commits[sha]
        if verb == "tree":
            return self.answer([self.entry(path, content) for path, content in files.items()])
        content = files.get("/".join(rest[1:]))
        if verb != "resolve" or content is None:
            return self.refuse(404, "EntryNotFound")
        return self.answer(content, X_Repo_Commit=sha, ETag=f'"{hashlib.sha1(content).hexdigest()}"')

    def entry(self, path: str, content: bytes) -> dict[str, Any]:
        return {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}

    def batch(self, asked: dict[str, Any]) -> None:
        objects = [
            one | {"actions": {"upload": {"href": f"{self.server.address}/lfs/{one['oid']}", "header": {}}}}
            for one in asked["objects"]
        ]
        self.answer({"transfer": "basic", "objects": objects})

    def take(self, name: str, refs: dict[str, str], revision: str, body: bytes) -> None:
        lines = [json.loads(line) for line in body.splitlines()]
        files = dict(self.server.commits[refs[revision]])
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                self.server.messages.append(value["summary"])
            elif line["key"] == "deletedFile":
                del files[value["path"]]
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            else:
                files[value["path"]] = self.server.large[value["oid"]]
                assert hashlib.sha256(files[value["path"]]).hexdigest() == value["oid"]
        refs[revision] = self.server.commit(files)
        self.answer({"commitUrl": f"{self.server.address}/{name}/commit/{refs[revision]}",
                     "commitOid": refs[revision], "pullRequestUrl": None})  # fmt: skip


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """The endpoint, in whose account the token of the environment may write, and an empty cache."""
    server = Hub()
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    for name in (
        "HF_HUB_OFFLINE",
        "HF_DATASETS_OFFLINE",
        "HF_HOME",
        "http_proxy",
        "HTTP_PROXY",
        "all_proxy",
        "ALL_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", server.address)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.chdir(tmp_path)
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def run(ship_model: Callable[..., Path], tmp_path: Path) -> Path:
    """A run folder that was judged on a test split."""
    home = tmp_path / "reviews"
    ship_model(home / "model")
    (home / "config.yaml").write_text(yaml.safe_dump(to_plain(RunConfig())), encoding="utf-8")
    (home / "summary.json").write_text(json.dumps({"judged_on": "test", "test": FIGURES}), encoding="utf-8")
    (home / "model" / "notes.pkl").write_bytes(b"mine")
    return home


def files_of(hub: Hub, repo: str, revision: str = "main") -> dict[str, bytes]:
    return hub.commits[hub.repos[repo]["refs"][revision]]


def test_a_model_goes_up_and_comes_back_the_same(hub, run, tmp_path, capsys):
    assert main(["push", f"run={run}", "repo=me/reviews", "tag=v1", "message=the first"]) == 0
    said = capsys.readouterr()
    assert "me/reviews@v1 (private)" in said.out
    assert TOKEN not in said.out + said.err
    assert hub.repos["me/reviews"]["private"] is True
    assert hub.messages == ["the first"]
    assert sorted(files_of(hub, "me/reviews", "v1")) == OF_HUB
    before, texts = load_model(run), ["good film", "so bad"]
    for name in ("me/reviews", "me/reviews@v1", f"me/reviews@{hub.repos['me/reviews']['refs']['main']}"):
        assert load(name, "fp32").logits(texts).equal(before.logits(texts))
    (snapshot,) = (tmp_path / "cache" / "models--me--reviews" / "snapshots").iterdir()
    assert sorted(one.name for one in snapshot.iterdir()) == OF_HUB[1:]


def test_the_card_says_what_was_measured_as_the_hub_reads_it(hub, run):
    assert main(["push", f"run={run}", "repo=me/reviews"]) == 0
    card = huggingface_hub.ModelCard(files_of(hub, "me/reviews")["README.md"].decode())
    assert card.data.library_name == "manyheads"
    assert card.data.pipeline_tag == "text-classification"
    results = {one.metric_type: one for one in card.data.eval_results}
    assert {name: one.metric_value for name, one in results.items()} == {"accuracy": 0.91, "loss": 0.3}
    accuracy = results["accuracy"]
    assert (accuracy.dataset_name, accuracy.dataset_split, accuracy.task_type) == (
        "demo",
        "test",
        "text-classification",
    )
    assert accuracy.metric_args == {"low": 0.88, "high": 0.93, "level": 0.95}
    assert accuracy.metric_name == "accuracy (95 % interval 0.8800 to 0.9300)"
    assert 'manyheads.load("me/reviews")' in card.text
    assert "this folder" not in card.text


def test_dry_lists_files_and_sizes_and_asks_nothing(hub, run, capsys, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    assert main(["push", f"run={run}", "repo=me/reviews", "dry=true"]) == 0
    *listed, last = capsys.readouterr().out.splitlines()
    sizes = {name: int(size.replace(",", "")) for size, name in (line.split() for line in listed)}
    assert sorted(sizes) == OF_HUB
    assert sizes["model.safetensors"] == (run / "model" / "model.safetensors").stat().st_size
    assert (
        last == f"5 files, {sum(sizes.values()):,} bytes would go to me/reviews@main; dry=true, so nothing is uploaded"
    )
    assert hub.asked == []


def test_a_tag_that_cannot_be_made_is_said_before_or_with_what_was_done(hub, run, capsys):
    assert main(["push", f"run={run}", "repo=me/reviews", "tag=v1"]) == 0
    (run / "model" / "labels.json").write_text(json.dumps(["no", "yes", "maybe"]))
    assert main(["push", f"run={run}", "repo=me/reviews", "tag=v1", "revision=try"]) == 2
    assert capsys.readouterr().err == (
        "tag=v1 is a tag of me/reviews already, so nothing is uploaded: name another, or remove that one first\n"
    )
    assert list(hub.repos["me/reviews"]["refs"]) == ["main", "v1"]
    assert len(hub.messages) == 1
    hub.without_tags = True
    assert main(["push", f"run={run}", "repo=me/reviews", "tag=v2"]) == 2
    made = hub.repos["me/reviews"]["refs"]["main"]
    assert capsys.readouterr().err.startswith(
        f"tag=v2 is not made, but the model is uploaded as me/reviews@{made[:12]}: the tag is refused by the Hugging "
        "Face hub with status 403, as the token in $HF_TOKEN may not do that"
    )
    assert load("me/reviews").labels == ["no", "yes", "maybe"]


def test_a_later_push_is_a_commit_more_on_the_branch_that_is_named(hub, run):
    assert main(["push", f"run={run}", "repo=me/reviews"]) == 0
    first = dict(files_of(hub, "me/reviews"))
    (run / "model" / "labels.json").write_text(json.dumps(["no", "yes", "maybe"]))
    assert main(["push", f"run={run}", "repo=me/reviews", "revision=try"]) == 0
    assert files_of(hub, "me/reviews") == first
    assert load("me/reviews@try").labels == ["no", "yes", "maybe"]
    assert load("me/reviews").labels == ["bad", "good", "so-so"]
    for revision, name in (("main", "me/reviews"), ("try", "me/reviews@try")):
        assert f'manyheads.load("{name}")' in card_of(open_folder(run), "me/reviews", revision)


def test_a_calibration_goes_with_its_model_and_with_no_other(hub, run):
    plain, texts, file = load_model(run), ["good film", "so bad"], run / "model" / "calibration.json"
    file.write_text(json.dumps({"method": "vector", "scale": [0.5, 1, 2], "shift": [1, 0, 0]}))
    readme = run / "model" / "README.md"
    readme.write_text(add_results(readme.read_text(), {"test loss": "0.3"}, []))
    hub.add("me/reviews", {"model.onnx": b"of its owner"})
    hub.repos["me/reviews"]["private"] = True
    assert main(["push", f"run={run}", "repo=me/reviews"]) == 0
    assert load("me/reviews", "fp32").logits(texts).equal(load_model(run).logits(texts))
    card = huggingface_hub.ModelCard(files_of(hub, "me/reviews")["README.md"].decode())
    assert card.data.eval_results[0].metric_name.startswith("accuracy (before calibrate, 95 % interval")
    assert "## Figures before calibrate\n" in card.text
    file.unlink()
    assert main(["push", f"run={run}", "repo=me/reviews"]) == 0
    assert sorted(files_of(hub, "me/reviews")) == sorted([*OF_HUB, "model.onnx"])
    assert load("me/reviews", "fp32").logits(texts).equal(plain.logits(texts))


@pytest.mark.verb("audit")  # of the plugin whose setting is typed
def test_marks_of_texts_unlike_the_training_go_with_the_model(hub, run, tmp_path, capsys):
    asked = ["predict", "text=хороший фильм", "outliers.false_alarms=0.1", "output=out.jsonl"]
    hub.add("me/reviews", {"outliers.safetensors": b"of another model"}, private=True)
    assert main(["push", f"run={run}", "repo=me/reviews"]) == 0
    assert main([*asked, "run=me/reviews"]) == 2
    assert "run=me/reviews is a model without its run folder" in capsys.readouterr().err
    assert main([*asked, f"run={run}"]) == 0
    said = (tmp_path / "out.jsonl").read_bytes()
    assert json.loads(said)["outlier"] is True
    assert main(["push", f"run={run}", "repo=me/reviews"]) == 0
    (tmp_path / "out.jsonl").unlink()
    assert main([*asked, "run=me/reviews"]) == 0
    assert (tmp_path / "out.jsonl").read_bytes() == said
    capsys.readouterr()
    assert main(["export", f"run={run}", "output=exported", "members=network"]) == 0
    left_out, *_ = capsys.readouterr().out.splitlines()
    assert left_out.startswith(f"outliers.safetensors of {run / 'model'} is left out: the export answers, but marks no")


@pytest.mark.verb("serve")
def test_a_server_holds_the_commit_that_it_began_with(hub, run, monkeypatch):
    assert main(["push", f"run={run}", "repo=me/reviews", "tag=v1"]) == 0
    held = []

    async def begun(config, listener, token):
        held.append(config.run)
        return 0

    monkeypatch.setattr("manyheads.plugins.serving.server.serve_until_signal", begun)
    for name in ("me/reviews", "me/reviews@v1"):
        assert main(["serve", f"run={name}", "port=0"]) == 0
    assert held == [f"me/reviews@{hub.repos['me/reviews']['refs']['v1']}"] * 2


def test_a_public_repository_is_written_to_only_where_that_is_meant(hub, run, capsys):
    assert main(["push", f"run={run}", "repo=me/open", "private=false"]) == 0
    assert hub.repos["me/open"]["private"] is False
    before = files_of(hub, "me/open")
    assert main(["push", f"run={run}", "repo=me/open"]) == 2
    assert capsys.readouterr().err == (
        "repo=me/open is public, but private=true: add private=false if the model may be seen by anyone, or name "
        "another repository\n"
    )
    assert files_of(hub, "me/open") == before


def test_verbs_take_a_name_of_the_hub_and_write_nothing_beside_its_copy(hub, run, tmp_path, capsys):
    assert main(["push", f"run={run}", "repo=me/reviews"]) == 0
    (tmp_path / "rows.csv").write_text("text,label\ngood film,good\nbad film,bad\n")
    assert main(["predict", "run=me/reviews@main", "text=good film", "output=out.jsonl"]) == 0
    assert json.loads((tmp_path / "out.jsonl").read_text())["label"] in ("bad", "good", "so-so")
    of_data = ["evaluate", "run=me/reviews", "data.path=rows.csv"]
    assert main([*of_data, "output=judged"]) == 0
    assert (tmp_path / "judged" / "metrics.json").is_file()
    has_look = "look" in VERBS
    assert not has_look or main(["look", "run=me/reviews", "text=good film", "output=looked"]) == 0
    assert main(["export", "run=me/reviews", "output=exported"]) == 0
    capsys.readouterr()
    for words in (of_data, *[["look", "run=me/reviews", "text=good"]] * has_look, ["export", "run=me/reviews"]):
        assert main(words) == 2
        assert capsys.readouterr().err == (
            "run=me/reviews is a model of the Hugging Face hub, to whose copy nothing is written: name a folder by "
            "output=\n"
        )
    (snapshot,) = (tmp_path / "cache" / "models--me--reviews" / "snapshots").iterdir()
    assert sorted(one.name for one in snapshot.iterdir()) == OF_HUB[1:]
    assert main(["push", "run=me/reviews", "repo=me/again"]) == 2


@pytest.mark.verb("compare")
def test_models_of_the_hub_are_compared_at_their_revisions(hub, run, tmp_path, capsys):
    assert main(["push", f"run={run}", "repo=me/reviews", "tag=v1"]) == 0
    (run / "model" / "calibration.json").write_text(
        json.dumps({"method": "vector", "scale": [1e-9] * 3, "shift": [9, 0, 0]})
    )
    assert main(["push", f"run={run}", "repo=me/reviews"]) == 0
    texts = ["good film", "bad film", "so so", "the film"]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *(f"{one},good" for one in texts)]))
    said = ["compare", "runs=[me/reviews@v1,me/reviews,theirs/answers.csv]", "output=out"]
    assert main([*said, "data.path=rows.csv"]) == 2
    assert capsys.readouterr().err == ("runs=theirs/answers.csv does not exist: name a run, or a file of predictions\n")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "answers.csv").write_text("\n".join(["prediction", *["good"] * 4]))
    assert main([*said, "data.path=rows.csv"]) == 0
    found = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert [*found["models"]] == ["reviews@v1", "reviews", "answers.csv"]
    own = [one.label == "good" for one in load("me/reviews@v1").predict(texts)]
    assert found["models"]["reviews@v1"]["accuracy"]["value"] == sum(own) / 4
    assert found["models"]["reviews"]["accuracy"]["value"] == 0
    capsys.readouterr()
    assert main(said) == 2
    assert "data.path" in capsys.readouterr().err
    assert main(["compare", "runs=[me/reviews,me/none]", "data.path=rows.csv"]) == 2
    assert capsys.readouterr().err.startswith("runs=me/none is not found, as it is no folder here")


def test_training_begins_with_a_model_of_the_hub_at_a_revision(hub, run):
    assert main(["push", f"run={run}", "repo=me/reviews", "tag=v1"]) == 0
    begun = compose("train", ["init_from=me/reviews@v1"])
    assert (begun.init_from, begun.model.n_heads, begun.model.d_k) == ("me/reviews@v1", 2, 4)
    origin = find_origin("me/reviews@v1")
    assert (origin.kind, origin.vocab_size) == ("run", 15)
    assert not origin.of_sentences


def test_an_encoder_of_sentences_of_the_hub_is_known_as_one(hub, run):
    """Its modules.json is fetched, too: by it few rows are learnt from by contrast, and two texts are compared."""
    (Path(run) / "model" / "modules.json").write_text("[]")
    assert main(["push", f"run={run}", "repo=me/sentences"]) == 0
    assert find_origin("me/sentences").of_sentences


def test_nothing_that_could_run_code_is_fetched(hub, tmp_path):
    hub.add("some/model", {"config.json": b"{}", "pytorch_model.bin": b"\x80", "evil.py": b"x", "model.onnx": b"x"})
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
        find_origin("some/model")
    assert str(caught.value) == (
        "init_from=some/model has no weights as safetensors, and others, which could run code, are not fetched: name a "
        "revision that has them, often some/model@refs/pr/1, or a local folder"
    )
    assert [one.name for one in (tmp_path / "cache").glob("models--*/snapshots/*/*")] == ["config.json"]


def test_a_folder_of_a_stranger_is_checked_as_any(hub, run, capsys):
    assert main(["push", f"run={run}", "repo=me/reviews"]) == 0
    capsys.readouterr()
    hub.add("me/reviews", {"labels.json": b'["bad", "bad", "good"]'})
    assert main(["predict", "run=me/reviews", "text=good film"]) == 2
    assert "names the class 'bad' 2 times" in capsys.readouterr().err


NOT_FOUND = (
    "run=me/none is not found, as it is no folder here and the Hugging Face hub has no such model, or it is private: "
    "check the name, set $HF_TOKEN, or name a local folder\n"
)


@pytest.mark.parametrize(
    ("name", "token", "status", "sentence"),
    [
        ("me/none", TOKEN, 0, NOT_FOUND),
        ("me/none", "", 0, NOT_FOUND),
        (
            "me/reviews@v9", TOKEN, 0,
            "run=me/reviews@v9 is not found, as the Hugging Face hub has the model, but no such revision: name a "
            "branch, tag or commit after @\n",
        ),
        ("me/reviews", "hf_wrong_token", 0, "does not accept the token in $HF_TOKEN"),
        ("me/reviews", TOKEN, 403, "with status 403, as the token in $HF_TOKEN may not do that"),
        ("me/reviews", TOKEN, 429, "with status 429, as too many requests came from here: wait some minutes"),
    ],
)  # fmt: skip
def test_what_the_hub_refuses_is_one_sentence(name, token, status, sentence, hub, run, capsys, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    hub.add("me/reviews", {"config.json": b"{}"}, private=True)
    hub.status = status
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    else:
        monkeypatch.delenv("HF_TOKEN")
    assert main(["predict", f"run={name}", "text=a"]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert token not in said or not token
    if status or token == "hf_wrong_token":
        assert main(["push", f"run={run}", f"repo={name}"]) == 2
        said = capsys.readouterr().err
        assert sentence in said
        assert said.startswith(f"repo={name} is refused by the Hugging Face hub with status ")


def test_without_a_network_the_copy_is_taken_and_else_it_is_said(hub, run, capsys, monkeypatch):
    assert main(["push", f"run={run}", "repo=me/reviews", "tag=v1"]) == 0
    assert load("me/reviews@v1").labels == ["bad", "good", "so-so"]
    n_asked = len(hub.asked)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert load("me/reviews@v1").labels == ["bad", "good", "so-so"]
    assert len(hub.asked) == n_asked
    capsys.readouterr()
    for setting, words in (("run", ["predict", "text=a"]), ("init_from", ["train", "dry=true"])):
        assert main([*words, f"{setting}=me/reviews@v2"]) == 2
        assert capsys.readouterr().err == (
            f"{setting}=me/reviews@v2 is no folder here, and the Hugging Face hub cannot be reached, as the network is "
            "off or down: connect, or name a local folder\n"
        )
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")  # where nobody listens
    assert main(["push", f"run={run}", "repo=me/reviews"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("repo=me/reviews ")
    assert said.count("\n") == 1


def test_push_needs_a_token_of_the_environment_and_names_that_are_some(run, hub, capsys, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    assert main(["push", f"run={run}", "repo=me/reviews"]) == 2
    assert capsys.readouterr().err.startswith("$HF_TOKEN is not set, but push needs a token that may write")
    for words, sentence in (
        (["repo=reviews"], "repo=reviews is no name of a model on the Hugging Face hub: write repo=name/model\n"),
        (["repo=me/reviews@v1"], "repo=me/reviews@v1 is no name of a model"),
        (["repo=me/reviews", "tag=a b"], "tag=a b is no name of a tag"),
        ([], "repo is empty: name it, for example repo=me/reviews\n"),
    ):
        assert main(["push", f"run={run}", *words]) == 2
        assert capsys.readouterr().err.startswith(sentence)
    assert hub.asked == []


def test_a_path_is_no_name_of_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outputs").mkdir()
    (tmp_path / "me").symlink_to(tmp_path / "nowhere")
    assert [is_hub_name(one) for one in ("me/reviews", "me/reviews@v1", "a/b@refs/pr/1")] == [True] * 3
    for name in (
        "outputs/reviews",
        "reviews",
        "/me/reviews",
        "me/reviews/model",
        "../reviews",
        "a/b@",
        "a/b@../c",
        "me",
    ):
        assert not is_hub_name(name), name
    assert compose("predict", ["run=outputs/reviews"]).run == str(tmp_path / "outputs" / "reviews")
    assert compose("predict", ["run=me/reviews@v1"]).run == "me/reviews@v1"

"""`manyheads push`: the model of a run to the Hugging Face hub, where `manyheads.load("name/model")` opens it.

What is uploaded is the model/ folder alone, by a list of its files: no data, no settings, no path of this machine. The
card with them says in the hub's own terms, its model-index, what was measured.
"""

import os
from pathlib import Path
from typing import Any

import manyheads.plugin as plugin
from manyheads.errors import UserError
from manyheads.inference.download import OF_HUB, OUTLIERS, hub_errors, is_hub_name
from manyheads.inference.format import CALIBRATION, CARD, GRAPH, MORE, ModelFolder, enclosing_run, open_folder
from manyheads.plugins.hub.config import PushConfig
from manyheads.runs.files import read_json
from manyheads.runs.summary import moved_by
from manyheads.terminal import one_line

LEVEL = 0.95  # of the intervals


def push(config: PushConfig) -> dict[str, int]:
    """Upload the model in one commit, and make its repository if there is none; returns the names and sizes of its
    files. With `dry` nothing is asked of the hub.

    Raises:
        UserError: one sentence; the run, no token, a repository that is public, a tag that is taken, or what the hub
            answers.
    """
    if is_hub_name(config.run):
        raise UserError(f"run={config.run} is on the Hugging Face hub already: name a run of this machine")
    opened = open_folder(config.run)
    token = os.environ.get("HF_TOKEN", "")
    if not token and not config.dry:
        raise UserError(
            "$HF_TOKEN is not set, but push needs a token that may write: make one in the settings of your account on "
            "the Hugging Face hub and export it, or add dry=true"
        )
    card = card_of(opened, config.repo, config.revision).encode()
    files: dict[str, bytes | Path] = {CARD: card}
    sizes = {CARD: len(card)}
    for name in OF_HUB:
        file = opened.path / name
        if file.is_file():
            files[name], sizes[name] = file, file.stat().st_size
    for name, size in sizes.items():
        print(f"{size:>14,}  {name}")
    total = f"{len(sizes)} files, {sum(sizes.values()):,} bytes"
    if config.dry:
        print(f"{total} would go to {config.repo}@{config.revision}; dry=true, so nothing is uploaded")
        return sizes
    print(one_line(f"{total}: {_upload(config, files, token)}"))
    return sizes


def _upload(config: PushConfig, files: dict[str, bytes | Path], token: str) -> str:
    """The address of what was written."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
    from huggingface_hub.errors import RepositoryNotFoundError
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None, token=token)
    what, otherwise = f"repo={config.repo}", "or name another repository"
    with hub_errors(what, otherwise):
        try:
            is_public = api.model_info(config.repo).private is False
        except RepositoryNotFoundError:
            api.create_repo(config.repo, private=config.private)
            is_public = not config.private
    if is_public and config.private:
        raise UserError(
            f"repo={config.repo} is public, but private=true: add private=false if the model may be seen by anyone, or "
            "name another repository"
        )
    with hub_errors(what, otherwise):
        tags = {one.name for one in api.list_repo_refs(config.repo).tags} if config.tag else set()
    if config.tag in tags:
        raise UserError(
            f"tag={config.tag} is a tag of {config.repo} already, so nothing is uploaded: name another, or remove that "
            "one first"
        )
    with hub_errors(what, otherwise):
        if config.revision != "main":
            api.create_branch(config.repo, branch=config.revision, exist_ok=True)
        there = {*api.list_repo_files(config.repo, revision=config.revision)}
        old = sorted(there & {*MORE, OUTLIERS} - {GRAPH, *files})  # of another model, which would change these answers
        done = api.create_commit(
            config.repo,
            [*(CommitOperationAdd(name, one) for name, one in files.items()), *map(CommitOperationDelete, old)],
            commit_message=config.message or "manyheads push",
            revision=config.revision,
        )
    if config.tag:
        made = f"tag={config.tag} is not made, but the model is uploaded as {config.repo}@{done.oid[:12]}: the tag"
        with hub_errors(made, "or make it on the page of the repository"):
            api.create_tag(config.repo, tag=config.tag, revision=done.oid)
    return f"{config.repo}@{config.tag or done.oid[:12]} ({'public' if is_public else 'private'}), {done.repo_url}"


def card_of(opened: ModelFolder, repo: str, revision: str) -> str:
    """The card of the model as the hub reads it: the figures in its head, and how to open it from there."""
    import yaml

    kind, words = plugin.task(opened.settings.task).hub
    head: dict[str, Any] = {"library_name": "manyheads", "pipeline_tag": kind, "tags": ["manyheads"]}
    results = _results(opened, kind, words)
    if results:
        head["model-index"] = [{"name": repo.rpartition("/")[2], "results": results}]
    file = opened.path / CARD
    text = file.read_text(encoding="utf-8") if file.is_file() else f"# {repo}\n"
    name = repo if revision == "main" else f"{repo}@{revision}"
    text = text.replace('manyheads.load("this folder")', f'manyheads.load("{name}")')
    if (opened.path / CALIBRATION).is_file() and "\nCalibrated by " not in text:  # as calibrate itself says in the card
        text = text.replace("\n## Figures\n", "\n## Figures before calibrate\n")
    return f"---\n{yaml.safe_dump(head, sort_keys=False, allow_unicode=True)}---\n\n{text}"


def _results(opened: ModelFolder, kind: str, words: str) -> list[dict[str, Any]]:
    """The figures of summary.json for the split that was judged, with their intervals; none without a run folder."""
    home = enclosing_run(opened.path)
    if home is None or not (home / "summary.json").is_file():
        return []
    from manyheads.runs.config_file import read_run  # the one that needs yaml

    summary, run = read_json(home / "summary.json"), read_run(home).data
    split = summary.get("judged_on") if isinstance(summary, dict) else None
    if not isinstance(split, str) or not isinstance(summary.get(split), dict):
        raise UserError(f"{home / 'summary.json'} is not what training wrote: copy it again, or remove it")
    data = run.hub or (Path(run.path).name.partition(".")[0] if run.path else run.source)  # without the way to it
    task, calibration = {"type": kind, "name": words}, opened.path / CALIBRATION
    fitted = read_json(calibration) if calibration.is_file() else {}
    after = fitted.get("after", {})
    metrics = []
    for name, one in summary[split].items():
        is_changed = bool(fitted) and moved_by(fitted.get("method", ""), multi=opened.settings.multi)(name)
        if not is_changed:
            metrics.append(_metric(name, one, ""))
        elif not after:  # else those after it take their place, below
            metrics.append(_metric(name, one, "before calibrate, "))
    found = [{"task": task, "dataset": {"type": data, "name": data, "split": split}, "metrics": metrics}]
    if after:
        fitted_on = {"type": fitted["source"], "name": f"{fitted['rows']:,} rows of {fitted['source']}"}
        of_folds = [_metric(name, one, "after calibrate, by five folds, ") for name, one in after.items()]
        found.append({"task": task, "dataset": fitted_on, "metrics": of_folds})
    return [one for one in found if one["metrics"]]


def _metric(name: str, one: dict[str, float], when: str) -> dict[str, Any]:
    return {
        "type": name,
        "value": one["value"],
        "name": f"{name.replace('_', ' ')} ({when}95 % interval {one['low']:.4f} to {one['high']:.4f})",
        "args": {"low": one["low"], "high": one["high"], "level": LEVEL},
    }

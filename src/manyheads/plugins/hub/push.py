"""`manyheads push`: the model of a run to the Hugging Face hub, where `manyheads.load("name/model")` opens it.

Only the model/ folder is uploaded, by a list of its files: no data, no settings, no path of this machine. Its card
(card.py) says in the hub's own terms what was measured.
"""

import os
from pathlib import Path

import manyheads.plugin as plugin
from manyheads.errors import UserError
from manyheads.inference.download import OF_HUB, OUTLIERS, hub_errors, is_hub_name
from manyheads.inference.format import CARD, GRAPH, MORE, name_inner, open_folder
from manyheads.plugins.hub.config import PushConfig
from manyheads.terminal import one_line


def push(config: PushConfig) -> dict[str, int]:
    """Upload the model in one commit, and make its repository if there is none; returns the names and sizes of its
    files. With `dry` the hub is not contacted.

    Raises:
        UserError: the run cannot be opened, there is no token, the repository is public, the tag is taken, or the hub
            refuses.
    """
    from manyheads.plugins.hub.card import card_of  # which needs yaml

    if is_hub_name(config.run):
        raise UserError(f"run={config.run} is on the Hugging Face hub already: name a run of this machine")
    opened = open_folder(config.run)
    task = plugin.task(opened.settings.task)
    if task.finish:  # it has further files, which no list here names
        raise UserError(f"run={config.run} {task.model}: {name_inner(opened.path, 'another')}")
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
    print(one_line(f"{total}: {upload(config, files, token)}"))
    return sizes


def upload(config: PushConfig, files: dict[str, bytes | Path], token: str) -> str:
    """Upload the files; returns in words where they are."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
    from huggingface_hub.errors import RepositoryNotFoundError
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None, token=token)
    what, remedy = f"repo={config.repo}", "or name another repository"
    # the repository: made if it is new; one that is public must be meant to be
    with hub_errors(what, remedy):
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
    # the tag: found taken before anything is uploaded
    if config.tag:
        with hub_errors(what, remedy):
            tags = [ref.name for ref in api.list_repo_refs(config.repo).tags]
        if config.tag in tags:
            raise UserError(
                f"tag={config.tag} is a tag of {config.repo} already, so nothing is uploaded: name another, or remove "
                "that one first"
            )
    # one commit adds the files, and deletes those of another model that would change the answers of this one
    with hub_errors(what, remedy):
        if config.revision != "main":
            api.create_branch(config.repo, branch=config.revision, exist_ok=True)
        there = {*api.list_repo_files(config.repo, revision=config.revision)}
        old = there & {*MORE, OUTLIERS} - {GRAPH, *files}
        operations: list[CommitOperationAdd | CommitOperationDelete] = []
        for name, content in files.items():
            operations.append(CommitOperationAdd(name, content))
        for name in sorted(old):
            operations.append(CommitOperationDelete(name))
        done = api.create_commit(
            config.repo,
            operations,
            commit_message=config.message or "manyheads push",
            revision=config.revision,
        )
    if config.tag:
        made = f"tag={config.tag} is not made, but the model is uploaded as {config.repo}@{done.oid[:12]}: the tag"
        with hub_errors(made, "or make it on the page of the repository"):
            api.create_tag(config.repo, tag=config.tag, revision=done.oid)
    seen_by = "public" if is_public else "private"
    return f"{config.repo}@{config.tag or done.oid[:12]} ({seen_by}), {done.repo_url}"

"""Settings of the verb `serve`."""

from dataclasses import dataclass

from manyheads.config import InferenceHardware, Member, OnBadRow
from manyheads.config.facts import section, setting
from manyheads.config.inference import MEMBERS, InferenceBatch, finished_run


@dataclass(kw_only=True, slots=True)
class ServedTexts:
    """What becomes of texts that are empty."""

    on_bad_row: OnBadRow = setting(
        OnBadRow["raise"], "an empty text: raise (the request is refused, 422), or drop: its answer is null"
    )


@section(opening="answer")
class ServeConfig:
    """All settings of `manyheads serve`; those of answer rules are as in predict."""

    run: str = finished_run("to serve")
    host: str = setting(
        "127.0.0.1", "address or name to listen at; one that others reach needs a token in $MANYHEADS_TOKEN",
        may_be_empty=False,
    )  # fmt: skip
    port: int = setting(8000, "port to listen at; 0: a free one, which is printed", ge=0, le=65535)
    names: list[str] = setting(list, "further names by which clients may call this host")
    workers: int = setting(1, "processes that hold the model; they share its file in memory", ge=1, le=256)
    members: Member = setting(Member.all, MEMBERS)
    exact: bool = setting(
        True, "each text is read by itself, so that no bit of an answer depends on the others; false: batches, faster"
    )
    wait: float = setting(2.0, "most milliseconds that a text waits for others, with exact=false", ge=0.0, le=100.0)
    max_body: int = setting(2**22, "most bytes of a request", ge=1024, le=2**30)
    max_texts: int = setting(1024, "most texts of a request", ge=1)
    max_characters: int = setting(100_000, "most characters of a text", ge=1)
    max_queue: int = setting(4096, "most texts that wait", ge=1)
    page: bool = setting(True, "serve the page at / as well, and what it asks for at /look")
    data: ServedTexts = setting(ServedTexts, "texts that are sent")
    batch: InferenceBatch = setting(InferenceBatch, "tokens to batches")
    hardware: InferenceHardware = setting(InferenceHardware, "processor of a worker")

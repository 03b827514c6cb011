"""Which exceptions are a user's mistake, and how each is said."""

import types

import pytest

from manyheads.cli import main as cli
from manyheads.cli.errors import composition_sentence, hydra_sentence, paths_as_typed, user_sentence
from manyheads.config import RunConfig
from manyheads.errors import UserError


def raising(name, source, **names):
    """A function `f` of a module called `name`, made from source."""
    module = types.ModuleType(name)
    module.__dict__.update(names)
    exec(compile(source, f"{name}.py", "exec"), module.__dict__)
    return module.__dict__["f"]


def library_fails():
    return raising("torch.nn", "def f():\n    raise ValueError('expected 3 dimensions')")


def disk_fails():
    said = "Error while serializing: I/O error: No space left on device (os error 28)"
    return raising("safetensors.torch", f"def f():\n    raise RuntimeError({said!r})")


OURS = "manyheads.made_up"
FULL = "the disk is full: free some of it, or write to another one\n"
NO_MEMORY = "memory ran out: use fewer rows or smaller batches, or allow more memory (ulimit -v, or that of the job)\n"
LIGHTNING = """
def f():
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        raise SystemExit(1)
"""
RULE = [  # source of the verb, exit code, what is said
    ("def f():\n    raise UserError('data.path=x is wrong: mend it')", 2, "data.path=x is wrong: mend it\n"),
    ("def f():\n    open('nowhere.csv')", 2, "nowhere.csv does not exist\n"),
    ("from pathlib import Path\ndef f():\n    Path('nowhere.csv').read_text()", 2, "nowhere.csv does not exist\n"),
    ("def f():\n    open('/')", 2, "/ cannot be used: Is a directory\n"),
    (
        "def f():\n    raise PermissionError(13, 'Permission denied', '/ro/.p.csv.part')",
        2,
        "/ro may not be read or written: change its permissions, or name another place\n",
    ),
    ("def f():\n    try:\n        raise UserError('inner')\n    finally:\n        print(end='')", 2, "inner\n"),
    ("def f():\n    raise ValueError('no sentence for a user')", 1, None),
    ("def f():\n    disk()", 2, FULL),
    ("def f():\n    open('/dev/full', 'w', buffering=1).write('x\\n')", 2, FULL),
    ("def f():\n    raise KeyboardInterrupt", 130, "stopped by Ctrl-C\n"),
    (LIGHTNING, 130, "stopped by Ctrl-C\n"),
    ("def f():\n    int('x')", 1, None),  # a ValueError of Python itself: a bug of ours
    ("def f():\n    raise TypeError('no')", 1, None),
    ("def f():\n    library()", 1, None),
    ("def f():\n    raise RuntimeError('out of memory')", 1, None),
    ("def f():\n    bytes(2**62)", 2, NO_MEMORY),
    ("def f():\n    raise RuntimeError('could not create a primitive')", 2, NO_MEMORY),
    ("def f():\n    raise ImportError('libtorch_cpu.so: failed to map segment from shared object')", 2, NO_MEMORY),
    ("def f():\n    raise OSError('libtorch_global_deps.so: failed to map segment from shared object')", 2, NO_MEMORY),
    ("def f():\n    raise OSError(12, 'Cannot allocate memory')", 2, NO_MEMORY),
    ("def f():\n    import torch\n    torch.empty(2**50)", 2, NO_MEMORY),
    ("def f():\n    import torch\n    raise torch.OutOfMemoryError('CUDA out of memory. Tried')", 2, NO_MEMORY),
]


@pytest.mark.parametrize(("source", "code", "sentence"), RULE)
def test_which_exceptions_are_mistakes(source, code, sentence, capsys, monkeypatch, tmp_path):
    verb = raising(OURS, source, library=library_fails(), disk=disk_fails(), UserError=UserError)
    monkeypatch.setattr(cli, "call", lambda name, config: verb())
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train"]) == code
    said = capsys.readouterr().err
    assert said == sentence if sentence else "Traceback" in said


def test_a_file_may_be_named_in_any_letters(tmp_path):
    read = raising(OURS, "def f(path):\n    open(path)")
    with pytest.raises(OSError) as error:  # noqa: PT011 - the sentence is compared whole
        read(tmp_path / "a\x1b[31m\nb")
    assert user_sentence(error.value) == f"{tmp_path}/a\\x1b[31m\\nb does not exist"


def test_an_exception_that_was_never_raised_is_a_bug():
    assert user_sentence(ValueError("x")) is None


class SaidError(Exception):
    """Stands for Hydra's and OmegaConf's errors: several lines, sometimes choices."""

    def __init__(self, said, options=None):
        super().__init__(said)
        self.options = options
        self.missing_cfg_file = None


def test_what_hydra_says_of_a_preset_becomes_our_sentence():
    said = "In 'model/mine': ConfigKeyError raised while composing config:\nKey 'n_haeds' not in 'ModelConfig'\n"
    said += "    full_key: model.n_haeds\n    object_type=ModelConfig"
    assert composition_sentence(SaidError(said), [], RunConfig) == (
        "preset model/mine: model.n_haeds is not a setting: did you mean model.n_heads?"
    )
    nothing_like_it = SaidError(said.replace("n_haeds", "zzzzzzz"))
    assert composition_sentence(nothing_like_it, [], RunConfig) == (
        "preset model/mine: model.zzzzzzz is not a setting: none has a name like it, remove it"
    )
    lost = SaidError("In 'experiment/x': Could not find 'model/y'\n\nAvailable options:\n\ta\n\tb", ["a", "b"])
    assert composition_sentence(lost, ["experiment=x"], RunConfig) == (
        "preset experiment/x: Could not find 'model/y': choose a or b"
    )
    missing = SaidError("In 'model/mine': Could not load 'model/nope'.\n\nConfig search path:\n\tprovider=main")
    missing.missing_cfg_file = "model/nope"
    assert composition_sentence(missing, ["model=mine"], RunConfig) == (
        "preset model/mine: its defaults name model/nope, which is no preset: name one that there is, or remove it"
    )
    assert composition_sentence(SaidError(""), ["model=x"], RunConfig) == (
        "preset model=x: it cannot be used (SaidError): fix the file"
    )


def test_what_hydra_says_of_its_own_settings_keeps_its_advice_to_itself():
    said = "Could not override 'hydra.launcher.x'.\nTo append to your config use +hydra.launcher.x=1"
    assert hydra_sentence(SaidError(said), ["hydra.launcher.x=1"]) == (
        "hydra.launcher.x=1 cannot be used (Could not override 'hydra.launcher.x'): remove it"
    )
    assert hydra_sentence(SaidError("Could not find 'x'", ["b", "a"]), ["hydra/launcher=x", "hydra/sweeper=basic"]) == (
        "hydra/launcher=x hydra/sweeper=basic cannot be used (Could not find 'x'): choose a or b"
    )


def test_paths_are_shown_as_one_would_type_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for typed, shown in (("a/b/c", "a/b/c"), (f"{tmp_path}/a", "a"), ("../a/b", tmp_path.parent / "a" / "b")):
        assert cli.main(["evaluate", f"run={typed}"]) == 2
        assert capsys.readouterr().err.startswith(f"run={shown} is not a run folder: ")
    longer = f"x={tmp_path}-more/a y=/mnt{tmp_path}/a file://{tmp_path}/a {tmp_path}"
    assert paths_as_typed(longer) == longer
    assert paths_as_typed(f"'{tmp_path}/a' [{tmp_path}/b,{tmp_path}/c]") == "'a' [b,c]"


def test_a_mistake_in_a_folder_that_was_deleted_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert paths_as_typed("a=1 is wrong: choose 2") == "a=1 is wrong: choose 2"


@pytest.mark.parametrize("words", [["predict", "run=s3://a/b", "text=a"], ["runs", "runs=[s3://a/b,run]"]])
def test_an_address_is_named_as_it_was_typed(words, capsys):
    assert cli.main(words) == 2
    name, _, _ = words[1].partition("=")
    assert capsys.readouterr().err.startswith(f"{name}=s3://a/b is an address: download what is there")

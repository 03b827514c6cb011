"""What several processes decide together: all read the same, one step later; what they send each other arrives."""

import json
from pathlib import Path

from manyheads.distributed.collectives import Votes, from_first, gathered
from manyheads.distributed.signals import ending

N_RANKS, STEPS = 3, 8
CALLS = {0: {5: {"save": 1}}, 1: {2: {"signal": 15}}, 2: {2: {"signal": 10}, 7: {"late": 1}}}  # by rank and step


def test_one_process_reads_its_own_votes_at_once():
    votes = Votes(9.0)
    votes.join(1)
    assert votes.cast() == {"signal": 0, "late": 0, "save": 0}
    votes.put({"signal": 15, "late": 1})
    votes.put({"signal": 0})
    stopped = ending(votes.cast())
    assert stopped is not None
    assert stopped.exit_code == 143
    assert votes.cast() == {"signal": 0, "late": 0, "save": 0}, "a vote counts once"
    votes.put({"save": 1})
    assert votes.settle()["save"] == 1
    assert gathered(b"a", None) == [b"a"]
    assert from_first(b"b", None) == b"b"


PROGRAM = f"""
import json, os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import torch.distributed as dist
from test_votes import CALLS, N_RANKS, STEPS
from manyheads.distributed.collectives import from_first, gathered
from manyheads.distributed.collectives import Votes

def rank_main(rank):
    dist.init_process_group("gloo", init_method=f"file://{{sys.argv[1]}}/meet", rank=rank, world_size=N_RANKS)
    votes = Votes(60.0)
    votes.join(N_RANKS)
    read = []
    for step in range(STEPS):
        votes.put(CALLS[rank].get(step, {{}}))
        read.append(dict(votes.cast()))
    read.append(dict(votes.settle()))
    sent = [bytes([rank]) * (100 * rank), b"", bytes(range(256)) * 5]
    got = [[one.hex() for one in gathered(its, votes.group)] for its in sent]
    told = [from_first(its if rank == 0 else b"other", votes.group).hex() for its in (b"", b"hello")]
    with open(f"{{sys.argv[1]}}/rank-{{rank}}.json", "w") as file:
        json.dump([read, got, told], file)
    dist.destroy_process_group()

children = []
for rank in range(N_RANKS):
    child = os.fork()
    if child == 0:
        rank_main(rank)
        os._exit(0)
    children.append(child)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(one, 0)[1]) for one in children))
"""


def test_several_read_the_same_one_step_later(python, tmp_path):
    done = python.run("-c", PROGRAM, tmp_path)
    assert done.returncode == 0, done.stderr
    ranks = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(N_RANKS)]
    read = ranks[0][0]
    assert all(one[0] == read for one in ranks)
    nothing = {"signal": 0, "late": 0, "save": 0}
    expected = [nothing] * STEPS
    expected[3], expected[6] = nothing | {"signal": 15}, nothing | {"save": 1}
    assert read[:STEPS] == expected
    assert read[STEPS] == nothing | {"late": 1}, "what was cast in the last step is not lost"
    everyones = [(bytes([rank]) * (100 * rank)).hex() for rank in range(N_RANKS)]
    assert ranks[0][1] == [everyones, [""] * N_RANKS, [(bytes(range(256)) * 5).hex()] * N_RANKS]
    assert [one[1] for one in ranks[1:]] == [[[]] * 3] * (N_RANKS - 1)
    assert [one[2] for one in ranks] == [["", b"hello".hex()]] * N_RANKS

"""Which process takes a question, and whether it waits for more; the processes are never started."""

import asyncio

import pytest

from manyheads.config.inference import InferenceBatch
from manyheads.plugins.serving import pool as module
from manyheads.plugins.serving.config import ServeConfig
from manyheads.plugins.serving.pool import WorkerPool

QUESTION = {"kind": "predict", "texts": ["good film"], "pairs": None}


@pytest.fixture
def waits(monkeypatch):
    """The seconds of each wait for further questions."""
    entered = []
    sleep = asyncio.sleep

    async def noted(seconds):
        entered.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr(module.asyncio, "sleep", noted)
    return entered


def run(check, **settings):
    async def all_of_it():
        return await check(WorkerPool(ServeConfig(run="x", **settings)), asyncio.get_running_loop().create_future())

    return asyncio.run(all_of_it())


async def turn() -> None:
    """All that can go on goes on."""
    for _ in range(10):
        await asyncio.get_running_loop().run_in_executor(None, int)


def ask(pool, n=1):
    return [asyncio.create_task(pool.ask(QUESTION)) for _ in range(n)]


def answer(pool, batch):
    """As `WorkerPool._work` does with the answers of a process."""
    pool._in_progress -= 1
    for one in batch:
        one.answer.set_result((200, b"{}"))


def test_who_asks_alone_is_answered_at_once(waits):
    async def check(pool, ended):
        for _ in range(3):
            taking = asyncio.create_task(pool._next_batch(ended))
            await turn()
            (asked,) = ask(pool)
            batch = await taking
            assert len(batch) == 1
            answer(pool, batch)
            assert (await asked)[0] == 200

    run(check, exact=False, wait=100.0)
    assert waits == []


def test_where_several_ask_the_first_waits_no_longer_than_it_may(waits):
    async def check(pool, ended):
        ask(pool, 2)  # while the process is busy
        await turn()
        answer(pool, both := await pool._next_batch(ended))
        assert len(both) == 2
        taking = asyncio.create_task(pool._next_batch(ended))
        await turn()
        ask(pool)  # its neighbour may come, too
        await turn()
        ask(pool)
        answer(pool, both := await taking)
        assert len(both) == 2
        ask(pool)
        await turn()
        await pool._next_batch(ended)  # this one is under way while another process takes the next
        pool._last_size = 1
        taking = asyncio.create_task(pool._next_batch(ended))
        await turn()
        ask(pool)
        assert len(await taking) == 1

    run(check, exact=False, wait=100.0)
    assert len(waits) == 4
    assert all(0 < seconds <= 0.1 for seconds in waits)


@pytest.mark.parametrize(("settings", "n"), [({"exact": True}, 3), ({"batch": InferenceBatch(tokens=4)}, 1)])
def test_exact_answers_and_a_full_batch_wait_for_nobody(settings, n, waits):
    async def check(pool, ended):
        ask(pool, 3)
        await turn()
        assert len(await pool._next_batch(ended)) == n

    run(check, **({"exact": False, "wait": 100.0} | settings))
    assert waits == []


def test_the_process_that_was_busy_last_takes_the_next_question():
    async def check(pool, ended):
        first, last = (asyncio.create_task(pool._next_batch(ended)) for _ in range(2))
        await turn()
        ask(pool)
        answer(pool, await last)
        assert not first.done()
        ask(pool)
        answer(pool, await first)

    run(check)


def test_a_process_that_ends_as_it_is_asked_leaves_the_question_to_another():
    async def check(pool, ended):
        living = asyncio.get_running_loop().create_future()
        other = asyncio.create_task(pool._next_batch(living))
        await turn()
        ending = asyncio.create_task(pool._next_batch(ended))
        await turn()
        ask(pool)
        await asyncio.sleep(0)  # it is woken
        ended.set_result(1)
        with pytest.raises(EOFError):
            await ending
        assert len(await other) == 1
        assert pool._idle == []

    run(check)


class Process:
    """One that never ends, and answers at once."""

    async def wait(self) -> int:
        return await asyncio.get_running_loop().create_future()


@pytest.fixture
def answered(monkeypatch):
    """How many questions each process was sent."""
    sent = []

    async def send(process, questions):
        sent.append((process, len(questions)))

    async def answer(process):
        await asyncio.sleep(0)
        return 200, b"{}"

    monkeypatch.setattr(module, "_send", send)
    monkeypatch.setattr(module, "_read_reply", answer)
    return sent


def test_a_process_whose_questions_others_always_take_stays(answered, monkeypatch):
    sleep = asyncio.sleep
    monkeypatch.setattr(module.asyncio, "sleep", lambda _: sleep(0))

    async def check(pool, ended):
        both = [asyncio.create_task(pool._feed(Process())) for _ in range(2)]
        await turn()
        for _ in range(1500):
            await asyncio.gather(*ask(pool, 2))
        assert not any(one.done() for one in both)
        for one in both:
            one.cancel()

    run(check, exact=False, wait=100.0)
    assert [n for _, n in answered[10:]] == [2] * 1490  # one answers both each time


def test_exact_questions_are_shared_out_among_processes_that_are_free(answered):
    async def check(pool, ended):
        pool.ready = 3
        every = [asyncio.create_task(pool._feed(Process())) for _ in range(3)]
        await turn()
        await asyncio.gather(*ask(pool, 8))
        for one in every:
            one.cancel()

    run(check, workers=3)
    assert [n for _, n in answered] == [3, 3, 2]
    assert len({process for process, _ in answered}) == 3


def test_a_process_that_cannot_be_started_is_tried_again(monkeypatch, capsys):
    async def check(pool, ended):
        async def started(_):
            pool.closing = pool.restarts > 0
            raise OSError(11, "Resource temporarily unavailable")

        monkeypatch.setattr(module, "_start", started)
        await pool._keep_worker()
        return pool.restarts

    assert run(check) == 2
    assert capsys.readouterr().err.count("a worker cannot be started ([Errno 11] Resource temporarily") == 2

"""Memory and time of work whose memory is known."""

import time

import torch

from manyheads.explain.cost import median_seconds, peak_bytes


def test_the_peak_is_what_is_held_at_one_time():
    def work():
        first = torch.ones(1000, dtype=torch.float64)
        second = first * 2
        del first
        return second + second  # two of them are alive again

    assert peak_bytes(work) == 2 * 8000


def test_views_and_what_was_there_before_cost_nothing():
    before = torch.ones(1000)
    assert peak_bytes(lambda: before.view(10, 100).T[:5]) == 0
    assert peak_bytes(lambda: before.mul_(2)) == 0


def test_the_backward_pass_is_counted():
    x = torch.randn(64, 64, requires_grad=True)
    forward = peak_bytes(lambda: x.exp())
    both = peak_bytes(lambda: x.exp().sum().backward())
    assert forward == 4 * 64 * 64
    assert both >= 2 * forward


def test_works_take_turns_after_a_warm_up_and_threads_come_back():
    turns, threads = [], torch.get_num_threads()
    seconds = median_seconds({"a": lambda: turns.append("a"), "b": lambda: turns.append("b")}, repeats=3)
    assert turns == ["a", "b"] * 4
    assert seconds.keys() == {"a", "b"}
    assert torch.get_num_threads() == threads


def test_the_time_of_sleep_is_not_counted_and_that_of_work_is():
    def spin():
        total = 0
        for at in range(200_000):
            total += at

    seconds = median_seconds({"sleep": lambda: time.sleep(0.02), "work": spin}, repeats=3)
    assert seconds["sleep"] < seconds["work"]

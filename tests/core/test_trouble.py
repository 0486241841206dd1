"""What failed stays known of its items and of nobody else's; what is bound costs its replica just its own time."""

from __future__ import annotations

from tests.core.test_router import decide, of, started
from tests.fleets import arrived, configured, pool
from turnout.core import events as ev
from turnout.core.events import Part
from turnout.core.fleet import Limits
from turnout.core.policy import Bind, Run


def test_cutting_a_part_keeps_its_history_on_both_halves():
    """Items that failed on a pool are barred from it and tried on, however they are cut afterwards."""
    seen = []

    def cut(view, state, rng):
        seen[:] = [(w.start, w.attempts, w.barred) for w in view.waiting]
        items, replica = (8, "cpu-0") if view.now_s == 0.0 else (4, "gpu-0")
        heads = [Part(w.rid, 0, items) for w in view.waiting if w.start == 0]
        return [Run(parts=(part,), replica=replica) for part in heads], state

    router = started(policy=cut)
    router.handle(arrived(1, items=8, slack_s=1.0, max_parts=2))
    (whole,) = of(ev.Dispatch, decide(router))
    router.handle(ev.Failed(at_s=0.01, batch=whole.batch, kind="crash"))
    assert of(ev.Dispatch, decide(router, 0.01))
    decide(router, 0.02)
    assert seen == [(4, 1, ("cpu",))]


def test_the_last_pool_left_may_try_again():
    """What failed on the CPU waits for the GPU; when the GPU is lost, the CPU may try again rather than nobody."""
    router = started(configured(workload={"late": "serve"}))
    router.handle(arrived(1))
    (first,) = of(ev.Dispatch, decide(router))
    assert first.replica == "cpu-0"
    router.handle(ev.Failed(at_s=0.01, batch=first.batch, kind="crash"))
    router.handle(ev.ReplicaDown(at_s=0.02, replica="gpu-0"))
    (again,) = of(ev.Dispatch, decide(router, 0.02))
    assert again.replica == "cpu-0"


def test_a_batch_of_a_closed_request_says_nothing_about_a_new_one_of_the_same_id():
    """The id of a request that was answered may come again while its batch is still under way."""
    for fate in ("finished", "failed", "down"):
        router = started(configured(pool("cpu")), ("cpu-0", "cpu-1"))
        router.handle(arrived(1, slack_s=1.0))
        (old,) = of(ev.Dispatch, decide(router))
        router.handle(ev.Cancelled(at_s=0.001, rid=1))
        router.handle(arrived(1, at_s=0.002, slack_s=1.0))
        (new,) = of(ev.Dispatch, decide(router, 0.002))
        assert (old.replica, new.replica) == ("cpu-0", "cpu-1")
        event = {
            "finished": ev.Finished(at_s=0.003, batch=old.batch, service_s=0.003),
            "failed": ev.Failed(at_s=0.003, batch=old.batch, kind="crash"),
            "down": ev.ReplicaDown(at_s=0.003, replica="cpu-0"),
        }[fate]
        assert router.handle(event) == []
        (reply,) = router.handle(ev.Finished(at_s=0.004, batch=new.batch, service_s=0.002))
        assert reply.pieces == (ev.Piece(0, 1, new.batch, 0),)


def busy(slots, looked):
    """A replica with so many slots and three batches of one item bound behind them, and what a policy saw of it."""

    def bind(view, state, rng):
        looked[:] = [r.free_s for r in view.replicas]
        return [Bind(parts=(w.part,), replica="cpu-0") for w in view.waiting], state

    router = started(configured(pool("cpu", replicas=1, slots=slots), limits=Limits()), ("cpu-0",), bind)
    for rid in range(slots + 3):
        router.handle(arrived(rid, slack_s=1.0))
    decide(router)
    return router


def test_bound_work_starts_after_what_runs_and_not_after_itself():
    """The predicted start of a batch from the queue is when what is on the replica is through."""
    router = busy(2, [])
    each_s = router.pool_view("cpu").mean_s("m", 1)
    router.handle(ev.Finished(at_s=each_s, batch=1, service_s=each_s))
    (dispatch,) = of(ev.Dispatch, decide(router, each_s))
    assert dispatch.start_s == each_s + each_s


def test_a_replica_is_not_busy_with_what_was_taken_out_of_its_queue():
    """Cancelled work that was bound costs no more time."""
    looked = []
    router = busy(1, looked)
    each_s = router.pool_view("cpu").mean_s("m", 1)
    for rid in (1, 2):
        router.handle(ev.Cancelled(at_s=0.0, rid=rid))
    router.handle(arrived(9, slack_s=1.0))
    decide(router)
    assert looked == [2 * each_s]

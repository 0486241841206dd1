"""A reload under load: what waits, runs or is bound goes on under the new fleet, and what is gone stays gone."""

from __future__ import annotations

from msgspec.structs import replace

from tests.core.test_router import decide, of, started
from tests.fleets import CPU_LATENCY, GPU_LATENCY, arrived, configured, pool
from turnout.core import events as ev
from turnout.core.policy import Bind, Run
from turnout.core.router import Router


def bind_to(name):
    """A policy that queues everything on one replica."""

    def policy(view, state, rng):
        return [Bind(parts=(w.part,), replica=name) for w in view.waiting], state

    return policy


def test_what_was_bound_is_decided_anew():
    """The pool no longer serves the model: its queue runs elsewhere, and nothing breaks."""
    config = configured(pool("cpu", replicas=1), pool("gpu", "cuda", 1))
    names = iter(["cpu-0", "gpu-0"])
    router = Router(lambda name, params: bind_to(next(names)))
    for event in (config, *(ev.ReplicaUp(at_s=0.0, replica=f"{p}-0", pool=p) for p in ("cpu", "gpu"))):
        router.handle(event)
    for rid in range(2):
        router.handle(arrived(rid, slack_s=1.0))
    (running,) = of(ev.Dispatch, decide(router))
    latency = {"gpu": GPU_LATENCY}
    router.handle(configured(pool("cpu", replicas=1), pool("gpu", "cuda", 1), latency=latency, policy="other"))
    router.handle(ev.Finished(at_s=0.01, batch=running.batch, service_s=0.01))
    (dispatch,) = of(ev.Dispatch, decide(router, 0.01))
    assert (dispatch.replica, dispatch.parts[0].rid) == ("gpu-0", 1)


def test_a_replica_of_a_pool_that_is_gone_is_not_taken_in():
    """It was starting when its pool was removed, and says that it is up afterwards."""
    router = started(configured(pool("cpu"), pool("gpu", "cuda", 1)), ("cpu-0",))
    router.handle(ev.ReplicaStarting(at_s=0.0, replica="gpu-0", pool="gpu", ready_s=0.1))
    router.handle(configured(pool("cpu")))
    router.handle(ev.ReplicaUp(at_s=0.1, replica="gpu-0", pool="gpu"))
    router.handle(arrived(1, at_s=0.1))
    (dispatch,) = of(ev.Dispatch, decide(router, 0.1))
    assert dispatch.replica == "cpu-0"


def test_ties_are_broken_in_the_order_of_the_fleet():
    """Not in the order in which replicas happened to come up, which a restart changes."""
    seen = []

    def look(view, state, rng):
        seen[:] = [r.replica for r in view.replicas]
        return [], state

    router = started(replicas=("gpu-0", "cpu-0", "cpu-1"), policy=look)
    router.handle(arrived(1))
    decide(router)
    assert seen == ["cpu-0", "cpu-1", "gpu-0"]
    router.handle(configured(pool("gpu", "cuda", 1), pool("cpu")))
    decide(router)
    assert seen == ["gpu-0", "cpu-0", "cpu-1"]


def test_a_name_that_moves_to_another_pool_is_counted_there():
    """A pool without a replica of its own has none, whatever its former replica is called now."""
    config = configured(latency={"cpu": CPU_LATENCY})
    router = started(config, replicas=())
    router.handle(ev.ReplicaStarting(at_s=0.0, replica="a", pool="cpu", ready_s=0.1))
    router.handle(ev.ReplicaUp(at_s=0.1, replica="a", pool="gpu"))
    (reject,) = router.handle(arrived(1, at_s=0.1))
    assert reject.reason == "no replica"


def test_a_reload_that_takes_the_last_other_pool_lifts_the_bar():
    """What failed on the CPU waits for the GPU; when the GPU goes, the CPU may try again rather than nobody."""
    config = configured(pool("cpu"), pool("gpu", "cuda", 1), workload={"late": "serve"})
    router = started(config)
    router.handle(arrived(1))
    (first,) = of(ev.Dispatch, decide(router))
    assert first.replica == "cpu-0"
    router.handle(ev.Failed(at_s=0.01, batch=first.batch, kind="crash"))
    router.handle(replace(config, fleet=configured(pool("cpu")).fleet))
    (again,) = of(ev.Dispatch, decide(router, 0.01))
    assert again.replica == "cpu-0"


def test_a_hedge_goes_to_no_pool_that_failed_the_work():
    """The bar holds for copies too."""

    def eager(view, state, rng):
        choices = [Run(parts=(w.part,), replica="gpu-0" if w.barred else "cpu-0") for w in view.waiting]
        return choices + [Run(parts=f.parts, replica="cpu-1", hedge=True) for f in view.in_flight], state

    limits = replace(configured().limits, hedge_share=1.0)
    router = started(configured(limits=limits), policy=eager)
    router.handle(arrived(1, slack_s=1.0))
    (first,) = of(ev.Dispatch, decide(router))
    router.handle(ev.Failed(at_s=0.01, batch=first.batch, kind="crash"))
    (second,) = of(ev.Dispatch, decide(router, 0.01))
    assert second.replica == "gpu-0"
    (refused,) = of(ev.Refused, decide(router, 0.02))
    assert "failed on cpu" in refused.why

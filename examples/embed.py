"""The router in a program of one's own: a fleet, a second of traffic, what it came to. No extra, no hardware."""

from turnout import policies, simulate
from turnout.core.cost import Price
from turnout.core.events import Arrived, Configured
from turnout.core.fleet import Fleet, PoolSpec
from turnout.core.latency import line
from turnout.core.workload import Slo, Workload

latency = {"cpu": line(0.001, 0.002, (0.9, 1.0, 1.2)), "gpu": line(0.008, 0.0001)}  # seconds: a batch, an item; spread
cpu = PoolSpec(name="cpu", device="cpu", models=("m",), replicas=2, max_items=32, price=Price(usd_per_s=0.1 / 3600))
gpu = PoolSpec(name="gpu", device="cuda", models=("m",), replicas=1, max_items=64, price=Price(usd_per_s=0.5 / 3600))
model = Workload(name="m", slo=Slo(deadline_s=0.05), latency=latency)
head = Configured(at_s=0.0, fleet=Fleet(pools=(cpu, gpu)), models=(model,), policy="earliest")
sizes = [1, 1, 2, 1, 16, 1, 1, 4] * 125
traffic = [Arrived(at_s=i / 1e3, rid=i, model="m", items=n, deadline_s=i / 1e3 + 0.05) for i, n in enumerate(sizes)]
draws = {(pool, "m"): simulate.from_model(model) for pool, model in latency.items()}
summary = simulate.run(head, traffic, draws, policies.load)
print(f"{summary.attainment:.4f} met; items by pool:", {pool.pool: pool.items for pool in summary.pools})

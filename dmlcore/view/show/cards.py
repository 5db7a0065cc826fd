"""What each kind of object shows: a title, facts, drawings."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jinja2

from dmlcore import checks
from dmlcore.cluster import Cluster
from dmlcore.cluster.jitter import show_jitter
from dmlcore.experiments.runs import Run
from dmlcore.methods import policies
from dmlcore.problems.problem import Problem
from dmlcore.trace import Trace, metrics
from dmlcore.types import Policy
from dmlcore.view.show import pictures

LONGEST = 400  # characters of one fact
MOST = 8  # events, such as faults, that are listed one by one


PAGE = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string("""\
{% set left = "text-align:left;vertical-align:top;padding:0.1em 1.2em 0.1em 0" %}
<div>
<div><strong>{{ card.name }}</strong> · {{ card.kind }}</div>
<table style="margin:0.4em 0"><tbody>
{% for fact, value in facts %}
<tr><th scope="row" style="{{ left }};white-space:nowrap">{{ fact }}</th>
<td style="{{ left }}">{{ value }}</td></tr>
{% endfor %}
</tbody></table>
{% for picture in card.pictures %}
<div><img src="{{ picture.source }}" alt="{{ picture.label }}" style="width:100%;max-width:640px"/></div>
<div style="font-size:smaller">{{ picture.label }}</div>
{% endfor %}
</div>
""")


class Card(NamedTuple):
    """What is shown of an object."""

    name: str
    kind: str
    facts: Mapping[str, Any]  # by name; those that are None are left out
    pictures: Sequence[pictures.Picture] = ()  # below the facts


def html(item: Any) -> str:
    """Returns an object as self-contained HTML of at most some 30 kB, for `_repr_html_`.

    Raises:
        ValueError: `item` is no Run, Trace, Cluster, Policy or Problem.

    >>> from dmlcore.methods.policies import bsp
    >>> "<strong>bsp()</strong>" in html(bsp())
    True
    """
    for kind, describe in CARDS.items():
        if isinstance(item, kind):
            card = describe(item)
            facts = [(name, shortened(fact)) for name, fact in card.facts.items() if fact is not None]
            return PAGE.render(card=card._replace(name=shortened(card.name)), facts=facts)
    return checks.fail("item", item, "one of " + ", ".join(kind.__name__ for kind in CARDS))


def of_run(run: Run) -> Card:
    """The last metrics, the numbers of the trace, the loss over time and the timeline."""
    costs = ("update", "time", "samples", "assigned_samples", "uplinks", "downlinks", "bytes")
    last = run.history.iloc[-1]
    names = [name for name in map(str, run.history) if name not in costs]
    found = {name.replace("_", " "): f"{last[name]:.4g}" for name in names}
    trace = of_trace(run.trace)
    shown = (pictures.loss(run.history.assign(method=trace.name)), *trace.pictures)
    return trace._replace(kind="Run", facts=found | dict(trace.facts), pictures=shown)


def of_trace(trace: Trace) -> Card:
    """Numbers of the run, and the timeline of its beginning."""
    late = metrics.staleness(trace)
    found = {
        "problem": trace.metadata.get("problem"),
        "workers": trace.num_workers,
        "updates": len(trace.updates),
        "tasks": len(trace.tasks),
        "time": f"{trace.end_time:.4g} s",
        "mean staleness": f"{late.mean():.3g} updates" if len(late) else None,
        "seed": trace.metadata.get("seed"),
        "timeline": None if trace.end_time > 0 else "none: an empty run, it took no time",
    }
    drawn = [pictures.timeline(trace)] if trace.end_time > 0 else []
    return Card(str(trace.metadata.get("policy")), "Trace", found, drawn)


def of_cluster(cluster: Cluster) -> Card:
    """Workers, speeds, jitter, links, and what goes wrong."""
    down = cluster.pull_latency_seconds
    finite = [speed for speed in cluster.bandwidth_bytes_per_second if math.isfinite(speed)]
    found = {
        "speed": f"{spread(cluster.samples_per_second)} samples/s",
        "overhead": f"{spread(cluster.overhead_seconds)} s a task" if any(cluster.overhead_seconds) else None,
        "jitter": show_jitter(cluster.jitter) or "none",
        "latency": f"{spread(cluster.latency_seconds)} s a transfer" + (" to the server" if down else ""),
        "latency to the worker": f"{spread(down)} s" if down else None,
        "latency jitter": show_jitter(cluster.latency_jitter),
        "bandwidth": f"{spread(cluster.bandwidth_bytes_per_second)} bytes/s" if finite else "unlimited",
        "stragglers": listed([str(each) for each in cluster.stragglers]) or "none",
        "changes of speed": listed([str(each) for each in cluster.changes]),
        "faults": listed([str(each) for each in cluster.faults.events]),
    }
    speeds = pictures.bars(cluster.samples_per_second, "samples/s")
    return Card(f"{cluster.num_workers} workers", "Cluster", found, [speeds])


def of_policy(policy: Policy) -> Card:
    """What it does, what it bounds, and what it can cope with."""
    bound = policy.max_lead
    free = bound is None or math.isinf(bound)
    ahead = "none on a worker's lead" if free else f"at most {bound:g} clocks ahead of the slowest worker"
    sizes = None if policy.batch_size is None else f"set by the policy, {policy.batch_size} samples at first"
    watches = f"loss and gradients, at least every {policy.observe_every} updates"
    found = {
        "in a line": summary(policy),
        "bound": ahead,
        "workers may leave": "no" if policy.on_leave is None else "yes",
        "watches": watches if policy.on_observation else None,
        "batch sizes": sizes,
    }
    return Card(policy.name, "Policy", found)


def of_problem(problem: Problem) -> Card:
    """Sizes, and the optimum where it is known."""
    count = sum(problem.tensor_sizes)
    found = {
        "samples": problem.num_samples,
        "parameters": f"{count} in {len(problem.tensor_sizes)} tensors, {problem.parameter_bytes} bytes",
        "least loss": None if problem.optimum is None else f"{problem.optimum:.4g}",
    }
    return Card(problem.name, "Problem", found)


CARDS: Mapping[type, Callable[[Any], Card]] = {
    Run: of_run,
    Trace: of_trace,
    Cluster: of_cluster,
    Policy: of_policy,
    Problem: of_problem,
}


def shortened(fact: Any) -> str:
    """Returns a fact as text, cut where it is very long.

    >>> shortened("-" * 1000)[-5:]
    '--...'
    """
    said = str(fact)
    return said if len(said) <= LONGEST else said[: LONGEST - 3] + "..."


def spread(values: Sequence[float]) -> str:
    """Returns the range of numbers.

    >>> spread((1, 1)), spread((500, 1000))
    ('1', '500 to 1000')
    """
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def listed(events: Sequence[str]) -> str | None:
    """Returns the first few of some events, and how many more there are; None without any.

    >>> listed([]), listed([str(i) for i in range(11)])
    (None, '0; 1; 2; 3; 4; 5; 6; 7; 3 more')
    """
    more = [f"{len(events) - MOST} more"] * (len(events) > MOST)
    return "; ".join([*events[:MOST], *more]) or None


def summary(policy: Policy) -> str | None:
    """Returns the first line of the docstring of the function that makes a policy, if it can be found.

    >>> from dmlcore.methods.policies import bsp
    >>> summary(bsp())
    'Bulk synchronous parallel: ...'
    """
    name = policy.name.partition("(")[0]
    own = getattr(policy.on_push, "__globals__", {})
    maker = own.get(name) or getattr(policies, name, None)
    doc = inspect.getdoc(maker) if callable(maker) else None  # of None, Python 3.13 has one
    return doc.splitlines()[0] if doc else None

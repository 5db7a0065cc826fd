"""Notebook displays of runs, traces, clusters, regimes, methods, problems: a title, facts, small plots.

One HTML template renders all of them and escapes all text. Text and tables follow the notebook's theme;
pictures have a white background, so that they are also readable in a dark notebook.
"""

import base64
import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dmlcore import checks, pages
from dmlcore.cluster import Cluster
from dmlcore.cluster.hardware import Hardware
from dmlcore.cluster.jitter import show_jitter
from dmlcore.cluster.regime import Regime, Sizes, regime_of
from dmlcore.engines.spec import RunSpec
from dmlcore.experiments.recommendation import Recommendation
from dmlcore.experiments.recommendation.reasons import alike_of, number
from dmlcore.experiments.runs import Run
from dmlcore.experiments.study import Study
from dmlcore.problems.problem import Problem
from dmlcore.problems.validation import RESERVED, SERVER
from dmlcore.trace import Trace, metrics
from dmlcore.trace.metrics.decision import LOOKS
from dmlcore.trace.metrics.times import PARTS
from dmlcore.types import Method, Policy
from dmlcore.view import method_facts
from dmlcore.view.plot import loss_curves, timeline
from dmlcore.view.plot import recommendation as plot_recommendation
from dmlcore.view.plot import study as plot_study
from dmlcore.view.plot.style import PHASE_COLORS, styled
from dmlcore.view.plot.timelines import default_end

MOST = 8  # the largest number of events, such as faults, that are listed
LANES = 16  # the largest number of lanes in a timeline
WIDTH = 8  # of a picture, in inches

# The template cuts a fact after 400 characters, and leaves out a fact that is None.
PAGE = pages.template(__file__, "show.html.jinja")

Picture = tuple[str, str]  # caption, which is also the alternative text; content as a data URI


class Card(NamedTuple):
    """The content of an object's display."""

    name: str
    kind: str
    facts: Mapping[str, Any]  # by name
    pictures: Sequence[Picture] = ()  # below the facts
    table: pd.DataFrame | None = None  # between the facts and the pictures
    text: str = ""  # above the facts
    notes: Sequence[str] = ()  # below the pictures


def html(item: Any) -> str:
    """Returns the display of an object as self-contained HTML of at most about 30 kB, for `_repr_html_`."""
    for kind, describe in CARDS.items():
        if isinstance(item, kind):
            return PAGE.render(describe(item)._asdict())
    return checks.fail("item", item, "one of " + ", ".join(kind.__name__ for kind in CARDS))


def of_run(run: Run) -> Card:
    """Returns a card with the last metrics, the numbers of the trace, the loss over time and the timeline."""
    trace = of_trace(run.trace)
    history = run.history.assign(method=trace.name)
    last, (first, final) = run.history.iloc[-1], history["loss"].iloc[[0, -1]]
    names = [name for name in map(str, run.history) if name not in RESERVED]
    found = {name.replace("_", " "): f"{last[name]:.4g}" for name in names}
    if {*SERVER} <= {*run.history}:
        busy = ", ".join(f"{part} busy {last[name]:.0%} of the time" for name, part in PARTS.items())
        found["server"] = f"{busy}; {last['mean_queue']:.3g} messages wait on average"
    label = f"Training loss over time: {first:.3g} at the start, {final:.3g} at the end"
    shown = (picture(label, 2.2, lambda ax: loss_curves(history, ax=ax)), *trace.pictures)
    return trace._replace(kind="Run", facts=found | dict(trace.facts), pictures=shown)


def of_trace(trace: Trace) -> Card:
    """Returns a card with numbers of the run, and the timeline of about the first dozen clocks."""
    late, whole = metrics.staleness(trace), trace.end_time
    found = {
        "problem": trace.metadata.get("problem"),
        "workers": trace.num_workers,
        "updates": len(trace.updates),
        "tasks": len(trace.tasks),
        "tasks that did not count": trace.metadata.get("void_tasks"),
        "time": f"{whole:.4g} s",
        "mean staleness": f"{late.mean():.3g} updates" if len(late) else None,
        "seed": trace.metadata.get("seed"),
        **regime_facts(regime_of_trace(trace)),
        "timeline": None if whole > 0 else "none: an empty run, it took no time",
    }
    card = Card(str(trace.metadata.get("policy")), "Trace", found)
    if not whole > 0:
        return card
    end = min(default_end(trace, 0.0), whole)
    part = "all" if end >= whole else f"the first {end:.3g} s"
    label, lanes = f"Timeline of the workers: {part} of {whole:.4g} s", min(trace.num_workers + 2, LANES)
    drawn = picture(label, 1.2 + 0.22 * lanes, lambda ax: timeline(trace, end=end, lanes=LANES, ax=ax))
    return card._replace(pictures=[drawn])


def server_load(cluster: Cluster) -> str | None:
    """Returns the text on rho, which needs a problem if the server has a link; None: the server is free."""
    if cluster.server is None:
        return None
    if cluster.server.bandwidth_bytes_per_second < math.inf or any(
        map(math.isfinite, cluster.bandwidth_bytes_per_second)
    ):
        return "depends on the size of the parameters: regime(problem) tells it"
    return f"rho = {cluster.regime(0).server_load:.2g}, tasks of 32 samples"


def of_cluster(cluster: Cluster) -> Card:
    """Returns a card with workers, speeds, jitter, links, the server, stragglers and faults."""
    down, speeds = cluster.pull_latency_seconds, cluster.samples_per_second
    finite = any(map(math.isfinite, cluster.bandwidth_bytes_per_second))
    found = {
        "speed": f"{spread(speeds)} samples/s",
        "overhead": f"{spread(cluster.overhead_seconds)} s a task" if any(cluster.overhead_seconds) else None,
        "durations": None if cluster.durations is None else str(cluster.durations),
        "jitter": show_jitter(cluster.jitter) or "none",
        "latency": f"{spread(cluster.latency_seconds)} s a transfer" + (" to the server" if down else ""),
        "latency to the worker": f"{spread(down)} s" if down else None,
        "latency jitter": show_jitter(cluster.latency_jitter),
        "bandwidth": f"{spread(cluster.bandwidth_bytes_per_second)} bytes/s" if finite else "unlimited",
        "server": str(cluster.server).removeprefix("server of ") if cluster.server else "takes no time",
        "server load": server_load(cluster),
        "stragglers": listed(cluster.stragglers) or "none",
        "changes of speed": listed(cluster.changes),
        "faults": listed(cluster.faults.events),
        "fitted": cluster.fitted or None,
    }

    least, most = min(speeds), max(speeds)

    def bars(ax: Axes) -> None:
        width = min(max(50 * WIDTH / len(speeds), 0.5), 24)  # points
        ax.vlines(range(len(speeds)), 0, speeds, color=PHASE_COLORS["compute"], linewidth=width)
        ax.set(xlabel="worker", ylabel="samples/s", xlim=(-0.7, len(speeds) - 0.3), ylim=(0, 1.05 * most))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))

    each = f"{least:.4g} all" if math.isclose(least, most) else f"{least:.4g} to {most:.4g}"
    drawn = [picture(f"Samples/s of each worker, {each}", 1.9, bars)]
    return Card(f"{cluster.num_workers} workers", "Cluster", found, drawn)


def of_hardware(hardware: Hardware) -> Card:
    """Returns a card with the parts of the hardware, its bottleneck, and its cluster."""
    card = of_cluster(hardware.cluster)
    found = {
        "workers": hardware.cluster.num_workers,
        "parameters": f"{hardware.parameter_bytes / 1e6:.4g} MB",
        "batch size": f"{hardware.batch_size} samples a task",
        **regime_facts(hardware.regime),
    }
    return card._replace(name=hardware.name, kind="Hardware", facts=found | dict(card.facts))


def of_regime(regime: Regime) -> Card:
    """Returns a card with c and rho, a sentence on each, and the limit of asynchronous workers."""
    ratio, load = regime
    if load >= 1:
        limit = "the server: workers queue for it, and more of them or faster ones add no throughput"
    elif ratio > 1:
        limit = "the workers' links: a task's transfers take longer than its computing"
    else:
        limit = "computing: a task's transfers take no longer than its computing, and the server keeps up"
    compared = "the seconds of a task's transfers, without queueing, over those of its computing"
    offered = (
        "seconds of work that workers that never wait bring the server each second; it is saturated from 1 on"
    )
    found = {
        "communication ratio c": f"{ratio:.2g}: {compared}.",
        "server load rho": f"{load:.2g}: {offered}." if load else "0: the server takes no time.",
        "bottleneck": f"{limit}.",
    }
    return Card(str(regime), "Regime", found)


def of_policy(policy: Policy) -> Card:
    """Returns a card with the policy's rule, its knobs, its bounds and what a run adds to it."""
    return Card(policy.name, "Policy", method_facts.of_method(Method(policy)))


def of_method(method: Method) -> Card:
    """Returns a card with the policy of a method and its load, transport, local steps and optimizer."""
    return Card(str(method), "Method", method_facts.of_method(method))


def of_spec(spec: RunSpec) -> Card:
    """Returns a card with what will be run, and in which regime."""
    sizes = Sizes(spec.num_parameters, *spec.transferred_bytes())
    regime = regime_of(spec.cluster.describe(), sizes, spec.batch_size)
    told = method_facts.of_spec(spec) | regime_facts(regime)
    return Card(f"{spec.policy.name} until {method_facts.ending(spec)}", "Run to come", told)


def of_problem(problem: Problem) -> Card:
    """Returns a card with the problem's sizes, and its optimum if it is known."""
    numbers = f"{problem.num_parameters} in {len(problem.tensor_shapes)} tensors"
    found = {
        "samples": problem.num_samples,
        "parameters": f"{numbers}, {problem.parameter_bytes} bytes",
        "least loss": None if problem.optimum is None else f"{problem.optimum:.4g}",
    }
    return Card(problem.name, "Problem", found)


LEGEND = (
    'Times are seconds of the modelled cluster; "never" is longer than four times the best time. Ratios are '
    "medians over seeds; an interval holds the true one with a probability of 99% at each look. "
    '"slower": the interval is above 1; "level": within 5% of 1; "undecided": more seeds could tell'
)


def of_study(found: Study, drawn: Picture | None = None) -> Card:
    """Returns a card with what a study has found: a sentence for each pair, a table and a picture."""
    goal = next(iter(found.answers.values())).goal
    clusters = [each.goal.cluster for each in found.answers.values()]
    told = {
        "problem": goal.problem.name,
        "cluster": ", ".join(found.answers) if found.several else str(clusters[0]),
        "judged": f"on up to {found.table['seeds'].max()} seeds",
        "runs": f"at most {found.table['runs'].max()} of each method",
    }
    height = 2 + 0.45 * len(found.table.index.unique("method"))
    label = f"Time to {goal} of each method, times that of the best, with its interval"
    drawn = drawn or picture(label, height, lambda ax: plot_study(found, ax=ax))
    name = f"Study of {len(found.table.index.unique('method'))} methods"
    text = ". ".join(found.sentences()) + "."
    return Card(name, f"Study, to {goal}", told, [drawn], readable(found.table), text, (*found.notes, LEGEND))


def of_recommendation(found: Recommendation) -> Card:
    """Returns the card of a study that is named by its best method, with the reason and all seeds' times."""
    table, alike = found.table, alike_of(found.table)
    label = f"Time to {found.answer.goal} of each method: a point for each seed, and a line at the median. "
    label += "Filled: methods that are not known to be slower than the best"
    drawn = picture(label, 1.4 + 0.34 * len(table), lambda ax: plot_recommendation(found, ax=ax))
    name = f"{'Interrupted: ' * found.interrupted}{table.index[0]}"
    if alike:
        name += f" or {alike[0]}" if len(alike) == 1 else f", or one of {len(alike)} that may be as fast"
    card = of_study(found, drawn)
    told = {"method": str(found.best._replace(optimizer=None)), **card.facts}
    kind = card.kind.replace("Study", "Recommendation")
    return card._replace(name=name, kind=kind, facts=told, text=found.why)


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """Returns a study's table with rounded numbers and units, as text."""
    between = table["ratio_low"].map(number) + " to " + table["ratio_high"].map(number)
    unknown = (table["seeds"] < LOOKS[0]) | ~np.isfinite(table["ratio"]) | (table["outcome"] == "best")
    return pd.DataFrame(
        {
            "setting": table["setting"],
            "learning rate": table["learning_rate"].map(number).replace("never", ""),
            "time (s)": table["seconds"].map(number),
            "times the best": table["ratio"].map(number).replace("never", "-"),
            "between": between.mask(unknown, "-"),
            "outcome": table["outcome"],
            "seeds": table["seeds"].astype(str),
            "samples": table["samples"].map("{:,.0f}".format).replace("inf", "-"),
            "MB sent": (table["bytes"] / 1e6).map(number).replace("never", "-"),
        }
    )


CARDS: Any = {
    Run: of_run,
    Trace: of_trace,
    Cluster: of_cluster,
    Policy: of_policy,
    Problem: of_problem,
    Hardware: of_hardware,
    Regime: of_regime,
    Recommendation: of_recommendation,
    Study: of_study,
    Method: of_method,
    RunSpec: of_spec,
}


def regime_of_trace(trace: Trace) -> Regime | None:
    """Returns the regime of a run, from its cluster, messages and tasks; None if the trace lacks them."""
    known, tasks = trace.metadata, trace.tasks
    if not {"cluster", "parameter_bytes", "transfer_bytes"} <= {*known} or tasks.empty:
        return None
    sizes = Sizes(-(-known["parameter_bytes"] // 4), *known["transfer_bytes"])
    return regime_of(known["cluster"], sizes, float(tasks["batch_size"].mean()))


def regime_facts(regime: Regime | None) -> dict[str, str]:
    """Returns c and rho as facts, each with its meaning."""
    if regime is None:
        return {}
    ratio, load = regime
    meaning = "saturated" if load >= 1 else "saturated from 1 on"
    return {
        "communication ratio c": f"{ratio:.2g}, transfers / computing of a task",
        "server load rho": f"{load:.2g}, {meaning}" if load else "0, the server takes no time",
    }


@styled
def picture(label: str, height: float, draw: Callable[[Axes], object]) -> Picture:
    """Returns the picture that `draw` draws, `height` inches high: the same bytes for the same picture.

    The format is lossless WebP. SVG has a path for each task, and PNG compresses less: both take several
    times as many bytes.
    """
    figure, content = Figure(figsize=(WIDTH, height)), io.BytesIO()
    draw(figure.subplots())
    figure.savefig(content, format="webp", dpi=110, pil_kwargs={"lossless": True})  # enough for small text
    return label, f"data:image/webp;base64,{base64.b64encode(content.getvalue()).decode()}"


def spread(values: Sequence[float]) -> str:
    """Returns the range of some numbers as text.

    >>> spread((1, 1)), spread((500, 1000))
    ('1', '500 to 1000')
    """
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def listed(events: Sequence[Any]) -> str | None:
    """Returns the first few events and the number of further ones as text; None if there are none.

    >>> listed([]), listed(range(11))
    (None, '0; 1; 2; 3; 4; 5; 6; 7; 3 more')
    """
    more = [f"{len(events) - MOST} more"] * (len(events) > MOST)
    return "; ".join([*map(str, events[:MOST]), *more]) or None

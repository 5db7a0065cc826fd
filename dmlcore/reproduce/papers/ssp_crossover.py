"""The server load at which SSP overtakes ASP: measured, and predicted by theory."""

import math
from collections.abc import Mapping

import pandas as pd
from scipy import optimize

import dmlcore as dml
from dmlcore.cluster.regime import with_load
from dmlcore.experiments.study import Study
from dmlcore.reproduce.papers.ssp_study import SHARE, SLOWER, transient

LEAST = 1.05  # smallest ratio of times at which SSP counts as ahead of ASP
CYCLE = 0.032 * (1 + SHARE * (SLOWER - 1))  # mean seconds of a task, including slow episodes
MOST = 10.0  # bound of ratios, and of their inverses, in the interpolation of a crossover


def busy(num_workers: int, load: float, push: float, problem: object = 0) -> dml.Cluster:
    """Returns a cluster on free links with this server load under ASP; `push` is the pushes' share of it."""
    return with_load(transient(num_workers, latency=0.0), load, problem, 32, {"push": push, "pull": 1 - push})


def overtakes(leads: Mapping[float, float], least: float = LEAST) -> float | None:
    """Returns the load at which SSP overtakes ASP: the first change of sign of log(lead / least).

    Between the two loads the logarithm of the lead is interpolated linearly in the logarithm of the load, or
    in the load itself if the first of the two is 0.

    Args:
        leads: load -> time of ASP / time of SSP, for one seed. NaN: neither reaches the target, and the load
            counts as not measured. inf: only SSP reaches it, and is ahead. 0: only ASP does.
        least: the smallest lead at which SSP counts as ahead.

    Returns:
        The load; 0.0 (below the sweep) if SSP is ahead at the first measured load; inf (above the sweep) if
        it is ahead at no load; None if no load was measured.

    >>> overtakes({0.0: 0.8, 1.0: 0.9, 2.0: 1.1, 4.0: 0.7}, least=1.0)
    1.438975333787894
    >>> overtakes({0.0: 1.2, 1.0: 0.9}), overtakes({0.0: 0.8, 1.0: 0.9}), overtakes({0.0: math.nan})
    (0.0, inf, None)
    """
    known = [(load, lead) for load, lead in sorted(leads.items()) if not math.isnan(lead)]
    if not known:
        return None
    first = next((i for i, (_, lead) in enumerate(known) if lead >= least), None)
    if first is None:
        return math.inf
    if first == 0:
        return 0.0
    (a, behind), (b, ahead) = known[first - 1 : first + 1]
    x, y = (math.log(min(max(lead, 1 / MOST), MOST) / least) for lead in (behind, ahead))
    share = x / (x - y)
    return a * (b / a) ** share if a else b * share


def leads_by_load(found: Study) -> pd.DataFrame:
    """Returns time of ASP / time of SSP, by load and seed, from a study on a cluster per load."""
    return pd.DataFrame({float(load): found.samples("ASP", "SSP", load) for load in found.answers}).T


def crossovers(found: Study) -> list[float | None]:
    """Returns the load at which SSP overtakes ASP, for each seed of a study on a cluster per load."""
    return [overtakes(leads) for leads in leads_by_load(found).to_dict().values()]


def predicted(lead: float, num_workers: int) -> float:
    """Predicts the load at which queueing slows ASP by its lead on the free server plus 5%.

    Mean-value analysis gives the slow-down. The prediction assumes that only ASP queues and that SSP keeps
    its clocks per second of the free server, so it is for pushes that cost the server little.

    Args:
        lead: time of SSP / time of ASP on the free server.
        num_workers: number of workers.
    """

    def excess(load: float) -> float:
        service = load * CYCLE / (num_workers - load)
        rate = dml.theory.queueing.mean_value_analysis(num_workers, service, CYCLE)[-1]
        return num_workers / CYCLE / rate - LEAST * lead

    return optimize.brentq(excess, 1e-3, num_workers - 1e-3)


def relative(loads: list[float | None], theory: float) -> list[float | None]:
    """Returns loads / the predicted one; 0 and inf, below and above the sweep, stay the same.

    >>> relative([3.0, 0.0, math.inf, None], 1.5)
    [2.0, 0.0, inf, None]
    """
    return [None if load is None else load / theory for load in loads]

"""Plots: what they promise about labels, colours, lanes and bytes; the eye judges the rest."""

from __future__ import annotations

import math

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import optax
import pandas as pd
import pytest
from scipy import stats

import dmlcore as dml
from dmlcore.cluster import Cluster
from dmlcore.engines import simulate
from dmlcore.methods.policies import ALL_POLICIES, asp, bsp, k_sync, ssp
from dmlcore.trace import metrics
from dmlcore.view import plot
from dmlcore.view.plot import style, timelines

CLUSTER = Cluster.uniform(4, samples_per_second=32, latency=0.05, jitter=stats.expon())


@pytest.fixture(autouse=True)
def figures():
    """Draws off screen and leaves nothing open."""
    before = mpl.get_backend()
    plt.switch_backend("agg")
    yield
    plt.close("all")
    plt.switch_backend(before)


@pytest.fixture(scope="module")
def traces():
    policies = {"BSP": bsp(), "SSP (s=3)": ssp(3), "ASP": asp(), "K-sync (K=2)": k_sync(2)}
    return {
        name: [simulate(policy, CLUSTER, seconds=30, seed=s) for s in range(2)]
        for name, policy in policies.items()
    }


def runs(diverged: int = 0) -> pd.DataFrame:
    time = np.linspace(0, 10, 21)
    frames = []
    for rate, method in ((0.1, "BSP"), (0.2, "SSP (s=3)")):
        for seed in range(3):
            loss = np.exp(-rate * time) * (1 + 0.1 * seed * time / 10)
            if method == "SSP (s=3)" and seed < diverged:
                loss = np.where(time > 5, np.nan, loss * np.exp(time))
            frames.append(pd.DataFrame({"method": method, "seed": seed, "time": time, "loss": loss}))
    return pd.concat(frames, ignore_index=True)


class TestTimeline:
    def test_bars_cover_what_the_breakdown_says(self, traces):
        trace = traces["K-sync (K=2)"][0]
        ax = plot.timeline(trace, end=math.inf)
        drawn = dict.fromkeys(metrics.PHASES, 0.0)
        colors = {mpl.colors.to_hex(color).upper(): kind for kind, color in plot.PHASE_COLORS.items()}
        for bars in ax.collections[:-1]:
            kind = colors[mpl.colors.to_hex(bars.get_facecolor()[0]).upper()]
            drawn[kind] += sum(np.ptp(path.vertices[:, 0]) for path in bars.get_paths())
        expected = metrics.time_breakdown(trace)[list(metrics.PHASES)].sum()
        assert drawn == pytest.approx(expected.to_dict())

    def test_one_collection_for_each_kind(self, traces):
        trace = traces["BSP"][0]
        kinds = metrics.phases(trace)["kind"].nunique()
        assert len(plot.timeline(trace, end=math.inf).collections) == kinds + 1  # and the updates

    @pytest.mark.parametrize("policy", [asp(), ssp(3), k_sync(2)], ids=str)
    @pytest.mark.parametrize("end", [0.5, 3.0, 20.0])
    def test_phases_of_a_window_are_those_of_the_whole_trace(self, policy, end):
        trace = simulate(policy, CLUSTER, seconds=30)
        found, whole = timelines._phases(trace, [0, 2], end), metrics.phases(trace).query("worker in [0, 2]")
        kinds = ["worker", "kind", "start", "end"]
        found, whole = (
            each[each["start"] < end].assign(end=each["end"].clip(upper=end))[kinds].reset_index(drop=True)
            for each in (found[found["worker"].isin([0, 2])], whole)
        )
        pd.testing.assert_frame_equal(found, whole)

    def test_labels_and_lanes(self, traces):
        ax = plot.timeline(traces["SSP (s=3)"][0])
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("time (s)", "worker")
        assert [tick.get_text() for tick in ax.get_yticklabels()] == ["0", "1", "2", "3", "updates"]
        assert 0 < ax.get_xlim()[1] < 30  # about a dozen clocks by default
        assert ax.yaxis_inverted()

    def test_several_traces_share_the_time_axis(self, traces):
        first = {name: group[0] for name, group in traces.items()}
        axes = plot.timeline(first, start=2, end=7)
        assert [ax.get_title(loc="left") for ax in axes] == list(first)
        assert {ax.get_xlim() for ax in axes} == {(2.0, 7.0)}
        assert len(plot.timeline({"BSP": first["BSP"]})) == 1

    def test_of_many_workers_some_are_drawn(self):
        ax = plot.timeline(simulate(bsp(), Cluster.uniform(100), updates=3))
        assert ax.get_ylabel() == "48 of 100 workers"
        lanes = {path.vertices[0, 1] for bars in ax.collections[:-1] for path in bars.get_paths()}
        assert len(lanes) == 48
        assert len(ax.get_yticks()) <= 17

    def test_wrong_windows(self, traces):
        trace = traces["BSP"][0]
        with pytest.raises(ValueError, match="end"):
            plot.timeline(trace, start=5, end=5)
        with pytest.raises(ValueError, match="start"):
            plot.timeline(trace, start=-1)
        with pytest.raises(ValueError, match="trace"):
            plot.timeline({"BSP": trace}, ax=plt.subplots()[1])


class TestLossCurves:
    def test_a_colour_can_be_given(self):
        lines = plot.loss_curves(runs(), colors={"SSP (s=3)": "black"}).lines
        assert "black" in [line.get_color() for line in lines]

    def test_the_line_is_the_median_and_the_band_the_range(self):
        ax = plot.loss_curves(runs())
        time = ax.lines[0].get_xdata()
        np.testing.assert_allclose(ax.lines[0].get_ydata()[[0, -1]], [1, 1.1 * math.exp(-1)])
        assert (time[0], time[-1]) == (0, 10)
        band = ax.collections[0].get_paths()[0].vertices
        at_end = band[np.isclose(band[:, 0], 10), 1]
        assert (at_end.min(), at_end.max()) == pytest.approx((math.exp(-1), 1.2 * math.exp(-1)))
        narrow = plot.loss_curves(runs(), band="interquartile").collections[0].get_paths()[0].vertices
        assert np.ptp(narrow[np.isclose(narrow[:, 0], 10), 1]) == pytest.approx(0.1 * math.exp(-1))

    def test_diverged_seeds_are_counted_and_leave_the_scale_alone(self):
        ax = plot.loss_curves(runs(diverged=2), logy=True, target=0.5)
        texts = [text.get_text() for text in ax.get_legend().get_texts()]
        assert texts == ["BSP", "SSP (s=3) (2 of 3 diverged)", "target 0.5"]
        assert ax.get_ylim()[1] < 2
        ax = plot.loss_curves(runs(diverged=3), order=["SSP (s=3)"])
        assert "3 of 3" in ax.get_legend().get_texts()[0].get_text()

    def test_axes_scales_and_labels(self):
        ax = plot.loss_curves(runs(), logx=True, logy=True)
        assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("time (s)", "training loss")
        assert {"0.2", "0.5", "1"} <= {tick.get_text() for tick in ax.get_yticklabels(which="both")}

    def test_seeds_that_stop_early_keep_their_last_value(self):
        early = runs().query("method == 'BSP' and not (seed == 0 and time > 5)")
        assert plot.loss_curves(early).lines[0].get_xdata()[-1] == 10

    def test_values_other_than_names_can_be_told_apart(self):
        ax = plot.loss_curves(runs().assign(learning_rate=[0.1] * 63 + [0.2] * 63), hue="learning_rate")
        assert [text.get_text() for text in ax.get_legend().get_texts()] == ["0.1", "0.2"]
        assert ax.lines[0].get_color() != ax.lines[1].get_color()

    def test_a_curve_is_of_one_method_and_learning_rate(self):
        with pytest.raises(
            ValueError,
            match=r"learning_rate of BSP: expected one for each curve, got \[0.1, 0.2\]; try metrics.fair",
        ):
            plot.loss_curves(runs().assign(learning_rate=[0.1, 0.2] * 63))
        with pytest.raises(ValueError, match=r"method of 0\.1: expected"):
            plot.loss_curves(runs().assign(learning_rate=0.1), hue="learning_rate")

    def test_wrong_input(self):
        for wrong in ({"y": "accuracy"}, {"band": "deviation"}, {"order": ["ASP"]}):
            with pytest.raises(ValueError, match="expected"):
                plot.loss_curves(runs(), **wrong)


def title_of(ax):
    return " ".join(ax.get_title(loc="left").split("\n"))


class TestBars:
    def test_bars_add_up_to_the_run(self, traces):
        ax = plot.time_breakdown(traces)
        widths = np.array([[bar.get_width() for bar in container] for container in ax.containers])
        np.testing.assert_allclose(widths.sum(axis=0), 30)
        ax = plot.time_breakdown(traces, share=True)
        widths = np.array([[bar.get_width() for bar in container] for container in ax.containers])
        np.testing.assert_allclose(widths.sum(axis=0), 100)
        assert "%" in ax.get_xlabel()

    def test_the_title_says_how_much_computing_is_useful(self, traces):
        shares = {
            name: np.mean([metrics.time_breakdown(each)["compute_share"].mean() for each in group])
            for name, group in traces.items()
        }
        least, most = min(shares, key=shares.get), max(shares, key=shares.get)
        told = (
            f"Useful computing: {shares[least]:.0%} of the time with {least}, {shares[most]:.0%} with {most}"
        )
        ax = plot.time_breakdown(traces)
        assert title_of(ax) == told
        figure = ax.figure
        figure.canvas.draw()
        title, legend = ax._left_title.get_window_extent(), ax.get_legend().get_window_extent()
        assert title.y0 >= legend.y1, "above the legend"
        assert title.x1 <= figure.bbox.x1, "within the figure"
        alone = {"BSP": traces["BSP"]}
        waits = np.mean([metrics.time_breakdown(each)["wait_share"].mean() for each in traces["BSP"]])
        told = f"BSP: {shares['BSP']:.0%} of the time is useful computing, {waits:.0%} wait"
        assert title_of(plot.time_breakdown(alone)) == told
        same = {"mine": traces["BSP"], "yours": traces["BSP"]}
        told = f"Useful computing: {shares['BSP']:.0%} of the time with every method"
        assert title_of(plot.time_breakdown(same)) == told

    def test_histograms_are_scaled_to_their_peak(self, traces):
        for unit in ("versions", "clocks"):
            ax = plot.staleness({name: traces[name] for name in ("BSP", "ASP")}, unit=unit)
            for container in ax.containers:
                assert max(abs(bar.get_height()) for bar in container) == pytest.approx(0.85)
            assert len(ax.containers[0]) == 1  # all of BSP's reads are alike

    def test_wrong_input(self, traces):
        with pytest.raises(ValueError, match="unit"):
            plot.staleness(traces, unit="seconds")
        for empty in ({}, traces["BSP"]):
            with pytest.raises(ValueError, match="traces"):
                plot.time_breakdown(empty)


class TestSweep:
    data = pd.DataFrame(
        {
            "staleness": [0, 0, 0, 4, 4, 4] + [math.inf] * 3,
            "seconds": [5.0, 6, 7, 1, 2, 9, 3, math.inf, math.inf],
            "clocks_per_second": 1.0,
        }
    )

    def test_medians_spreads_and_infinity(self):
        ax = plot.sweep(self.data, "staleness", "seconds")
        assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0", "4", "∞"]
        line, _, bars = ax.containers[0]
        np.testing.assert_allclose(line.get_ydata(), [6, 2])
        assert [text.get_text() for text in ax.texts] == ["never"]
        assert len(bars[0].get_segments()) == 2

    def test_a_bar_that_reaches_infinity_says_so(self):
        data = self.data.assign(seconds=[5.0, 6, 7, 2, 3, math.inf] + [math.inf] * 3)
        ax = plot.sweep(data, "staleness", "seconds")
        large, small = (line for line in ax.lines if line.get_marker() == "^")
        assert (large.get_xdata().tolist(), small.get_xdata().tolist()) == ([2], [1])
        assert large.get_markersize() > small.get_markersize()
        assert small.get_ydata() == large.get_ydata() == ax.containers[0][2][0].get_segments()[1][1, 1]

    def test_bars_are_from_the_least_to_the_most(self):
        seconds = [1.0, *[5.0] * 20, 9.0]  # a 95% bootstrap interval of the median would be 5 to 5
        data = pd.DataFrame({"staleness": 0, "seconds": seconds})
        (bar,) = plot.sweep(data, "staleness", "seconds").containers[0][2][0].get_segments()
        np.testing.assert_allclose(bar[:, 1], [1, 9])
        with pytest.raises(ValueError, match="samples: expected"):
            plot.sweep(data.assign(seconds=math.nan), "staleness", "seconds")

    def test_problems_do_not_look_like_methods(self):
        data = self.data.assign(problem=["MF", "digits", "MF"] * 3)
        ax = plot.sweep(data, "staleness", "clocks_per_second", hue="problem")
        colors = {bars[0].get_color() for bars in ax.containers}
        assert len(colors) == 2
        assert not colors & {plot.METHOD_COLORS[name] for name in ("BSP", "SSP", "ESSP", "ASP")}

    def test_panels(self):
        axes = plot.sweep(self.data, "staleness", ["seconds", "clocks_per_second"])
        assert [ax.get_ylabel() for ax in axes] == ["seconds", "clocks per second and worker"]
        with pytest.raises(ValueError, match="ax"):
            plot.sweep(self.data, "staleness", ["seconds"], ax=axes[0])
        with pytest.raises(ValueError, match=r"^y: expected"):
            plot.sweep(self.data, "staleness", "loss")


class TestStyle:
    def test_a_method_keeps_its_colour(self):
        alone = {name: plot.palette([name])[name] for name in plot.METHOD_COLORS}
        assert alone == dict(plot.palette(plot.METHOD_COLORS)) == dict(plot.METHOD_COLORS)
        assert plot.palette(["mine", "SSP (s=8)"])["SSP (s=8)"] == plot.METHOD_COLORS["SSP"]

    def test_every_policy_has_a_colour_of_its_own_name(self):
        for name, policy in ALL_POLICIES.items():
            assert style.family(policy().name) in plot.METHOD_COLORS, name
        assert style.family("bspline") == "bspline"

    def test_methods_of_one_figure_look_different(self):
        names = ["BSP", "SSP (s=1)", "SSP (s=3)", "SSP (s=8)", "ESSP", "ASP", "mine", "yours"]
        colors, dashes = plot.palette(names), style.dashes(names)
        assert len({(colors[name], dashes[name]) for name in names}) == len(names)

    def test_every_function_draws_where_it_is_told_and_keeps_the_settings(self, traces):
        before = dict(mpl.rcParams)
        for draw in (
            lambda ax: plot.timeline(traces["BSP"][0], ax=ax),
            lambda ax: plot.loss_curves(runs(), ax=ax),
            lambda ax: plot.time_breakdown(traces, ax=ax),
            lambda ax: plot.staleness(traces, ax=ax),
            lambda ax: plot.sweep(TestSweep.data, "staleness", "seconds", ax=ax),
        ):
            _, ax = plt.subplots()
            assert draw(ax) is ax
            assert ax.get_xlabel()
            ax.figure.canvas.draw()
        assert dict(mpl.rcParams) == before

    @pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
    def test_the_same_picture_is_the_same_bytes(self, tmp_path, traces, suffix):
        written = [
            plot.save(plot.time_breakdown(traces), tmp_path / f"{i}.{suffix}").read_bytes() for i in range(2)
        ]
        assert written[0] == written[1]
        assert sorted(path.name for path in tmp_path.iterdir()) == [f"0.{suffix}", f"1.{suffix}"]

    def test_a_failed_save_leaves_the_old_file(self, tmp_path):
        path = tmp_path / "a.png"
        path.write_text("old")
        with pytest.raises(ValueError, match="suffix"):
            plot.save(plt.figure(), tmp_path / "a.gif")
        figure = plt.figure()
        figure.text(0, 0, r"$\broken$")
        with pytest.raises(ValueError, match="broken"):
            plot.save(figure, path)
        assert path.read_text() == "old"
        assert [each.name for each in tmp_path.iterdir()] == ["a.png"]


def test_a_run_is_told_from_its_parts():
    run = dml.train(dml.problems.linear_regression(), CLUSTER, asp(), optax.sgd(0.01), updates=4)
    with pytest.raises(ValueError, match=r"trace: expected .*such as run\.trace.*, got Run\("):
        plot.timeline(run)
    with pytest.raises(ValueError, match=r"runs: expected .*or run\.history.*, got Run\("):
        plot.loss_curves(run)

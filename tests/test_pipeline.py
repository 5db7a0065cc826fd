"""Recorded pipelines computed again: against published seconds, and against steps computed by hand."""

import numpy as np
import pandas as pd
import pytest
from real_data import needs

import dmlcore as dml
from dmlcore import data
from dmlcore.reading.pipeline import Pipeline

# From result-AR.json and result-SE.json of the authors' repository: step_t_nodelay of the embedded steps,
# blocking_decompose_by_stage and step_t_noblk.
PUBLISHED = {
    "AR": [45.8259354562033, 46.42447717115283, 46.59683734131977, 46.229680304415524],
    "SE": [8.809350110332161, 8.122966450555396, 9.209320576210303, 9.616775156868243],
}
BY_STAGE = {
    "AR": [1.9791886375936654, 0.9971124940932459, 0.9956041132082933, 1.0023690791892135],
    "SE": [1.1678121027453754, 1.4354480066634938],
}
IDEAL = {"AR": 23.484700209738318, "SE": 5.897478331588794}
BOTH = pytest.mark.parametrize("name", ["AR", "SE"])


def job(forward=(1.0, 2.0), send=0.25, sync=0.5, ranks=2, slow=1.0):
    """One step of two stages and two micro-batches; backward takes twice as long, and rank 0 `slow` times.

    Each rank computes stage 0: F0 F1 B0 B1, and stage 1: F0 B0 F1 B1.
    """
    rows = []
    for rank in range(ranks):
        factor = slow if rank == 0 else 1.0
        for stage in (0, 1):
            own = [("forward", 0), ("forward", 1), ("backward", 0), ("backward", 1)]
            own = own if stage == 0 else [own[0], own[2], own[1], own[3]]
            for place, (way, number) in enumerate(own):
                took = factor * forward[stage] * (2 if way == "backward" else 1)
                rows.append((rank, stage, f"{way}-compute", number, float(place), took))
                end = "send" if (way == "forward") == (stage == 0) else "recv"
                rows.append((rank, stage, f"{way}-{end}", number, place + 0.5, send))
            rows += [
                (rank, stage, "grads-reduce-scatter", 0, 9.0, sync),
                (rank, stage, "optimizer", 0, 10.0, 0.0),
            ]
    columns = ["dp_rank", "stage", "optype", "seq_id", "start_ts", "duration"]
    return pd.DataFrame(rows, columns=columns).assign(step=7)


@BOTH
def test_seconds_of_steps_are_the_published_ones(name):
    found = Pipeline(data.straggler_steps()[name])
    np.testing.assert_allclose(found.seconds(found.took), PUBLISHED[name], rtol=1e-6)


@needs("straggler_jobs")
@BOTH
def test_a_whole_job_has_the_published_ideal_and_slowdown_by_stage(name):
    frame = data.straggler_jobs()[name]
    found = Pipeline(frame)
    assert found.seconds(found.ideal) == pytest.approx(IDEAL[name], rel=1e-6)
    for stage, published in enumerate(BY_STAGE[name]):
        took = found.mixed(found.took, found.ideal, lambda each, stage=stage: each[2] == stage)
        assert found.slowdown(took) == pytest.approx(published, rel=1e-6)
    kept = data.straggler_steps()[name]
    few = frame[frame["step"].isin(kept["step"].unique())].reset_index(drop=True)
    pd.testing.assert_frame_equal(kept, few, check_categorical=False)
    pd.testing.assert_frame_equal(data.straggler_tasks()[name], found.tasks(), atol=1e-6, rtol=0)


@BOTH
def test_the_tasks_that_come_with_the_package_are_those_of_its_steps(name):
    found, kept = Pipeline(data.straggler_steps()[name]), data.straggler_tasks()[name]
    few = kept[kept["step"].isin(found.steps)]
    own, made = (each.eval("compute_end - compute_start").to_numpy() for each in (few, found.tasks()))
    np.testing.assert_allclose(own, made, atol=3e-6)
    assert dml.read_tasks(kept).doubted == ()


def test_a_step_by_hand():
    """Stage 1 waits for F0 of stage 0, and is busy from then on; B1 of stage 0 waits for its last result."""
    found = Pipeline(job())
    took = {each: np.full((1, 2), seconds) for each, seconds in _hand().items()}
    begin, end = found.times(took)
    assert begin["forward-compute", 0, 1][0].tolist() == [1.25, 1.25]
    assert end["backward-compute", 1, 1][0].tolist() == [13.25, 13.25]
    assert end["backward-compute", 1, 0][0].tolist() == [15.5, 15.5]
    assert found.seconds(took).tolist() == [16.0]


def _hand(forward=(1.0, 2.0), send=0.25, sync=0.5):
    times = {}
    for stage, seconds in enumerate(forward):
        for number in (0, 1):
            times |= {
                ("forward-compute", number, stage): seconds,
                ("backward-compute", number, stage): 2 * seconds,
            }
            ends = ("send", "recv") if stage == 0 else ("recv", "send")
            times |= {
                (f"{way}-{end}", number, stage): send
                for way, end in zip(("forward", "backward"), ends, strict=True)
            }
        times |= {("grads-reduce-scatter", 0, stage): sync, ("optimizer", 0, stage): 0.0}
    return times


def test_all_ranks_wait_for_a_slow_one():
    """They wait only before they exchange gradients, at the end: a step takes what its slow rank takes."""
    slow = Pipeline(job(send=0.0, slow=3.0))
    own = slow.tasks().eval("compute_end - compute_start").to_numpy()
    assert own[0] == pytest.approx(3 * own[1])
    assert slow.seconds(slow.took) == pytest.approx(own[0] + 0.5)
    assert [rank for rank, _ in slow.slowest(0.5)] == [0, 0]
    assert (
        slow.mended(lambda each: np.array([True, False]))
        > 0.9
        > 0.1
        > slow.mended(lambda each: np.array([False, True]))
    )


def test_equal_operations_are_ideal():
    found = Pipeline(job(forward=(1.0, 1.0)))
    assert found.slowdown(found.took) == pytest.approx(1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.drop(columns="seq_id"), "columns that include seq_id"),
        (lambda frame: frame.replace("optimizer", "adam"), "expected one of .*'optimizer'.*got 'adam'"),
        (
            lambda frame: frame.assign(seq_id=frame["seq_id"] + (frame["optype"] == "optimizer")),
            r"one optimizer in a step .no virtual stages., got optimizer 1",
        ),
        (lambda frame: frame.drop(index=3), "one in each of 1 steps of 2 ranks"),
        (lambda frame: pd.concat([frame, frame]), "one in each of 1 steps of 2 ranks, got 4 rows"),
        (lambda frame: frame.assign(duration=np.nan), "row 0, column duration: expected a finite number"),
        (lambda frame: frame[frame["optype"] != "backward-compute"], "a backward-compute of every stage"),
        (lambda frame: frame.assign(stage=frame["stage"] + 1), "every stage from 0 on"),
    ],
)
def test_what_is_no_such_job_is_refused(change, message):
    with pytest.raises(ValueError, match=rf"frame.*{message}"):
        Pipeline(change(job()))

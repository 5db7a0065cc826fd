# ruff: noqa: I001 - names of one module stand on one line
from dmlcore import engines as engines, problems as problems, theory as theory
from dmlcore.problems import shards as shards
from dmlcore.cluster import Cluster as Cluster, faults as faults, presets as presets
from dmlcore.engines import simulate as simulate
from dmlcore.experiments.comparison import compare as compare, sweep as sweep
from dmlcore.experiments.prediction import calibrate as calibrate, prediction_errors as prediction_errors
from dmlcore.experiments.recommendation import Recommendation as Recommendation
from dmlcore.experiments.recommendation import recommend as recommend
from dmlcore.experiments.study import Space as Space, Study as Study, space as space, study as study
from dmlcore.experiments.runs import Run as Run, replay as replay
from dmlcore.experiments.runs import replay_lanes as replay_lanes, train as train
from dmlcore.methods import aggregate as aggregate, codecs as codecs, loads as loads
from dmlcore.methods import policies as policies, transport as transport
from dmlcore.methods.local import local_steps as local_steps
from dmlcore.methods.policies.each import asp as asp, delay_adaptive as delay_adaptive, fedasync as fedasync
from dmlcore.methods.policies.each import ringmaster as ringmaster
from dmlcore.methods.policies.gated import bsp as bsp, dssp as dssp, essp as essp, ssp as ssp
from dmlcore.methods.policies.gated import sync_switch as sync_switch
from dmlcore.methods.policies.groups import a2s as a2s, adaptive_sync as adaptive_sync
from dmlcore.methods.policies.rounds import backup as backup, deadline as deadline, fedbuff as fedbuff
from dmlcore.methods.policies.rounds import k_async as k_async, k_batch_async as k_batch_async
from dmlcore.methods.policies.rounds import k_batch_sync as k_batch_sync, k_sync as k_sync
from dmlcore.methods.policies.rounds import k_sync_schedule as k_sync_schedule, n_softsync as n_softsync
from dmlcore.methods.policies.rounds import rennala as rennala, ringleader as ringleader
from dmlcore.methods.policies.sampling import sampled as sampled
from dmlcore.methods.policies.trials import mindflayer as mindflayer
from dmlcore.methods.policies.watching import adaptive_load as adaptive_load, adasync as adasync, dbw as dbw
from dmlcore.methods.policies.watching import pflug as pflug
from dmlcore.problems.problem import Problem as Problem
from dmlcore.reading import TaskLog as TaskLog, read_tasks as read_tasks
from dmlcore.reproduce import claims as claims
from dmlcore.trace import Trace as Trace, metrics as metrics, perfetto as perfetto
from dmlcore.trace.calibration import service_times as service_times
from dmlcore.trace.following import follow as follow
from dmlcore.training.pacing import schedule_in as schedule_in
from dmlcore.training.scaling import weigh_gradients as weigh_gradients
from dmlcore.types import LocalSteps as LocalSteps, Method as Method, Policy as Policy
from dmlcore.view import explorer as explorer, plot as plot
from dmlcore.view.explorer import Explorer as Explorer, explore as explore

__version__: str

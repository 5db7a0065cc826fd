"""Theory: what formulas say about a method, such as order statistics, error bounds and schedules."""

from dmlcore.theory.bound import Constants, decay, floor
from dmlcore.theory.parallelism import parallel_coordinates
from dmlcore.theory.queueing import mean_value_analysis
from dmlcore.theory.response import LAWS, Response, erlang, exponential, fit_response, shifted
from dmlcore.theory.rounds import kth_of, mean_round, round_speedup
from dmlcore.theory.schedule import Account, Phase, Schedule, fixed_schedule, greedy_schedule, switching_times
from dmlcore.theory.stale_synchronous import most_out_of_turn, regret_bound, regret_rates

__all__ = ["LAWS", "Account", "Constants", "Phase", "Response", "Schedule", "decay", "erlang", "exponential"]
__all__ += ["fit_response", "fixed_schedule", "floor", "greedy_schedule", "kth_of", "mean_round"]
__all__ += ["mean_value_analysis", "most_out_of_turn", "parallel_coordinates", "regret_bound", "regret_rates"]
__all__ += ["round_speedup", "shifted", "switching_times"]

"""Comparison of all methods: the finding of each claim, written after the run."""

from dmlcore.reproduce.summary import Answer, Summary

SUMMARY = Summary(
    (
        Answer(
            "W1: BSP is hard to beat where machines are equal",
            "No: K-sync with a quarter of the workers and adaptive load take 0.65 of its time "
            "(straggling 1.4, c = 0.12, no server load).",
            "This target is modest and needs fewer gradients than BSP computes.",
        ),
        Answer(
            "W2: where workers are slow, waiting for none beats waiting for all",
            "Yes, on both clusters and every seed: the asynchronous method that tuning chose is 1.3 "
            "times (uneven speeds) and 1.4 times (slow episodes) as fast as the fastest method that "
            "waits for all workers. K-sync, which waits for some, is faster still: it takes 0.51 and "
            "0.45 of BSP's time.",
            "Asynchronous methods have no barrier. A load rule adapts to a slow episode only after it "
            "has begun.",
        ),
        Answer(
            "W3: where links or the server are the bottleneck, sending less beats every rule on which "
            "workers to wait for",
            "Yes. On slow links (c = 4) H-PS takes 0.33 of BSP's time and quantization 0.44. On a server "
            "that is saturated by messages (load 4) asynchronous local SGD takes 0.26 and local SGD "
            "0.34.",
            "Fewer bytes relieve a link. Fewer messages relieve a server that takes time for each message.",
        ),
        Answer(
            "W4: where the server is saturated, SSP beats ASP",
            "No: at a load of 4 they are level, and both are slower than BSP (1.2 times its time).",
            "SSP saves reads, but its pushes are staler, and they load the server as much as the saved "
            "reads would.",
        ),
        Answer(
            "W5: choosing k and the load during training beats a fixed k",
            "Nowhere on every seed. Where computing takes the time it is a tie. A tuned fixed k is "
            "faster on slow links (0.97 of BSP's time, adaptive load 1.15) and on the saturated server "
            "(1.03, adaptive load 1.28).",
            "Adaptive load makes small updates early in the run, and these cost messages.",
        ),
        Answer(
            "W6: what is fastest on one problem is faster than BSP on another",
            "Partly, among the methods that run on both problems: yes on slow links (0.45) and on the "
            "saturated server (0.49). With slow episodes K-sync is level (0.96), and with another k.",
            "The number of gradients that an update needs depends on the problem: the best k is 2 on "
            "digits and 6 on matrix factorization.",
        ),
    ),
    choice="Slow links: BSP with 8 bits, which is never slower than BSP here, or H-PS, which was not "
    "tried on matrix factorization. A server that is saturated by messages: asynchronous local "
    "SGD, or local SGD if all workers must stay in step. Workers that are slow or have slow "
    "episodes: K-sync with a tuned k. Equal machines: K-sync with a tuned k. Try another "
    "optimizer as well: on digits BSP with AdamW takes a third of the time that it takes with "
    "SGD. No cluster here lies between c = 0.12 and 4, or between server loads of 0 and 4, or "
    "combines two kinds of trouble: notebooks 01, 02 and 04 have maps, and `dml.recommend` "
    "measures your own cluster.",
)

FINDINGS = {
    "W1": (
        "The advice does not hold here: BSP is beaten even where machines are equal. Its rival, adaptive "
        "load, begins with few workers and few samples, and K-sync with a quarter of the workers ties "
        "with that rival. Most of what they save is not waiting: they save gradients that this modest "
        "target does not need."
    ),
    "W2": (
        "The advice holds: where workers are slow, a method that waits for no worker is faster on every "
        "seed than the best method that waits for all. A load rule, alone or in H-PS, has a part of this "
        "gain: it evens out speeds that last, but slow episodes only after they have begun."
    ),
    "W3": (
        "The advice holds: where links or the server are the bottleneck, sending less helps more than "
        "any rule on which workers to wait for. On slow links fewer bytes or fewer messages help, most "
        "of all in H-PS, whose pipeline also hides transfers behind computing. The saturated server "
        "takes time for every message, whatever its bytes, so local steps help most there, and H-PS, "
        "whose gradients are a round late, is slower than BSP; in notebook 04 the server's link is "
        "saturated instead, which fewer bytes relieve."
    ),
    "W4": (
        "The advice does not hold here: with the smallest s, SSP and ASP are level, because SSP saves "
        "reads, but its pushes are staler and load the server as much as the saved reads would. Notebook "
        "01 maps where SSP overtakes ASP: at a load of about 1 if pushes are cheap, and at about 3.4 if "
        "a push costs as much as a pull, as it does here (S9-dear of notebook 01, at full scale, on 16 "
        "workers with more jitter and at a small s). The load of this cluster, 4, is close to that."
    ),
    "W5": (
        "The advice does not hold here. Where computing takes the time it is a tie: K-sync with a "
        "quarter of the workers is as fast as adaptive load, and each is ahead on some seeds. Where "
        "messages take the time, adaptive load loses by its small early updates, and a fixed k with "
        "whole mini-batches is faster."
    ),
    "W6": (
        "Quantization and local steps, the fastest on digits of the methods that run on both problems, "
        "are faster than BSP on matrix factorization on every seed. With slow episodes K-sync, the "
        "choice on digits, is level with BSP, and only because k is tuned again: it is 6 there and 2 on "
        "digits. Adaptive load, which ties with K-sync on digits, takes 3.8 times as long as BSP there."
    ),
}

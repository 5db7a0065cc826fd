"""All methods side by side: what was found, by claim; written after the run."""

from dmlcore.reproduce.summary import Answer, Summary

SUMMARY = Summary(
    (
        Answer(
            "W1: BSP is hard to beat where machines are equal",
            "No: K-sync with a quarter of the workers and adaptive load take 0.65 of its time (straggling "
            "1.4, c = 0.12, no server load).",
            "This modest target needs fewer gradients than BSP makes.",
        ),
        Answer(
            "W2: where workers are slow, waiting for none beats waiting for all",
            "Yes, on both clusters and every seed: the asynchronous method that tuning chose is 1.3 times "
            "(uneven speeds) and 1.4 times (slow episodes) as fast as the fastest method that waits for "
            "all. K-sync, which waits for some, is faster still: it takes 0.51 and 0.45 of BSP's time.",
            "There is no barrier; a load rule follows a slow episode only after it has begun.",
        ),
        Answer(
            "W3: where links or the server are what is waited for, sending less beats every rule on whom "
            "to wait for",
            "Yes: on slow links (c = 4) H-PS takes 0.34 of BSP's time and quantization 0.44; on a server "
            "saturated by messages (load 4) asynchronous local SGD takes 0.26 and local SGD 0.34.",
            "Fewer bytes relieve a link, fewer messages a server that takes time for each.",
        ),
        Answer(
            "W4: where the server is saturated, SSP beats ASP",
            "No: they are level at a load of 4, and both slower than BSP (1.2 times).",
            "SSP saves reads, but its pushes are staler, and they load the server as much as the saved reads "
            "would.",
        ),
        Answer(
            "W5: to choose k and the load while training beats a fixed k",
            "Nowhere on every seed: a tie where computing takes the time, behind a tuned k on slow links "
            "(1.15 to 0.97) and the saturated server (1.28 to 1.03).",
            "The small early updates of adaptive load cost messages.",
        ),
        Answer(
            "W6: what is fastest on one problem is faster than BSP on another",
            "Partly, of the methods that run on both: on slow links (0.45) and the saturated server "
            "(0.49); with slow episodes K-sync is level (0.96), with another k.",
            "How many gradients an update needs depends on the problem: k is 2 on digits and 6 on matrix "
            "factorization.",
        ),
    ),
    choice="Slow links: BSP with 8 bits, which is never slower than BSP here, or H-PS, which was not tried "
    "on matrix factorization. A server saturated by messages: asynchronous local SGD, or local SGD where "
    "all must be in step. Workers that are slow or have slow episodes: K-sync with k tuned. Equal "
    "machines: K-sync with k tuned. Try the optimizer as well: on digits BSP with AdamW takes a third of "
    "the time that it takes with SGD. No cluster here lies between c = 0.12 and 4 or between server loads "
    "of 0 and 4, or has two troubles: notebooks 01, 02 and 04 have maps, and `dml.recommend` measures your "
    "own.",
)

FINDINGS = {
    "W1": (
        "BSP is not hard to beat even where machines are even. Its rival here, adaptive load, begins with "
        "few workers and few samples, and K-sync with a quarter of the workers ties with it: they save "
        "gradients that this modest target does not need, more than they save waiting."
    ),
    "W2": (
        "Where workers are slow, a method that waits for none is faster on every seed than the best of those "
        "that wait for all. A load rule, alone or in H-PS, gains a part of it: it evens out speeds that "
        "last, and slow episodes only after they have begun."
    ),
    "W3": (
        "Where links or the server are what is waited for, sending less helps more than any rule on "
        "which workers to wait for: on slow links fewer bytes or fewer messages, most of all in H-PS, "
        "whose pipeline hides computing, too. The saturated server takes time for every message, "
        "whatever its bytes, so that local steps help most there, and H-PS, whose gradients are a round"
        " late, is slower than BSP. In notebook 04 it is the server's link that is saturated, which "
        "fewer bytes relieve."
    ),
    "W4": (
        "With the smallest s, SSP and ASP are level: SSP saves reads, but its pushes are staler, and load "
        "the server as much as the reads that it saves. Notebook 01 has a map of where SSP overtakes: at a "
        "load of about 1 where pushes are cheap, and at full scale, on 16 workers with more jitter and at "
        "a small s, at about 3.4 with pushes as dear as here (S9-dear "
        "of notebook 01); the load here, 4, is near that."
    ),
    "W5": (
        "Where computing is what takes the time, it is a tie: K-sync with a quarter of the workers is as "
        "fast as adaptive load, each ahead on some seeds. Where messages are what takes the time, its small "
        "early updates are what loses: a fixed k with whole mini-batches is faster."
    ),
    "W6": (
        "Quantization and local steps, fastest on digits of the methods run on both, carry over to "
        "matrix factorization on every seed. With slow episodes K-sync, the choice on digits, is level "
        "with BSP, and only because k is tuned again: 6 there, 2 on digits. Adaptive load, which ties "
        "with it on digits, takes 3.8 times as long as BSP."
    ),
}

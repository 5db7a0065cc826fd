"""What was found, by claim of DBS-SGD; written after the run."""

FINDINGS = {
    "D1": (
        "The paper reports 60% less loss on MNIST. After five epochs at one rate DBS-SGD has 1.4 times "
        "the loss of ASGD, the same as n-softsync, and 38% less than n-softsync with rates by age. Only"
        " that rival loses by much, because so small a rate, divided by the staleness, hardly moves it."
    ),
    "D1-lower": (
        "On MNIST, at one rate, the loss is lower than that of n-softsync with rates by age on every "
        "seed; against n-softsync seeds disagree, and ASGD has the lower loss on four of five. "
        "n-softsync takes the mean of two pushes for a step of the same rate; at twice the rate its "
        "loss is the lower one."
    ),
    "D1-fair": (
        "With each method at its best rate ASGD has the lower loss on MNIST on every seed, because it "
        "tolerates twice the rate of DBS-SGD. Against both kinds of n-softsync seeds disagree."
    ),
    "D2": (
        "The paper reports about 10% more accuracy on CIFAR-10. After five epochs at one rate DBS-SGD "
        "is 3 points below ASGD and half a point below n-softsync. It is 4 points above n-softsync with"
        " rates by age, whose steps are too small there."
    ),
    "D2-relative": (
        "Read as a ratio, the accuracy on CIFAR-10 is 8% above that of n-softsync with rates by age in "
        "the median, and below those of ASGD and n-softsync."
    ),
    "D2-fair": (
        "With each method at its best rate DBS-SGD is 1 to 3 points below its rivals on CIFAR-10, in "
        "the medians; it is above n-softsync on one seed."
    ),
    "D2-loss": (
        "The paper reports 10% less loss on CIFAR-10. At one rate it is 10% less than that of "
        "n-softsync with rates by age in the median; it equals that of n-softsync, and is 9% more than "
        "that of ASGD."
    ),
    "D3": (
        "As the paper says, the speed-up is not lower: no worker waits, and larger batches on fast workers "
        "need fewer transfers. It would be lower if the fast workers sat beside the server and the slow "
        "ones on slow links."
    ),
    "D3-model": (
        "The gain over BSP, 1.5x to 4.1x, is within 1% of the closed form where speeds are steady and "
        "batches free, and within 2% with at most 64 samples. With slow episodes it is 5% to 15% less "
        "than predicted, because batches follow a change some tasks late."
    ),
    "D4": (
        "As the paper says, the curve is close to the synchronous one: on MNIST on every seed, on "
        "CIFAR-10 on four of five, about as close as BSP is on another seed. Tuned rivals are about as "
        "close, too."
    ),
    "D4-closer": (
        "In the median the curve is closer to that of BSP than the curve of ASGD, but not on every "
        "seed: seeds of BSP differ by as much."
    ),
    "D5-nodes": (
        "As the paper says, the nodes' average staleness falls: by 3% on speeds of 1 to 1.5, by a quarter "
        "on 1 to 4 and by half on 1 to 10. On even speeds there is nothing to lower."
    ),
    "D5-model": (
        "Each steady profile falls by what its mean iteration times predict, within 1.3%, as long as "
        "batches may be as large as they should. At full scale none exceeds 64 samples, so on speeds of"
        " 1 to 10 the fastest workers stay ahead, and the fall is 6% less. With slow episodes one seed "
        "of five is above the 3% allowed."
    ),
    "D5-gradients": (
        "Over gradients the mean staleness is P - 1 whatever the batches, as the closed form t R - 1 says. "
        "The paper's average must be one over nodes, and it is gradients that move the parameters."
    ),
    "D5-samples": (
        "The mean over samples hardly changes where batches are free; with slow episodes one seed of "
        "five is a little above the range. At full scale no batch exceeds 64 samples: the fastest "
        "workers then push fresher gradients, and the mean falls by 15% on speeds of 1 to 10."
    ),
    "D5-maximum": (
        "The more uneven the speeds, the more the largest staleness falls; on speeds of 1 to 1.5 it does not "
        "on every seed."
    ),
    "D6-limit": (
        "ASGD mixes many fresh gradients with a few old ones, DBS-SGD makes all equally old at the same"
        " mean. On a parabola the mixture tolerates 1.6 times the step on speeds of 1 to 4, and more "
        "than twice the step on 1 to 10."
    ),
    "D6-ratio": (
        "On digits DBS-SGD has 0.8 to 1 times the loss of a tuned ASGD at equal speeds, and 1.4 to 2 times "
        "at speeds of 1 to 10. With momentum at a constant rate one seed of five is below the range."
    ),
    "D6-shared": (
        "At the rate that suits DBS-SGD both have about the same loss at every ratio of speeds, with or "
        "without momentum and rate decay: the staleness of nodes that the method lowers is not what costs "
        "ASGD."
    ),
    "D6-bsp": (
        "Without momentum DBS-SGD reaches the loss about twice and three times as fast as BSP, which "
        "waits. With momentum BSP needs far fewer samples, and DBS-SGD is ahead on speeds of 1 to 10 "
        "alone."
    ),
}

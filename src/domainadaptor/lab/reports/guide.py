"""What a reader must know of every table: how to read it, and its names."""

HOW_TO_READ = (
    "“The paper” is *DomainAdaptor: A Novel Approach to Test-time Adaptation* (Zhang, Qi, Shi and Gao, ICCV 2023). "
    "Numbers are accuracies in percent unless a table says otherwise, mean ± standard deviation (of the population) "
    "over seeds, computed from counts of right answers. The best of a column is **bold**. “Untouched” is the network "
    "as it was trained; the paper's numbers stand beside or below ours, with the difference ours minus paper. Below "
    "each table, *How it was obtained* has the settings and the commands that repeat it; they look for data where the "
    "environment variable `DOMAINADAPTOR_DATA` or `--root` says."
)
NAMES = (
    "EM: entropy minimization, the loss of Tent. SLR: soft likelihood ratio. GEM: the paper's generalized entropy "
    "minimization, by temperature (-T), self-knowledge distillation (-SKD) or augmented views (-Aug). AdaMixBN: the "
    "paper's mixture of source and test statistics, weighed by alpha, the weight of the source. DeepAll, ERM: plain "
    "training on all sources. MLDG, FSDCL, MVRML, ARM: other algorithms of training. SWAD: weights averaged over a "
    "flat stretch of training. Transformation, folded: what source statistics do to a feature is put into scale and "
    "shift before the step. Online: it learns on from batch to batch. ECE: expected calibration error."
)

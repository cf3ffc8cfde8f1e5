"""Types of options that many methods share, each with its bounds and documentation; free of torch.

A method's signature names these aliases. Plain ones (`Share`, `Count` ...) have bounds alone: the method's docstring
says what the option does. `None` as a value is part of the alias where it is allowed.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from domainadaptor.options import Option

FLOAT32_MAX = 3.4e38  # torch refuses a larger step without an explanation
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

# Bounds alone.
Count = Annotated[int, Option(ge=1)]
NonNegative = Annotated[float, Option(ge=0)]
Positive = Annotated[float, Option(gt=0)]
Share = Annotated[float, Option(ge=0, le=1)]

# Gradient steps.
LearningRate = Annotated[float, Option("Learning rate.", ge=0, le=FLOAT32_MAX)]
Optimizer = Annotated[Literal["sgd", "adam"], Option("Optimizer.")]
Momentum = Annotated[float, Option("SGD momentum, or Adam's beta1.", ge=0, le=0.9999)]
SgdMomentum = Annotated[float, Option("SGD momentum.", ge=0, le=1)]
Steps = Annotated[int, Option("Gradient steps per batch.", ge=1)]
StepsOrZero = Annotated[int, Option("Gradient steps per batch.", ge=0)]
Loss = Literal["entropy", "slr", "gem-t", "gem-skd", "gem-aug"]
Learns = Literal["norms", "all"]
Threshold = Annotated[
    float | None,
    Option("Learn only from images whose confidence in the first pass exceeds this; None: from all.", ge=0, le=1),
]
AdaptFrom = Annotated[
    float, Option("Fraction of the norm layers, from the first one, that do not learn, to save time.", ge=0, le=1)
]
Reuse = Annotated[
    bool, Option("Let batches of one domain in a row reuse what the first two taught, as their pixels tell.")
]
Skip = Annotated[
    str | Sequence[str] | None,
    Option(
        'Layers that do not learn, as "layer4,norm"; "" skips none; None skips the last stage: `layer4` of a ResNet, '
        "the last quarter of a transformer's blocks and its last norm.",
        expects="names of layers, as 'layer4,norm'",
    ),
]

# Which images are learned from.
EntropyMargin = Annotated[
    float, Option("Keep images whose entropy is below this times log(number of classes).", ge=0, le=1)
]
CosineLimit = Annotated[
    float | None,
    Option(
        "Keep images whose prediction has a cosine similarity below this with the average of those kept before; None "
        "derives it from the number of classes: 0.4 for 10, 0.05 for 1000.",
        ge=0,
        le=1,
    ),
]

# When a method forgets, and when it predicts.
ResetEvery = Annotated[
    int | None, Option("Reset to the source model after this many batches: 1 is episodic, None never resets.", ge=1)
]
Online = Annotated[
    bool,
    Option(
        "Keep what the norm layers learned for the next batch; False starts each batch from the source model and keeps "
        "only the optimizer's state."
    ),
]
Predict = Annotated[
    Literal["after", "before"],
    Option('"before" the gradient step as published, or "after" it with one more forward pass.'),
]

# Norm layers.
Variance = Annotated[
    Literal["unbiased", "biased"], Option("Estimator of the batch variance; BatchNorm normalizes with the biased one.")
]
Alpha = Annotated[
    Literal["code", "paper", "code-reversed", "paper-reversed", "shift"] | float,
    Option(
        'Weight of the source statistics: "code" (rule of the authors\' program), "paper" (printed rule), either one '
        'reversed, "shift" (rule of `auto`), or a fixed number.',
        ge=0,
        le=1,
    ),
]
M = Annotated[float, Option("Weight of the new batch in the running statistics: 1 uses the batch alone.", ge=0, le=1)]
Statistics = Annotated[
    Literal["source", "batch"], Option("Statistics of the norm layers: of the source model or of the batch.")
]
BankShare = Annotated[float, Option("Weight of the bank in the running statistics at each update.", ge=0, le=1)]

# Generalized entropy (GEM).
Temperature = Annotated[
    Literal["code", "per_image", "batch_mean"] | float,
    Option(
        'Temperature of the GEM losses: "code" (the authors\' program), "per_image", "batch_mean" (the paper), or a '
        "number.",
        gt=0,
    ),
]
Scale = Annotated[float, Option("The GEM temperature is this times the standard deviation of an image's logits.", gt=0)]
Views = Annotated[int, Option('Random views of each image for "gem-aug".', ge=1)]

# Inputs besides the network.
Seed = Annotated[int, Option("Random seed; the same batch always gets the same draws.", ge=0)]
PerChannel = str | float | Sequence[float]
_NUMBERS = "numbers, as 0.485,0.456,0.406, or one number"
Mean = Annotated[
    PerChannel,
    Option(
        "Per-channel mean that the images were normalized with; augmentation works on pixels in [0, 1].",
        expects=_NUMBERS,
    ),
]
Std = Annotated[
    PerChannel, Option("Per-channel standard deviation that the images were normalized with.", expects=_NUMBERS)
]
Head = Annotated[str | None, Option("Name of the linear layer that computes the logits; None: the last one.")]
Images = Annotated[Iterable[Any] | None, Option("Images without labels: a tensor, or an iterable of batches.")]
TrainedTensors = Annotated[Any, Option("Head trained together with the network, or its tensors.")]
Capacity = Annotated[int, Option("Number of images in the bank.", ge=1)]
UpdateEvery = Annotated[int, Option("Take a gradient step on the bank after this many images.", ge=1)]


def gradient_steps(
    *,
    lr: LearningRate = 2.5e-4,
    optimizer: Optimizer = "sgd",
    momentum: Momentum = 0.9,
    steps: Steps = 1,
    reset_every: ResetEvery = None,
    predict: Predict = "before",
) -> None:
    """Options of methods that take gradient steps on every batch, for `@method(options=...)`."""

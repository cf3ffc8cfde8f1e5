"""Data sets, one file each: a function from a root folder to a DomainDataset; the folder is the registry.

Here are the types of the options that several of them share.
"""

from typing import Annotated

from domainadaptor.options import Option

Severity = Annotated[
    int,
    Option("Severity of the corruptions, from 1 (mildest) to 5.", ge=1, le=5, expects="a whole number from 1 to 5"),
]
SplitSeed = Annotated[
    int, Option("Random seed of the split into training and validation images, where none is published.", ge=0)
]
NoiseSeed = Annotated[int, Option("Random seed of the corruptions, where they are computed here.", ge=0)]

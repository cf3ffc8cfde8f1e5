"""Test-time adaptation: make a trained image classifier work on data it was never trained for.

Names are imported when they are first used: `import domainadaptor`, `list_methods()` and `method_info()` do not load
torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from domainadaptor.catalog import MethodInfo as MethodInfo
from domainadaptor.catalog import list_methods as list_methods
from domainadaptor.catalog import method as method
from domainadaptor.catalog import method_info as method_info
from domainadaptor.catalog import variant as variant
from domainadaptor.errors import AdaptationError as AdaptationError
from domainadaptor.errors import AdaptationWarning as AdaptationWarning
from domainadaptor.errors import BadBatch as BadBatch
from domainadaptor.errors import BadFile as BadFile
from domainadaptor.errors import BadOption as BadOption
from domainadaptor.errors import SourceChanged as SourceChanged
from domainadaptor.errors import UnsupportedNetwork as UnsupportedNetwork
from domainadaptor.options import Option as Option

if TYPE_CHECKING:
    from domainadaptor.adaptation.adapt import adapt as adapt
    from domainadaptor.adaptation.adaptive_network import AdaptiveNetwork as AdaptiveNetwork
    from domainadaptor.adaptation.adaptor import Adaptor as Adaptor
    from domainadaptor.adaptation.batch import predict as predict
    from domainadaptor.adaptation.calibrate import Calibration as Calibration
    from domainadaptor.adaptation.calibrate import calibrate as calibrate
    from domainadaptor.adaptation.diagnose import diagnose as diagnose
    from domainadaptor.adaptation.diagnosis import Diagnosis as Diagnosis
    from domainadaptor.adaptation.ema import EmaPrediction as EmaPrediction
    from domainadaptor.adaptation.ema import update_ema as update_ema
    from domainadaptor.adaptation.guard import CollapseGuard as CollapseGuard
    from domainadaptor.adaptation.logits import OutputReader as OutputReader
    from domainadaptor.adaptation.logits import finite as finite
    from domainadaptor.adaptation.logits import in_loss_precision as in_loss_precision
    from domainadaptor.adaptation.logits import rows as rows
    from domainadaptor.adaptation.losses import entropy as entropy
    from domainadaptor.adaptation.objective import LogitLoss as LogitLoss
    from domainadaptor.adaptation.objective import Objective as Objective
    from domainadaptor.adaptation.predictor import Predictor as Predictor
    from domainadaptor.adaptation.result import Adaptation as Adaptation
    from domainadaptor.adaptation.single_forward import single_forward as single_forward
    from domainadaptor.adaptation.state import LazyOptimizer as LazyOptimizer
    from domainadaptor.adaptation.state import SeededGenerator as SeededGenerator
    from domainadaptor.adaptation.state import Stateful as Stateful
    from domainadaptor.adaptation.state import make_optimizer as make_optimizer
    from domainadaptor.adaptation.step import StepAdaptor as StepAdaptor
    from domainadaptor.adaptation.step import gradient_step as gradient_step
    from domainadaptor.augmentation.crops import random_views as random_views
    from domainadaptor.lab.evaluation.evaluate import evaluate as evaluate
    from domainadaptor.norms.mixed import MixedNorm as MixedNorm
    from domainadaptor.norms.mixed import batch_only as batch_only

__version__ = "0.1.0"

_HOMES = {
    "adaptation.adapt": ("adapt",),
    "adaptation.adaptive_network": ("AdaptiveNetwork",),
    "adaptation.adaptor": ("Adaptor",),
    "adaptation.batch": ("predict",),
    "adaptation.calibrate": ("Calibration", "calibrate"),
    "adaptation.diagnose": ("diagnose",),
    "adaptation.diagnosis": ("Diagnosis",),
    "adaptation.ema": ("EmaPrediction", "update_ema"),
    "adaptation.guard": ("CollapseGuard",),
    "adaptation.logits": ("OutputReader", "finite", "in_loss_precision", "rows"),
    "adaptation.losses": ("entropy",),
    "adaptation.objective": ("LogitLoss", "Objective"),
    "adaptation.predictor": ("Predictor",),
    "adaptation.result": ("Adaptation",),
    "adaptation.single_forward": ("single_forward",),
    "adaptation.state": ("LazyOptimizer", "SeededGenerator", "Stateful", "make_optimizer"),
    "adaptation.step": ("StepAdaptor", "gradient_step"),
    "augmentation.crops": ("random_views",),
    "lab.evaluation.evaluate": ("evaluate",),
    "norms.mixed": ("MixedNorm", "batch_only"),
}
_LAZY = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AdaptationError",
    "AdaptationWarning",
    "BadBatch",
    "BadFile",
    "BadOption",
    "MethodInfo",
    "Option",
    "SourceChanged",
    "UnsupportedNetwork",
    "__version__",
    "list_methods",
    "method",
    "method_info",
    "option_types",
    "variant",
    *(name for name, module in _LAZY.items() if not module.startswith("lab.")),  # `import *` needs torch alone
]


if not TYPE_CHECKING:  # type checkers must not accept every name

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_LAZY})

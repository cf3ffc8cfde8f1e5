"""Optional packages: what each extra of the distribution brings, and the message when one is missing."""

from importlib.util import find_spec

from domainadaptor.errors import MissingExtra

__all__ = ["require_extra"]

_LAB = (
    *("jinja2", "markdown_it", "matplotlib", "numpy", "pandas", "PIL", "platformdirs", "psutil", "pydantic"),
    *("safetensors", "sklearn", "timm", "torchvision", "tqdm"),
)
_CLI = (*_LAB, "rich", "typer")
_SERVE = (*_CLI, "fastapi", "prometheus_client", "pydantic_settings", "python_multipart", "uvicorn")
_PAGE = (*_CLI, "starlette", "uvicorn")
_ONNX = (*_CLI, "onnx", "onnxruntime", "onnxscript")
_RAY = (*_CLI, "pyarrow", "ray")
_PACKAGES = {  # as in pyproject.toml
    **{"lab": _LAB, "cli": _CLI, "serve": _SERVE, "page": _PAGE},
    **{"hf": ("transformers",), "onnx": _ONNX, "ray": _RAY},
}


def require_extra(extra: str, what: str) -> None:
    """Check that the packages of an extra are installed, without importing them.

    Args:
        extra: "lab", "cli", "serve", "page", "onnx", "ray" or "hf".
        what: What needs them; the subject of the message.

    Raises:
        MissingExtra: At least one is not installed; the message has the command that installs all.
    """
    missing = [name for name in _PACKAGES[extra] if not _is_installed(name)]
    if missing:
        raise MissingExtra(
            f"{what} needs extra packages: pip install 'domainadaptor[{extra}]' (missing: {', '.join(missing)})"
        )


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):  # an import hook refuses it, or it is set to None
        return False

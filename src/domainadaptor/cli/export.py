"""`domainadaptor export`: a network that adapts to each batch, as an ONNX file."""

from pathlib import Path
from typing import Annotated

from domainadaptor.catalog import DEFAULT_METHOD
from domainadaptor.cli import options, terminal
from domainadaptor.cli.help import option
from domainadaptor.errors import BadFile, BadOption

EXAMPLES = "domainadaptor export checkpoint.safetensors --method adamixbn --output my.onnx"


def export(
    network: terminal.Network,
    weights: terminal.Weights = None,
    classes: terminal.Classes = None,
    size: terminal.Size = None,
    resize: options.Resize = None,
    crop_pct: options.CropPct = None,
    mean: options.Mean = None,
    std: options.Std = None,
    root: terminal.Root = None,
    method: terminal.Method = DEFAULT_METHOD,
    method_option: options.MethodOptions = None,
    output: Annotated[Path, option("FILE", "The ONNX file to write.")] = Path("model.onnx"),
    as_json: terminal.Json = False,
) -> None:
    """Write a network as an ONNX file that adapts to each batch.

    The methods are auto (one forward pass), adabn, adamixbn and source, the network itself. The file takes any number
    of images, holds its weights, classes and preprocessing, and is checked in onnxruntime before it gets its name.
    """
    from domainadaptor.lab.export.write import CHECKED, OPSET, export_onnx
    from domainadaptor.lab.networks.inputs import InputOptions, read_classes
    from domainadaptor.lab.networks.loading import load_network

    if output.suffix != ".onnx":
        raise BadOption(f"--output {str(output)!r}: expected the name of an .onnx file")
    if not output.absolute().parent.is_dir():
        raise BadFile(f"No folder for --output {str(output)!r}; create it first")
    typed = options.parse_method_options(method, method_option)
    terminal.check_weights(network, weights)
    names = () if classes is None else tuple(read_classes(classes))
    loaded = load_network(network, weights, InputOptions(resize, size, mean, std, names, crop_pct=crop_pct), root)
    with terminal.progress_bar(total=1 + len(CHECKED), what="export") as bar:
        error = export_onnx(loaded, output, method, typed, bar.step)
    if as_json:
        fields = {"network": loaded.name, "method": method, "opset": OPSET, "notes": loaded.notes}
        terminal.print_json({"output": str(output), **fields, "relative_error": error, "checked": CHECKED})
        return
    megabytes = output.stat().st_size / 1e6
    terminal.print_text(f"{output}: {loaded.name} with {method}, opset {OPSET}, {megabytes:.1f} MB")
    terminal.print_text(
        f"Checked in onnxruntime with batches of {', '.join(map(str, CHECKED))} images: relative error {error:.0e}."
    )
    terminal.print_text(f"Preprocessing: {loaded.preprocessing_sentence()}.")
    terminal.show_notes(loaded.notes)
    terminal.print_text(f"Try it: domainadaptor predict {output} IMAGES")

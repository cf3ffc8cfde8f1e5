"""`domainadaptor check`: which layers of a network adapt, and whether wrapping it is neutral."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from rich.table import Table

from domainadaptor.catalog import DEFAULT_METHOD
from domainadaptor.cli import terminal
from domainadaptor.cli.options import MethodOptions, parse_method_options

if TYPE_CHECKING:  # it takes seconds to import
    from domainadaptor.adaptation.adaptive_network import LayerReport

EXAMPLES = r"""
domainadaptor check resnet50
domainadaptor check checkpoint.safetensors --method tent
"""


def check(
    network: terminal.Network,
    weights: terminal.Weights = None,
    root: terminal.Root = None,
    method: terminal.Method = DEFAULT_METHOD,
    option: MethodOptions = None,
    size: terminal.Size = None,
    device: terminal.Device = "auto",
    batch_size: terminal.BatchSize = 4,
    seed: terminal.Seed = 0,
    as_json: terminal.Json = False,
) -> None:
    """Show which layers of a network adapt, and why others do not.

    Also checks on random images that wrapping the network is neutral: without a step, its predictions stay the same.
    """
    import torch

    import domainadaptor
    from domainadaptor.lab.method_inputs import options_from
    from domainadaptor.lab.networks.inputs import InputOptions
    from domainadaptor.lab.networks.loading import load_network
    from domainadaptor.lab.networks.neutrality import TOLERANCE, neutrality_error

    chosen = parse_method_options(method, option)
    own = terminal.find_device(device)
    loaded = load_network(network, weights, InputOptions(size=size), root, seed)
    built = loaded.network.to(own)
    shape = (batch_size, 3, loaded.preprocessing.size, loaded.preprocessing.size)
    images = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(own)
    # The same images serve as source and target images: which layers adapt does not depend on them.
    inputs = options_from(
        method, heads=loaded.heads, preprocessing=loaded.preprocessing, source_images=images, target_images=images
    )
    adaptor = domainadaptor.adapt(built, method, **{**inputs, **chosen})
    note = adaptor.adapt(images).note
    layers, error = adaptor.layers(), neutrality_error(built, images)
    if as_json:
        terminal.print_json(
            {
                "network": loaded.name,
                "classes": len(loaded.classes),
                "preprocessing": asdict(loaded.preprocessing),
                "layers": [layer._asdict() for layer in layers],
                "neutral": error <= TOLERANCE,
                "note": note,
                "notes": list(loaded.notes),
            }
        )
    else:
        _show_layers(loaded.name, layers)
        verdict = "[green]neutral[/green]" if error <= TOLERANCE else "[red]NOT neutral[/red]"
        text = f"Wrapping is {verdict}: without adaptation the logits differ from the source model's by {error:.1e}."
        terminal.out.print(text, highlight=False)
        terminal.print_text(f"Preprocessing: {loaded.preprocessing_sentence()}.")
        terminal.show_notes([*([note] if note else []), *loaded.notes])
        if loaded.random:
            terminal.print_text("No weights given: the weights are random.")
    if error > TOLERANCE:
        raise typer.Exit(terminal.Exit.NOT_NEUTRAL)


def _show_layers(network: str, layers: "Sequence[LayerReport]") -> None:
    """Print a table with one row per kind of layer."""
    groups: dict[tuple[str, bool, str], list[str]] = {}
    for layer in layers:
        groups.setdefault((layer.kind, layer.adapts, layer.why), []).append(layer.name)
    table = Table("layers", "kind", "adapts", "what, or why not", title=network)
    for (kind, adapts, why), names in groups.items():
        shown = names[0] if len(names) == 1 else f"{len(names)}: {names[0]} … {names[-1]}"
        table.add_row(shown, kind, "yes" if adapts else "no", why)
    terminal.out.print(table)
    terminal.print_text(f"{sum(layer.adapts for layer in layers)} of {len(layers)} norm layers adapt.")

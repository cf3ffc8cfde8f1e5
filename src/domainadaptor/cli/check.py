"""`domainadaptor check`: which layers of a network adapt, and whether wrapping is neutral."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from domainadaptor.cli.options import MethodOptions, parse_method_options
from domainadaptor.cli.terminal import (
    BatchSize,
    Device,
    Exit,
    Json,
    Network,
    Root,
    Seed,
    find_device,
    out,
    print_json,
    show_notes,
)

if TYPE_CHECKING:  # they take seconds to import
    from domainadaptor.adaptation.adaptive_network import LayerReport
    from domainadaptor.lab.networks.neutrality import NeutralityReport


def check(
    network: Network,
    weights: Annotated[
        str | None,
        typer.Option(
            help="For a network by name: a .safetensors, .pt or .pth file; or pretrained: published weights that are "
            "on this machine; random ones otherwise."
        ),
    ] = None,
    root: Root = None,
    method: Annotated[str, typer.Option(help="The method to wrap it with.")] = "domainadaptor-t",
    option: MethodOptions = None,
    size: Annotated[
        int | None, typer.Option(min=1, help="Side of the probe's images; the network's own otherwise.")
    ] = None,
    device: Device = "auto",
    batch_size: BatchSize = 4,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Show which layers of a network adapt, which do not and why, and probe that wrapping is neutral."""
    import torch

    import domainadaptor
    from domainadaptor.lab.method_inputs import options_from
    from domainadaptor.lab.networks.loading import load_network
    from domainadaptor.lab.networks.neutrality import check_neutrality, randomize_norms

    chosen = parse_method_options(method, option)
    place = find_device(device)
    opened = load_network(network, weights, root=root, seed=seed).at(size)
    if opened.random:
        randomize_norms(opened.network, seed)
    built = opened.network.to(place)
    side = opened.preprocessing.size
    images = torch.randn(batch_size, 3, side, side, generator=torch.Generator().manual_seed(seed)).to(place)
    # The probe's images stand for source and test images too: which layers adapt does not depend on them.
    own = options_from(
        method, heads=opened.heads, preprocessing=opened.preprocessing, source_images=images, target_images=images
    )
    adaptor = domainadaptor.adapt(built, method, **{**own, **chosen})
    note = adaptor.adapt(images).note
    layers, probed = adaptor.layers(), check_neutrality(built, images)
    if as_json:
        print_json(
            {
                "network": opened.name,
                "classes": len(opened.classes),
                "preprocessing": asdict(opened.preprocessing),
                "layers": [layer._asdict() for layer in layers],
                "probe": {**probed._asdict(), "neutral": probed.neutral},
                "note": note,
                "notes": list(opened.notes),
            }
        )
    else:
        _show(opened.name, layers, probed, note)
        show_notes(opened.notes)
        if opened.random:
            out.print("The weights are random (no --weights), with norm layers away from 1 and 0.", highlight=False)
    if not probed.neutral:
        raise typer.Exit(Exit.NOT_NEUTRAL)


def _show(name: str, layers: "list[LayerReport]", probed: "NeutralityReport", note: str | None) -> None:
    table = Table("layer", "kind", "adapts", "what, or why not", title=name)
    for layer in layers:
        table.add_row(layer.name, layer.kind, "yes" if layer.adapts else "no", layer.why)
    out.print(table)
    adapting = sum(layer.adapts for layer in layers)
    out.print(f"{adapting} norm layers adapt, {len(layers) - adapting} do not.", highlight=False)
    if note:
        out.print(f"Note: {note}", highlight=False)
    verdict = "[green]neutral[/green]" if probed.neutral else "[red]NOT neutral[/red]"
    same = "the same to the last bit" if probed.same_bits else "[red]different[/red]"
    out.print(
        f"Wrapping is {verdict}: with alpha 1 and no step the logits are {same}; folded, in float64, they "
        f"are off by {probed.folded_error:.1e}. A step of domainadaptor-t changes them by {probed.step_change:.1e}.",
        highlight=False,
    )

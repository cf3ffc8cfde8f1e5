from domainadaptor.lab.reports.provenance import provenance
from tests.lab.reports.folder import planned_row, selected, table


def test_options_defaults_and_preprocessing_are_listed(made):
    seen = {"size": 64, "resize": 73, "mean": [0.5, 0.4, 0.3], "std": [0.2, 0.2, 0.2], "interpolation": "bicubic",
            "squash": False}  # fmt: skip
    defaults = {"lr": 0.001, "momentum": 0.9}
    record = made.add(made.record(["sketch"], "tent", options={"lr": 0.5}, defaults=defaults, preprocessing=seen))
    row = planned_row("Tent", {"sketch": [[record]]})
    found = provenance(selected(made, table("t", [row], ["sketch"])))
    assert found.methods == (("Tent", "tent (lr 0.5), defaults momentum 0.9"),)
    text = "shorter side to 73 (bicubic), center crop 64, mean 0.5 0.4 0.3, deviation 0.2 0.2 0.2"
    facts = dict(found.facts)
    assert facts["preprocessing"] == text
    assert facts["machine"] == "AMD EPYC, x86_64, cpu, 2 threads"
    assert [command for _, command in found.networks] == [record.run.checkpoint.command]

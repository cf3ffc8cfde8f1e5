"""The lab: data, networks, training, evaluation, experiments and reports around the core."""

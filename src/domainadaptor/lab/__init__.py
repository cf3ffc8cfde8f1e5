"""The lab: data, networks, training, evaluation, experiments and reports around the core."""

from domainadaptor.extras import require_extra

require_extra("lab", "domainadaptor.lab")

"""The HTTP service: a front process that takes requests, and worker processes that hold the network."""

from domainadaptor.extras import require_extra

require_extra("serve", "domainadaptor.serve")

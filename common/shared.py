"""What several pages use, made before chapters run side by side on several machines: so all of them show the same."""

from common.models import trained_tinyconvnet

SEEDS = (0, 1, 2)


def make() -> None:
    """Make the artifacts that aren't there yet. One page's own come with that page."""
    for seed in SEEDS:
        trained_tinyconvnet(seed)

"""What several pages use, made before chapters run side by side on several machines: so all of them show the same."""

from common.models import trained_tinyconvnet
from common.qat import Recipe, trained

SEEDS = (0, 1, 2)


def make() -> None:
    """Make the artifacts that aren't there yet; what one page alone uses comes with that page."""
    for seed in SEEDS:
        trained_tinyconvnet(seed)
        trained(Recipe(seed=seed))

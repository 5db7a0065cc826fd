"""The explorer: set a cluster and a policy, see the timeline and the loss follow.

`settings` says what can be set and what it means, `picture` draws a run, `explorer` holds the two together,
and `panel` puts sliders in front of it.
"""

from dmlcore.view.explorer.explorer import Explorer, explore
from dmlcore.view.explorer.settings import Settings

__all__ = ["Explorer", "Settings", "explore"]

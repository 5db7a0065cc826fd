"""The explorer: set a cluster and a policy, see the timeline and the loss follow.

`settings` says what can be set and what it means, `explorer` trains and draws, `panel` puts sliders in front.
"""

from dmlcore.view.explorer.explorer import Explorer as Explorer
from dmlcore.view.explorer.explorer import explore as explore
from dmlcore.view.explorer.settings import Settings as Settings

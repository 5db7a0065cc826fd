"""The explorer: change a cluster and a policy, and see the timeline and the loss of the run.

`settings` defines the settings and their ranges, `explorer` trains and draws, and `panel` shows the sliders.
"""

from dmlcore.view.explorer.explorer import Explorer as Explorer
from dmlcore.view.explorer.explorer import explore as explore
from dmlcore.view.explorer.settings import Settings as Settings

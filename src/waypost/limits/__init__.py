"""Every bound of the product, next to its reason. Nothing else defines one; by subject, in the modules here.

A bound without a reason is a guess; a buffer without a bound is a fault. Tests take each one at the limit and one past it.
"""

from __future__ import annotations

from waypost.limits.announcing import *  # noqa: F403
from waypost.limits.asking import *  # noqa: F403
from waypost.limits.documents import *  # noqa: F403
from waypost.limits.meeting import *  # noqa: F403
from waypost.limits.reaching import *  # noqa: F403
from waypost.limits.serving import *  # noqa: F403
from waypost.limits.sizes import *  # noqa: F403
from waypost.limits.trusting import *  # noqa: F403

"""Loaded by every Python process that has this folder on its path: short leases, for tests of
several launchers.
"""

import os

if "ABLATE_TEST_TERM" in os.environ:
    from ablate.store import lease

    lease.TERM_SECONDS = float(os.environ["ABLATE_TEST_TERM"])

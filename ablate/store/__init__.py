"""Results on disk: the only floor that knows file names, and the only state there is."""

from ablate.store.layout import Results, RunFolder
from ablate.store.status import State, state_of

__all__ = ["Results", "RunFolder", "State", "state_of"]

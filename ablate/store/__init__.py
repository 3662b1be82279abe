"""Results on disk. Only this package knows file names, and files are the only state."""

from ablate.store.layout import Results, RunFolder
from ablate.store.records import none_if_unreadable
from ablate.store.status import RunFiles, State, state_of

__all__ = ["Results", "RunFiles", "RunFolder", "State", "none_if_unreadable", "state_of"]

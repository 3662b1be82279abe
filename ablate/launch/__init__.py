"""Where units run: worker processes on this machine."""

from ablate.launch.launch import Launch, launch
from ablate.launch.local import Watcher

__all__ = ["Launch", "Watcher", "launch"]

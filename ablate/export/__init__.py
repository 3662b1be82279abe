"""A trained run in another library's form, so that it can be used without this one."""

from ablate.export.folder import export

__all__ = ["export"]

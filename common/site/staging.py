"""The folder a site is built in, swapped with the last good site when all is well."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from pathlib import Path

from filelock import FileLock


class Staging:
    """A fresh folder beside `site`. Leftovers of killed builds are removed. Raises OSError where it can't be made."""

    def __init__(self, site: Path) -> None:
        self.site = site
        parent = site.parent
        if parent.exists() and not parent.is_dir():
            raise NotADirectoryError(f"can't write the site to {site}: {parent} is not a folder")
        if site.exists() and not site.is_dir():
            raise NotADirectoryError(f"can't write the site to {site}: it is a file")
        parent.mkdir(parents=True, exist_ok=True)
        self._recover()
        self.folder = Path(tempfile.mkdtemp(prefix=f".{site.name}.building-{os.getpid()}-", dir=parent))
        self.folder.chmod(0o755)

    def swap_in(self) -> None:
        """Make the staged site the site. Readers of the folder see the old one or the new one."""
        with FileLock(self._lock):
            old = self.folder.with_name(self.folder.name.replace(".building-", ".old-"))
            if self.site.exists():
                self.site.rename(old)
            self.folder.rename(self.site)
        shutil.rmtree(old, ignore_errors=True)

    def drop(self) -> None:
        """Remove the staged site."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def forget(self) -> None:
        """Leave nothing beside a site that is itself going away."""
        self.drop()
        self._lock.unlink(missing_ok=True)

    @property
    def _lock(self) -> Path:
        return self.site.parent / f".{self.site.name}.lock"

    def _recover(self) -> None:
        """Put back a site that a build killed in the middle of a swap had moved aside; remove dead builds' folders."""
        for kind in ("old", "building"):
            for folder in self.site.parent.glob(f".{glob.escape(self.site.name)}.{kind}-*"):
                builder = folder.name.rpartition(f".{kind}-")[2].split("-")[0]
                if not builder.isdecimal() or _alive(int(builder)):
                    continue
                if kind == "old" and not self.site.exists():
                    folder.rename(self.site)
                else:
                    shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

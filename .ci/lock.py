"""Write requirements.txt beside this file anew: what the pins in pyproject.toml bring with them, newest versions.

Run it with the environment's Python after moving a pin: `.venv/bin/python .ci/lock.py`.
"""

import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
HEADER = """\
# Every package of the environment, as constraints: pip install --constraint .ci/requirements.txt --editable '.[test]'
# Written by .ci/lock.py from pyproject.toml. Versions lack the +cpu of PyTorch's own index, so that PyPI's files
# fit too, and without hashes, since one version of torch is a different file in each index.
"""


def resolved() -> dict[str, str]:
    """Name -> version of all that pip would install into an empty environment."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    answer = subprocess.run([*command, "--editable", ".[test]"], cwd=HERE.parent, check=True, stdout=subprocess.PIPE)
    packages = [item["metadata"] for item in json.loads(answer.stdout)["install"]]
    return {p["name"]: p["version"].partition("+")[0] for p in packages if p["name"] != "pt2e-course"}


if __name__ == "__main__":
    pins = sorted(f"{name}=={version}\n" for name, version in resolved().items())
    (HERE / "requirements.txt").write_text(HEADER + "".join(sorted(pins, key=str.lower)), encoding="utf-8")

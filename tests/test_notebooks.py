"""Downloaded notebooks run from top to bottom where only the installed course is, far from its repository."""

import asyncio
import pathlib
import re
import subprocess
import sys
import sysconfig
import venv

import nbformat
import pytest
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

pytestmark = [pytest.mark.site, pytest.mark.slow]


@pytest.fixture(scope="module")
def elsewhere(root: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The Python of an environment with the pinned libraries and the course's package, installed as a wheel.

    The libraries are those of this environment: what is tested is the package, not the registry.
    """
    folder = tmp_path_factory.mktemp("elsewhere")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    python = folder / "venv/bin/python"
    packages = pathlib.Path(sysconfig.get_path("purelib", vars={"base": str(folder / "venv")}))
    # A folder named in a .pth file is searched, its own .pth files are not read: the editable course stays out.
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(packages)]
    subprocess.run([sys.executable, "-m", "pip", *install, str(root)], check=True)
    where = subprocess.run(
        [python, "-c", "import common; print(common.__file__)"],
        cwd=folder,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert pathlib.Path(where.stdout.strip()).is_relative_to(packages)
    return python


@pytest.mark.parametrize("notebook", ["m00/m00-0-overview", "en/m01/1-minimal-ptq/m01-1-minimal-ptq"])
def test_a_notebook_runs_and_shows_what_its_page_shows(
    built_site: pathlib.Path,
    elsewhere: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    notebook: str,
):
    book = nbformat.read(built_site / f"{notebook}.ipynb", as_version=4)
    shown = [[texts(output) for output in cell.outputs] for cell in book.cells if cell.cell_type == "code"]
    monkeypatch.setenv("PT2E_CACHE", str(tmp_path / "artifacts"))
    monkeypatch.delenv("PT2E_LANG", raising=False)
    manager = AsyncKernelManager()
    manager.kernel_spec.argv[0] = str(elsewhere)
    resources = {"metadata": {"path": str(tmp_path)}}
    client = NotebookClient(book, km=manager, timeout=600, resources=resources, coalesce_streams=True)
    asyncio.run(client.async_execute(cleanup_kc=True))
    again = [[texts(output) for output in cell.outputs] for cell in book.cells if cell.cell_type == "code"]
    assert again == shown


def texts(output: nbformat.NotebookNode) -> str:
    """What an output says: printed text, or the plain form of what is shown.

    Without sizes of files: torch.export.save keeps paths of source files, which have other lengths elsewhere.
    """
    return re.sub(r"[\d,]+ bytes", "# bytes", output.get("text") or output.data["text/plain"])

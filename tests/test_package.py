"""The package as it is laid out, built, installed and imported."""

import ast
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

import gearshift
from gearshift.paths.models import describe
from gearshift.paths.space import Space
from gearshift.retrain.recipe import Recipe
from gearshift.runtime.bench.scenario import Scenario

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("configs", "paths", "profiler", "retrain", "runtime")
LINKED = pytest.mark.skipif(
    not (ROOT / "gearshift" / "runtime").is_symlink(), reason="this checkout has no symbolic links"
)


def modules(*folders: str) -> list[Path]:
    """Every Python file of some folders, by its path from the root."""
    return sorted(file.relative_to(ROOT) for folder in folders for file in (ROOT / folder).rglob("*.py"))


def own_files(folder: Path) -> set[str]:
    """Files of a folder that belong to it: neither behind links nor left by an interpreter."""
    return {
        str(file.relative_to(folder))
        for file in folder.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts and not file.is_symlink()
    }


# What is built.


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is released, with what an interpreter leaves behind; nobody changes it meanwhile."""
    copy = tmp_path_factory.mktemp("tree") / "gearshift"
    copy.mkdir()
    for name in (*FOLDERS, "gearshift", "tests", "benchmarks"):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ROOT.iterdir():
        if file.is_file():
            shutil.copy(file, copy)
    (copy / "paths" / "__pycache__").mkdir()
    (copy / "paths" / "__pycache__" / "build.cpython-311.pyc").write_bytes(b"stale")
    return copy


def build(source: Path, out: Path, *what: str) -> list[Path]:
    """Build as a release would, without a second download of the build backend."""
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    command = [sys.executable, "-m", "build", "--no-isolation", *what, "--outdir", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(out.iterdir())


@pytest.fixture(scope="session")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    [built] = build(tree, tmp_path_factory.mktemp("wheel"), "--wheel")
    return built


@pytest.fixture(scope="session")
def sdist(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    [built] = build(tree, tmp_path_factory.mktemp("sdist"), "--sdist")
    return built


@pytest.fixture(scope="session")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the wheel was unpacked, far from the repository."""
    folder = tmp_path_factory.mktemp("site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def names_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def package_files(tree: Path) -> set[str]:
    """What an installed package consists of, from the folders."""
    core = {f"gearshift/{file.name}" for file in (tree / "gearshift").iterdir() if file.is_file()}
    return core | {f"gearshift/{folder}/{name}" for folder in FOLDERS for name in own_files(tree / folder)}


def test_a_wheel_holds_the_files_of_the_folders_once_and_no_others(wheel: Path, tree: Path) -> None:
    names = names_in(wheel)
    info = f"gearshift-{gearshift.__version__}.dist-info"
    meta = {f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")}
    assert len(names) == len(set(names))
    assert set(names) == package_files(tree) | meta


def test_a_wheel_holds_types_and_configurations_but_no_tests(wheel: Path) -> None:
    names = set(names_in(wheel))
    assert "gearshift/py.typed" in names
    assert "gearshift/configs/models/segformer-street.yaml" in names
    assert "gearshift/runtime/cli/__init__.py" in names
    assert not [name for name in names if "/test" in name or "conftest" in name or name.endswith(".pyc")]


def test_a_wheel_says_what_it_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        info = f"gearshift-{gearshift.__version__}.dist-info"
        scripts = archive.read(f"{info}/entry_points.txt").decode()
        metadata = archive.read(f"{info}/METADATA").decode()
    assert "runtime = gearshift.runtime.cli:main" in scripts
    assert f"Version: {gearshift.__version__}\n" in metadata
    assert "License-Expression: Apache-2.0\n" in metadata
    assert "# Gearshift" in metadata, "the README is the description"


def test_a_source_archive_holds_the_folders_and_the_tests(sdist: Path, tree: Path) -> None:
    with tarfile.open(sdist) as archive:
        members = [member for member in archive.getmembers() if not member.isdir()]
    assert all(member.isfile() for member in members), "no links"
    names = [member.name.partition("/")[2] for member in members]
    expected = {f"{folder}/{name}" for folder in (*FOLDERS, "tests", "benchmarks") for name in own_files(tree / folder)}
    expected |= {f"gearshift/{file.name}" for file in (tree / "gearshift").iterdir() if file.is_file()}
    always = {"pyproject.toml", "README.md", "LICENSE", "Makefile", "CHANGELOG.md", ".gitignore"}
    expected |= {name for name in always if (tree / name).exists()} | {"PKG-INFO"}
    assert len(names) == len(set(names))
    assert set(names) == expected


def test_a_wheel_built_from_the_source_archive_is_the_same(
    sdist: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("from-sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "source", filter="data")
    [source] = (folder / "source").iterdir()
    [again] = build(source, folder / "out", "--wheel")
    assert sorted(names_in(again)) == sorted(names_in(wheel))


# What is imported.


def python(code: str, *, path: Path, cwd: Path) -> str:
    """Run code in an interpreter that finds `path` first; returns what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_installed_package_works_from_another_folder(unpacked: Path, tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from gearshift.runtime.cli import main
assert main(["profile", "config:segformer-street", "--size", "64x96", "--counts-only", "--json", "c.json"]) == 0
assert main(["bench", "--scenario", "no-such-scenario"]) == 2
origins = {module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "gearshift"}
Path("origins.txt").write_text("\\n".join(origins))
"""
    python(code, path=unpacked, cwd=tmp_path)
    origins = (tmp_path / "origins.txt").read_text().splitlines()
    assert len(origins) > 50
    assert all(Path(origin).is_relative_to(unpacked) for origin in origins)
    assert "macs" in (tmp_path / "c.json").read_text()


@pytest.mark.parametrize("instead", ["nothing", "text"])
@LINKED
def test_a_checkout_without_symbolic_links_works(instead: str, tree: Path, tmp_path: Path) -> None:
    copy = tmp_path / "checkout"
    shutil.copytree(tree, copy, symlinks=True)
    for folder in FOLDERS:
        link = copy / "gearshift" / folder
        target = os.readlink(link)
        link.unlink()
        if instead == "text":  # as git leaves them where the system knows no links
            link.write_text(target)
    code = """
from importlib.resources import files
from importlib.util import find_spec
import gearshift, gearshift.config, gearshift.configs
print(gearshift.__file__)
for name in ("configs", "paths", "profiler", "retrain", "runtime"):
    print(find_spec(f"gearshift.{name}").origin)
assert files("gearshift.configs").joinpath("models", "segformer-b0.yaml").read_text()
"""
    origins = python(code, path=copy, cwd=tmp_path).split()
    assert origins == [str(copy / name / "__init__.py") for name in ("gearshift", *FOLDERS)]


@LINKED
def test_a_checkout_with_symbolic_links_finds_nothing_twice() -> None:
    assert [Path(entry) for entry in gearshift.__path__] == [ROOT / "gearshift"]
    assert {link.name for link in (ROOT / "gearshift").iterdir() if link.is_symlink()} == set(FOLDERS)


def test_the_contract_of_the_design() -> None:
    from gearshift.paths import PathSpec, build_path
    from gearshift.profiler import count, profile
    from gearshift.profiler.meters import RaplMeter
    from gearshift.runtime import Budget, DynamicModel

    assert all(callable(name) for name in (PathSpec.parse, build_path, count, profile, RaplMeter, Budget.parse))
    assert callable(DynamicModel.load)
    assert callable(DynamicModel.build)


# What is public.


def packages() -> list[str]:
    found = (file.parent.parts for file in modules(*FOLDERS) if file.name == "__init__.py")
    return [".".join(("gearshift", *parts)) for parts in found]


def listed_order(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest, as ruff sorts `__all__`."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2, name)


def offered(package: str) -> set[str]:
    """Names that a package's `__init__` takes from its own modules or defines itself."""
    tree = ast.parse(Path(str(importlib.import_module(package).__file__)).read_text(encoding="utf-8"))
    found = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(f"{package}."):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
    return {name for name in found if not name.startswith("_")}


@pytest.mark.parametrize("package", packages())
def test_what_a_package_offers_is_listed_in_order_and_there(package: str) -> None:
    module = importlib.import_module(package)
    names = getattr(module, "__all__", [])
    assert set(names) == offered(package)
    assert list(names) == sorted(set(names), key=listed_order)
    for name in names:
        assert getattr(module, name) is not None
    assert module.__doc__ or package == "gearshift.configs"


def test_the_top_package_lists_its_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert gearshift.__all__ == ["__version__"]
    assert project["version"] == gearshift.__version__


# Who imports whom.

CORE = {"gearshift", "gearshift.config", "gearshift.errors", "gearshift.files", "gearshift.units"}
MAY_IMPORT = {
    "gearshift": set(),
    "configs": set(),
    "profiler": {"profiler"},
    "paths": {"paths", "profiler"},
    "retrain": {"retrain", "paths", "profiler"},
    "runtime": {"runtime", "paths", "profiler"},
}


def imports_of(file: Path) -> list[tuple[int, str]]:
    """Every import of a file, wherever it stands: how relative it is, and the module."""
    found = []
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            found.append((node.level, node.module or ""))
        elif isinstance(node, ast.Import):
            found += [(0, alias.name) for alias in node.names]
    return found


def core_modules() -> list[Path]:
    return sorted(file.relative_to(ROOT) for file in (ROOT / "gearshift").glob("*.py"))


def test_no_import_is_relative_and_none_of_ours_is_bare() -> None:
    for file in [*core_modules(), *modules(*FOLDERS, "tests", "benchmarks")]:
        for level, module in imports_of(file):
            assert level == 0, f"{file} imports relatively"
            assert module.partition(".")[0] not in FOLDERS, f"{file} imports {module} without gearshift."


def test_imports_run_one_way() -> None:
    for file in [*core_modules(), *modules(*FOLDERS)]:
        allowed = MAY_IMPORT[file.parts[0]] | ({"retrain"} if file.parts[:2] == ("runtime", "cli") else set())
        for _, module in imports_of(file):
            if module.partition(".")[0] == "gearshift" and module not in CORE:
                assert module.split(".")[1] in allowed, f"{file} imports {module}"


def test_the_core_s_modules_are_those_that_all_may_import() -> None:
    names = {"gearshift" if file.stem == "__init__" else f"gearshift.{file.stem}" for file in core_modules()}
    assert names == CORE


# What ships as data.

READERS: dict[str, Callable[[Path], object]] = {
    "models": lambda file: describe(file.stem),
    "recipes": Recipe.read,
    "scenarios": Scenario.read,
    "spaces": Space.read,
}


def shipped() -> list[Path]:
    configs = Path(str(files("gearshift.configs")))
    return sorted(file.relative_to(configs) for file in configs.rglob("*.y*ml"))


@pytest.mark.parametrize("name", shipped(), ids=str)
def test_every_configuration_reads_into_its_object(name: Path) -> None:
    file = Path(str(files("gearshift.configs"))) / name
    assert READERS[name.parts[0]](file) is not None
    assert file.read_text(encoding="utf-8").startswith("# "), "it opens with its purpose"


def test_every_kind_of_configuration_ships() -> None:
    assert {name.parts[0] for name in shipped()} == set(READERS)

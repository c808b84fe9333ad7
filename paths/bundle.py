"""A bundle: a directory with a model's paths, what each costs here and gives up, and the tensors they share.

    bundle.json            specifications, measurements, device, versions, checksums (see `records`)
    derived.safetensors    what the paths computed from the weights, so that loading recomputes nothing
    checkpoint/            the weights themselves, where the bundle was asked to carry them

No pickle. A bundle is written whole or not at all, and read whole or refused with the reason.
"""

import glob
import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from safetensors.torch import load_file, save_file
from torch import Tensor

from gearshift.config import check_config
from gearshift.errors import BundleError, ConfigError, OutputError
from gearshift.files import sha256, to_json, write_text
from gearshift.paths.build import PathFactory
from gearshift.paths.models import CHECKPOINT_FOLDER, inside, load_model, weights_hash
from gearshift.paths.records import SCHEMA, BundleRecord
from gearshift.paths.sharing import DerivedTensors
from gearshift.profiler.device import DeviceIdentity

BUNDLE_FILE = "bundle.json"
DERIVED_FILE = "derived.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A bundle that was read and found whole."""

    folder: Path
    record: BundleRecord

    @property
    def device(self) -> DeviceIdentity:
        """The device on which it was measured."""
        return DeviceIdentity.from_dict(dict(self.record.device))

    def foreign_to(self, here: DeviceIdentity) -> str | None:
        """One line saying that it was measured on another device, or None where it was measured on this kind."""
        if self.device.key() == here.key():
            return None
        return (
            f"{self.folder} was measured on another device ({self.device.describe()}; here: {here.describe()}); "
            f"its costs hold there only: run `runtime paths {self.folder} --remeasure`"
        )

    def load(self, checkpoint: str | None = None) -> PathFactory:
        """Load the weights and what the paths derive from them.

        Args:
            checkpoint: Another place of the same weights, where they have moved.

        Raises:
            BundleError: The weights are not those that the bundle was made from.
            CheckpointError, ModelError: They cannot be loaded.
        """
        recorded = self.record.checkpoint
        reference = inside(self.folder, checkpoint or recorded.reference)
        module: Any = load_model(reference, random_init=not recorded.trained).module
        if weights_hash(module) != self.record.checkpoint.weights_sha256:
            raise BundleError(
                f"the weights of {reference} are not those that {self.folder} was made from; "
                "give the original ones with --checkpoint, or build the bundle anew"
            )
        return PathFactory(module, DerivedTensors(load_file(self.folder / DERIVED_FILE)))


def read_bundle(folder: Path) -> Bundle:
    """Read a bundle and check every file of it.

    Raises:
        BundleError: Absent, of a newer schema, changed, truncated or incomplete; the message says which.
    """
    file = folder / BUNDLE_FILE
    if not file.is_file():
        raise BundleError(f"{folder} is no bundle: it holds no {BUNDLE_FILE}; {_remedy(folder)}")
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BundleError(f"{file} is cut short or not JSON; build the bundle again") from error
    if not isinstance(document, dict):
        raise BundleError(f"{file} is not a JSON object; build the bundle again")
    version = document.get("schema_version")
    if isinstance(version, int) and version > SCHEMA:
        raise BundleError(
            f"{folder} has schema {version}, newer than this Gearshift reads ({SCHEMA}); update Gearshift"
        )
    stated = document.pop("checksum", None)
    if stated != _checksum(document):
        raise BundleError(f"{file} was changed after it was written: its checksum differs; build it again")
    record = _validated(document, file)
    _check_files(folder, record)
    return Bundle(folder=folder, record=record)


def write_bundle(
    folder: Path, record: BundleRecord, derived: Mapping[str, Tensor], checkpoint: Any | None = None
) -> Bundle:
    """Write a bundle, replacing one of the same name at the last moment.

    Args:
        folder: Where to; its parents are made.
        record: What to say; `files` is filled in here.
        derived: What the paths computed from the weights.
        checkpoint: Writes the weights into a folder, for a bundle that carries them; None to refer to
            `record.checkpoint.reference`.

    Raises:
        OutputError: The place cannot be written, or holds something that is no bundle. Nothing is changed then.
    """
    check_destination(folder)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        save_file(dict(derived), scratch / DERIVED_FILE)
        if checkpoint is not None:
            checkpoint(scratch / CHECKPOINT_FOLDER)
        _write_record(scratch, record)
        scratch.chmod(0o755)
        for file in scratch.rglob("*.safetensors"):  # the library makes them readable by their owner alone
            file.chmod(0o644)
        _move_into_place(scratch, folder)
    except OSError as error:
        raise OutputError(f"cannot write {folder}: {error.strerror or error}; choose another folder") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return read_bundle(folder)


def update_record(bundle: Bundle, record: BundleRecord) -> Bundle:
    """Replace what a bundle says, its other files untouched (new measurements, say)."""
    _write_record(bundle.folder, record)
    return read_bundle(bundle.folder)


def check_destination(folder: Path) -> None:
    """Raise `OutputError` unless a bundle can be written at `folder`: called before long work, and before writing."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file; give the name of a folder to make")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / BUNDLE_FILE).is_file():
        raise OutputError(f"{folder} holds files but no bundle; give an empty or a new folder")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder.parent):
            pass
    except OSError as error:
        raise OutputError(
            f"cannot write in {folder.parent}: {error.strerror or error}; choose a folder that you may write to"
        ) from error


def _write_record(folder: Path, record: BundleRecord) -> None:
    files = {
        str(file.relative_to(folder)): sha256(file)
        for file in (folder / DERIVED_FILE, *sorted((folder / CHECKPOINT_FOLDER).rglob("*")))
        if file.is_file()
    }
    document = json.loads(to_json(record.model_copy(update={"files": files}).model_dump(mode="json")))
    document["checksum"] = _checksum(document)
    write_text(folder / BUNDLE_FILE, to_json(document))


def _move_into_place(scratch: Path, folder: Path) -> None:
    """Rename, an older bundle aside first, so that at every moment one of the two is whole."""
    aside = scratch.with_name(f"{scratch.name}.old")
    if folder.exists():
        folder.rename(aside)
    try:
        scratch.rename(folder)
    except BaseException:  # an interrupt too
        if aside.exists():
            aside.rename(folder)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _remedy(folder: Path) -> str:
    """What to do about a missing bundle: a process killed between two renames leaves it under another name."""
    whole = sorted(file.parent for file in folder.parent.glob(f".{glob.escape(folder.name)}.*/{BUNDLE_FILE}"))
    if folder.exists() or not whole:
        return "make one with `runtime build`"
    return f"replacing it was cut short, and a whole one is left in {whole[-1]}: rename that"


def _checksum(document: dict[str, Any]) -> str:
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _validated(document: dict[str, Any], file: Path) -> BundleRecord:
    try:
        return check_config(document, BundleRecord, str(file))
    except (ConfigError, ValidationError) as error:
        raise BundleError(f"{error}; build the bundle again") from error


def _check_files(folder: Path, record: BundleRecord) -> None:
    if DERIVED_FILE not in record.files:
        raise BundleError(f"{folder} does not list {DERIVED_FILE}; build the bundle again")
    for name, expected in record.files.items():
        file = folder / name
        if not file.is_file():
            raise BundleError(f"{folder} is incomplete: {name} is missing; copy or build the bundle again")
        if sha256(file) != expected:
            raise BundleError(f"{file} was changed or cut short: its checksum differs; copy or build it again")

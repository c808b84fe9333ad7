"""Bundles: whole or refused, with the reason; replaced at one moment; the same outputs after loading."""

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from gearshift.errors import BundleError, OutputError
from gearshift.paths import PathSpec
from gearshift.paths.build import PathFactory
from gearshift.paths.bundle import (
    BUNDLE_FILE,
    DERIVED_FILE,
    Bundle,
    check_destination,
    read_bundle,
    update_record,
    write_bundle,
)
from gearshift.paths.models import CHECKPOINT_FOLDER, save_checkpoint, weights_hash
from gearshift.paths.records import SCHEMA
from gearshift.profiler.device import DeviceIdentity, identify
from tests.conftest import tiny_segformer

FRAME = torch.linspace(-2, 2, 3 * 64 * 96).reshape(1, 3, 64, 96)


@pytest.fixture
def bundle(small_bundle: Path, tmp_path: Path) -> Bundle:
    """A copy of a small bundle that carries its weights, to be spoilt."""
    return read_bundle(Path(shutil.copytree(small_bundle, tmp_path / "copy.bundle")))


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def saving(module: Any) -> Callable[[Path], None]:
    return partial(save_checkpoint, module)


def document_of(bundle: Bundle) -> dict[str, Any]:
    document = json.loads((bundle.folder / BUNDLE_FILE).read_text())
    assert isinstance(document, dict)
    return document


def rewrite(bundle: Bundle, document: dict[str, Any], *, sign: bool = False) -> None:
    """Write another `bundle.json`; `sign` makes its checksum right."""
    if sign:
        document.pop("checksum", None)
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        document["checksum"] = hashlib.sha256(text.encode()).hexdigest()
    (bundle.folder / BUNDLE_FILE).write_text(json.dumps(document))


def refusal(folder: Path) -> str:
    with pytest.raises(BundleError) as error:
        read_bundle(folder)
    message = str(error.value)
    assert "\n" not in message
    assert str(folder) in message
    return message


# Round trips --------------------------------------------------------------------------------------------------


def test_what_was_written_is_read(bundle: Bundle, tmp_path: Path) -> None:
    factory = bundle.load()
    again = write_bundle(
        tmp_path / "a" / "b" / "again", bundle.record, factory.derived.tensors(), saving(factory.stock)
    )
    same = {"files": bundle.record.files}  # the configuration of weights that were loaded also names their type
    assert again.record.model_copy(update=same) == bundle.record
    assert again.record.files.keys() == bundle.record.files.keys()
    assert again.record.files[DERIVED_FILE] == bundle.record.files[DERIVED_FILE]
    assert read_bundle(again.folder) == again
    assert [path.spec for path in again.record.paths] == [PathSpec.parse(path.id) for path in bundle.record.paths]
    assert again.record.with_role("lossless").id == "lossless"


def test_loaded_paths_give_the_same_outputs_bit_for_bit(bundle: Bundle) -> None:
    """The derived tensors are read, not computed anew, and are what would have been computed."""
    stock = tiny_segformer()
    fresh, loaded = PathFactory(stock), bundle.load()
    before = set(loaded.derived.tensors())
    for record in bundle.record.paths:
        with torch.no_grad():
            assert torch.equal(loaded.build(record.spec)(FRAME).logits, fresh.build(record.spec)(FRAME).logits)
    assert set(loaded.derived.tensors()) == before
    for name, tensor in fresh.derived.tensors().items():
        assert torch.equal(loaded.derived.tensors()[name], tensor)


def test_embedded_weights_load_without_any_other_file(bundle: Bundle, tmp_path: Path) -> None:
    moved = Path(shutil.move(bundle.folder, tmp_path / "elsewhere"))
    module = read_bundle(moved).load().stock
    assert weights_hash(module) == weights_hash(tiny_segformer())
    assert not module.training
    assert module.config.id2label == tiny_segformer().config.id2label
    with torch.no_grad():
        assert torch.equal(module(FRAME).logits, tiny_segformer()(FRAME).logits)


def test_weights_outside_are_referred_to(make_bundle_at: Callable[..., Bundle], tmp_path: Path) -> None:
    bundle = make_bundle_at(tmp_path / "outside", inside=False)
    assert not (bundle.folder / CHECKPOINT_FOLDER).exists()
    assert weights_hash(bundle.load().stock) == bundle.record.checkpoint.weights_sha256
    weights = Path(shutil.move(tmp_path / "outside-weights", tmp_path / "moved"))
    with pytest.raises(Exception, match="outside-weights"):
        bundle.load()
    assert weights_hash(bundle.load(f"hf:{weights}").stock) == bundle.record.checkpoint.weights_sha256
    assert weights_hash(bundle.load(str(weights)).stock) == bundle.record.checkpoint.weights_sha256


def test_other_weights_are_refused(bundle: Bundle, tmp_path: Path) -> None:
    other = tiny_segformer()
    with torch.no_grad():
        next(other.parameters()).view(-1)[0] += 1e-6
    other.save_pretrained(tmp_path / "other")
    with pytest.raises(BundleError, match=r"are not those that .*copy\.bundle was made from; give the original ones"):
        bundle.load(str(tmp_path / "other"))


def test_new_measurements_leave_everything_else(bundle: Bundle) -> None:
    (bundle.folder / "README.txt").write_text("a user's own note")
    before = files_of(bundle.folder)
    updated = update_record(bundle, bundle.record.model_copy(update={"gearshift": "9.9.9"}))
    assert updated.record.gearshift == "9.9.9"
    assert updated.record.files == bundle.record.files
    after = files_of(bundle.folder)
    assert {name for name in before if before[name] != after[name]} == {BUNDLE_FILE}
    (bundle.folder / "README.txt").unlink()
    assert read_bundle(bundle.folder) == updated


# What is in it ------------------------------------------------------------------------------------------------


def test_there_is_no_pickle_in_it(bundle: Bundle) -> None:
    contents = files_of(bundle.folder)
    assert {Path(name).suffix for name in contents} == {".json", ".safetensors"}
    for name, content in contents.items():
        if name.endswith(".json"):
            json.loads(content)
        else:
            with safe_open(bundle.folder / name, framework="pt") as tensors:
                assert list(tensors.keys())
        assert not content.startswith((b"PK", b"\x80"))


def test_weights_are_stored_once_however_many_paths(tmp_path: Path, bundle: Bundle) -> None:
    stock = tiny_segformer()
    stock.save_pretrained(tmp_path / "base")
    base = sum(len(content) for content in files_of(tmp_path / "base").values())
    specs = [PathSpec.parse(text) for text in ("stock", "skip=0.0", "skip=1.0", "skip=2.0,3.0")]
    factory = PathFactory(stock)
    paths = [factory.build(spec) for spec in specs]
    stock_record = bundle.record.with_role("stock").model_copy(update={"roles": ("stock", "lossless", "frontier")})
    skipping = [
        stock_record.model_copy(update={"transforms": spec.to_json(), "roles": ("frontier",)}) for spec in specs
    ]
    records = (stock_record, *skipping[1:])
    record = bundle.record.model_copy(update={"paths": records})
    written = write_bundle(tmp_path / "four", record, factory.derived.tensors(), saving(stock))
    tensors = sum((written.folder / name).stat().st_size for name in written.record.files if name.endswith("tensors"))
    assert tensors < 1.05 * base
    assert sum(path.extra_bytes for path in paths) == 0
    reference = write_bundle(tmp_path / "referring", record, factory.derived.tensors())
    assert sum(len(content) for content in files_of(reference.folder).values()) < 20_000


def test_training_one_path_alters_no_other_that_does_not_share_the_weights() -> None:
    """Derived tensors belong to the paths that use them: the stock form does not change with them."""
    factory = PathFactory(tiny_segformer())
    lossless, stock = (factory.build(PathSpec.parse(text)) for text in ("lossless", "stock"))
    before = stock(FRAME).logits
    shared = {tensor.data_ptr() for tensor in factory.stock.parameters()}
    with torch.no_grad():
        for parameter in lossless.parameters():
            if parameter.data_ptr() not in shared:
                parameter += 1.0
    assert torch.equal(stock(FRAME).logits, before)


def test_files_can_be_read_by_others(bundle: Bundle, tmp_path: Path) -> None:
    written = write_bundle(tmp_path / "new", bundle.record, {}, saving(tiny_segformer()))
    assert written.folder.stat().st_mode & 0o777 == 0o755
    assert all(file.stat().st_mode & 0o777 == 0o644 for file in written.folder.rglob("*") if file.is_file())


# What is refused ----------------------------------------------------------------------------------------------


def test_any_file_that_was_changed_cut_short_or_lost_is_named(bundle: Bundle) -> None:
    assert set(bundle.record.files) == {
        DERIVED_FILE,
        f"{CHECKPOINT_FOLDER}/config.json",
        f"{CHECKPOINT_FOLDER}/model.safetensors",
    }
    for name in bundle.record.files:
        file = bundle.folder / name
        content = file.read_bytes()
        flipped = bytearray(content)
        flipped[len(content) // 2] ^= 1
        for spoilt in (bytes(flipped), content[:-1], b"", content + b"\0"):
            file.write_bytes(spoilt)
            assert f"{file} was changed or cut short: its checksum differs" in refusal(bundle.folder)
        file.unlink()
        assert f"is incomplete: {name} is missing" in refusal(bundle.folder)
        file.write_bytes(content)
        assert read_bundle(bundle.folder) == bundle


def test_a_description_cut_anywhere_is_refused(bundle: Bundle) -> None:
    file = bundle.folder / BUNDLE_FILE
    text = file.read_bytes()
    for length in (0, 1, 100, len(text) // 2, len(text) - 3):
        file.write_bytes(text[:length])
        assert "is cut short or not JSON" in refusal(bundle.folder)
    for other in (b"[]", b"null", b"7", b'"text"'):
        file.write_bytes(other)
        assert "is not a JSON object" in refusal(bundle.folder)
    file.write_bytes(b"\xff\xfe{}")
    assert "is cut short or not JSON" in refusal(bundle.folder)


def leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list) and value:
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*place, key))
    else:
        yield place


def test_any_value_changed_by_hand_is_noticed(bundle: Bundle) -> None:
    places = [place for place in leaves(document_of(bundle)) if place != ("schema_version",)]
    assert len(places) > 100
    for place in places[::7]:
        document = document_of(bundle)
        part: Any = document
        for key in place[:-1]:
            part = part[key]
        part[place[-1]] = "changed" if part[place[-1]] != "changed" else 0
        rewrite(bundle, document)
        assert "was changed after it was written: its checksum differs" in refusal(bundle.folder)


def test_a_newer_schema_says_so_whatever_else_is_new(bundle: Bundle) -> None:
    rewrite(bundle, document_of(bundle) | {"schema_version": SCHEMA + 1, "something": "new"})
    assert f"has schema {SCHEMA + 1}, newer than this Gearshift reads ({SCHEMA}); update Gearshift" in refusal(
        bundle.folder
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"bugdet": "60W"}, 'unknown key "bugdet"'),
        ({"input_hieght": 64}, 'unknown key "input_hieght"; did you mean "input_height"?'),
        ({"input_height": 0}, '"input_height" is 0'),
        ({"paths": []}, '"paths" is []'),
        ({"schema_version": "one"}, '"schema_version" is'),
        ({"mean": [0.0, 0.0]}, "mean"),
    ],
)
def test_keys_and_values_that_do_not_fit_are_named(bundle: Bundle, change: dict[str, Any], said: str) -> None:
    rewrite(bundle, document_of(bundle) | change, sign=True)
    message = refusal(bundle.folder)
    assert said in message
    assert "build the bundle again" in message


def test_a_key_that_is_missing_is_named(bundle: Bundle) -> None:
    whole = document_of(bundle)
    for key in ("family", "paths", "meter", "files"):
        document = {name: value for name, value in whole.items() if name != key}
        rewrite(bundle, document, sign=True)
        assert f'key "{key}" is missing' in refusal(bundle.folder)


def test_a_path_that_this_version_does_not_know_is_refused_when_it_is_built(bundle: Bundle) -> None:
    document = document_of(bundle)
    document["paths"][1]["transforms"] = [{"transform": "warp", "value": "9"}]
    rewrite(bundle, document, sign=True)
    with pytest.raises(Exception, match='unknown transform "warp"'):
        _ = [path.spec for path in read_bundle(bundle.folder).record.paths]


def test_what_is_no_bundle_says_how_to_make_one(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "absent", tmp_path / "a" / "b"):
        assert "is no bundle: it holds no bundle.json; make one with `runtime build`" in refusal(folder)


def test_a_bundle_from_another_device_says_so_and_what_to_run(bundle: Bundle) -> None:
    here = identify("cpu")
    assert bundle.device == here
    assert bundle.foreign_to(here) is None
    other = dataclasses.replace(here, name="Another Processor", threads=64)
    message = bundle.foreign_to(other)
    assert message is not None
    assert "was measured on another device" in message
    assert "Another Processor" in message
    assert here.name in message
    assert f"run `runtime paths {bundle.folder} --remeasure`" in message
    gpu = DeviceIdentity(kind="cuda", name="Board", threads=8, memory_bytes=8 << 30, torch_version=here.torch_version)
    assert bundle.foreign_to(gpu) is not None
    assert bundle.foreign_to(dataclasses.replace(here, torch_version="0.0.1")) is None


# Writing ------------------------------------------------------------------------------------------------------


def test_an_occupied_place_is_refused_and_left_alone(bundle: Bundle, tmp_path: Path) -> None:
    occupied = tmp_path / "photographs"
    occupied.mkdir()
    (occupied / "holiday.jpg").write_bytes(b"irreplaceable")
    (tmp_path / "file").write_text("text")
    for folder, said in [
        (occupied, "holds files but no bundle; give an empty or a new folder"),
        (tmp_path / "file", "is a file; give the name of a folder to make"),
        (tmp_path / "file" / "below", "cannot write in"),
    ]:
        before = files_of(tmp_path)
        for attempt in (lambda at=folder: check_destination(at), lambda at=folder: write_bundle(at, bundle.record, {})):
            with pytest.raises(OutputError, match=said):
                attempt()
        assert files_of(tmp_path) == before


def test_a_place_that_cannot_be_written_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(OutputError, match="Permission denied; choose a folder that you may write to"):
        check_destination(tmp_path / "new")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_refused(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    with pytest.raises(OutputError, match="choose a folder that you may write to"):
        check_destination(locked / "new")


def test_empty_folders_and_older_bundles_may_be_replaced(bundle: Bundle, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write_bundle(tmp_path / "empty", bundle.record, {}, saving(tiny_segformer()))
    newer = bundle.record.model_copy(update={"gearshift": "2.0"})
    assert write_bundle(bundle.folder, newer, {}).record.gearshift == "2.0"
    assert not (bundle.folder / CHECKPOINT_FOLDER).exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.bundle", "empty"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("failing", [1, 2])
def test_a_replacement_that_fails_leaves_the_older_bundle_whole(
    bundle: Bundle, error: BaseException, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files_of(bundle.folder)
    rename, count = Path.rename, 0

    def failing_rename(self: Path, target: Path) -> Path:
        nonlocal count
        count += 1
        if count == failing:
            raise error
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing_rename)
    newer = bundle.record.model_copy(update={"gearshift": "2.0"})
    with pytest.raises((OutputError, KeyboardInterrupt)):
        write_bundle(bundle.folder, newer, {})
    monkeypatch.undo()
    assert read_bundle(bundle.folder) == bundle
    assert files_of(bundle.folder) == before
    assert [path.name for path in bundle.folder.parent.iterdir()] == [bundle.folder.name]


@pytest.mark.parametrize("step", ["save_file", "_write_record"])
def test_a_failure_while_writing_leaves_nothing_behind(
    bundle: Bundle, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"gearshift.paths.bundle.{step}", fail)
    for folder in (bundle.folder, bundle.folder.with_name("new")):
        with pytest.raises(OutputError, match="No space left on device"):
            write_bundle(folder, bundle.record, {"t": torch.zeros(1)})
    monkeypatch.undo()
    assert [path.name for path in bundle.folder.parent.iterdir()] == [bundle.folder.name]
    assert read_bundle(bundle.folder) == bundle


def test_a_process_killed_between_the_renames_leaves_one_whole_bundle_and_a_hint(bundle: Bundle) -> None:
    """As after a power cut: the older bundle was renamed aside, the new one not yet into place."""
    aside = bundle.folder.with_name(f".{bundle.folder.name}.x7y8.old")
    bundle.folder.rename(aside)
    message = refusal(bundle.folder)
    assert f"a whole one is left in {aside}: rename that" in message
    assert read_bundle(aside).record == bundle.record
    aside.rename(bundle.folder)
    assert read_bundle(bundle.folder) == bundle


def test_new_measurements_that_cannot_be_written_leave_the_old_ones(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files_of(bundle.folder)

    def fail(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OutputError, match="Read-only file system"):
        update_record(bundle, bundle.record.model_copy(update={"gearshift": "2.0"}))
    monkeypatch.undo()
    assert files_of(bundle.folder) == before


def test_derived_tensors_may_be_none_at_all(bundle: Bundle, tmp_path: Path) -> None:
    written = write_bundle(tmp_path / "bare", bundle.record, {}, saving(tiny_segformer()))
    assert load_file(written.folder / DERIVED_FILE) == {}
    path = written.load().build(PathSpec.parse("lossless"))
    with torch.no_grad():
        assert torch.equal(path(FRAME).logits, bundle.load().build(PathSpec.parse("lossless"))(FRAME).logits)
    save_file({"x": torch.zeros(1)}, written.folder / DERIVED_FILE)
    assert "was changed or cut short" in refusal(written.folder)

"""The published checkpoint: both layouts of names, every kind of file, and what each fault says."""

import re
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from gearshift.errors import CheckpointError, GearshiftError, ModelError
from gearshift.paths.models import load_model, weights_hash
from gearshift.paths.ofa import Supernet, checkpoint, load_supernet


@pytest.fixture(scope="module")
def small() -> dict[str, Tensor]:
    """Every tensor of the layout, each of one value only: files of these are small."""
    with torch.device("meta"):
        names = Supernet().state_dict()
    return {
        name: torch.tensor(number, dtype=tensor.dtype).expand(tensor.shape)
        for number, (name, tensor) in enumerate(names.items())
    }


def single(name: str) -> str:
    """The name in a single network, written out."""
    for nested, plain in ((".linear.linear.", ".linear."), ("bn.bn.", "bn."), ("conv.conv.weight", "conv.weight")):
        if nested in name:
            return name.replace(nested, plain)
    raise AssertionError(name)


def write(file: Path, weights: Any) -> Path:
    torch.save({"epoch": 3, "state_dict": weights}, file)
    return file


def refusal(kind: type[GearshiftError], file: Path) -> str:
    """Return the one line with which a file is refused."""
    with pytest.raises(kind) as caught:
        load_supernet(file)
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)
    return str(caught.value)


# What is read


@pytest.mark.parametrize("kind", ["published", "without suffix", "top", "single", "old format"])
def test_every_form_of_the_file_is_read(kind: str, small: dict[str, Tensor], tmp_path: Path) -> None:
    file = tmp_path / ("ofa_supernet_resnet50" if kind == "without suffix" else "weights.pth")
    weights = {single(name): tensor for name, tensor in small.items()} if kind == "single" else small
    if kind == "top":
        torch.save(weights, file)
    elif kind == "old format":
        torch.save({"state_dict": weights}, file, _use_new_zipfile_serialization=False)
    else:
        write(file, weights)
    supernet = load_supernet(file)
    loaded = supernet.state_dict()
    assert list(loaded) == list(small)
    assert all(torch.equal(loaded[name], tensor) for name, tensor in small.items())
    assert all(tensor.is_contiguous() and tensor.device.type == "cpu" for tensor in loaded.values())
    assert all(isinstance(parameter, torch.nn.Parameter) for parameter in supernet.parameters())
    assert not any(part.training for part in supernet.modules())


def test_names_of_a_single_network_are_the_published_ones(small: dict[str, Tensor]) -> None:
    names = {single(name) for name in small}
    assert len(names) == 368
    assert {"input_stem.1.conv.conv.weight", "blocks.0.downsample.bn.weight", "classifier.linear.bias"} <= names


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_what_is_written_is_what_is_loaded(suffix: str, supernet: Supernet, tmp_path: Path) -> None:
    """Through files of real size; half precision is loaded in single."""
    file = tmp_path / f"weights{suffix}"
    weights = supernet.state_dict()
    halves = {name: value.half() if value.is_floating_point() else value for name, value in weights.items()}
    if suffix == ".pth":
        write(file, weights)
    else:
        save_file(halves, file)
    loaded = load_supernet(file).state_dict()
    file.unlink()
    expected = weights if suffix == ".pth" else {name: halves[name].to(weights[name].dtype) for name in halves}
    assert all(torch.equal(loaded[name], tensor) for name, tensor in expected.items())
    assert {tensor.dtype for tensor in loaded.values()} == {torch.float32, torch.int64}


def test_without_a_file_the_published_one_is_asked_for(
    small: dict[str, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []

    def fetch(repository: str, name: str) -> str:
        asked.append((repository, name))
        return str(write(tmp_path / name, small))

    monkeypatch.setattr(checkpoint, "hf_hub_download", fetch)
    assert torch.equal(load_supernet().state_dict()["classifier.linear.linear.bias"], torch.full((1000,), 367.0))
    assert asked == [("han-cai/ofa", "ofa_supernet_resnet50")]


def test_a_model_of_that_name_is_the_supernet(small: dict[str, Tensor], tmp_path: Path) -> None:
    file = write(tmp_path / "a=b.pth", small)
    loaded = load_model(f"ofa:resnet50={file}")
    assert (loaded.reference, loaded.trained, loaded.image_size) == (f"ofa:resnet50={file}", True, (224, 224))
    assert weights_hash(loaded.module) == weights_hash(load_supernet(file))


# What is refused


def test_offline_the_message_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = checkpoint.hf_hub_download

    def offline(repository: str, name: str) -> Any:
        return original(repository, name, local_files_only=True, cache_dir=tmp_path)

    monkeypatch.setattr(checkpoint, "hf_hub_download", offline)
    with pytest.raises(ModelError) as caught:
        load_model("ofa:resnet50")
    assert str(caught.value) == (
        "https://huggingface.co/han-cai/ofa/resolve/main/ofa_supernet_resnet50 could not be fetched and is not in the "
        "cache; fetch it elsewhere and give the file: ofa:resnet50=FILE"
    )


@pytest.mark.parametrize("name", ["ofa:resnet", "ofa:", "ofa:resnet50=", "ofa:mobilenet=file.pth"])
def test_another_model_of_the_kind_is_refused(name: str) -> None:
    with pytest.raises(ModelError, match=re.escape("ofa:resnet50")):
        load_model(name)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.pth", tmp_path):
        assert f"{path} is no file here; give the published ofa_supernet_resnet50" in refusal(ModelError, path)


@pytest.mark.parametrize("layout", ["published", "single"])
@pytest.mark.parametrize("fault", ["missing", "several missing", "unexpected", "mismatched", "of another kind"])
def test_tensors_that_do_not_fit_are_named(fault: str, layout: str, small: dict[str, Tensor], tmp_path: Path) -> None:
    changed = dict(small)
    name = "blocks.0.conv1.bn.bn.running_mean"
    said = f"{fault} {name}"
    if fault == "missing":
        del changed[name]
    elif fault == "several missing":
        del changed[name], changed["classifier.linear.linear.bias"], changed["blocks.3.conv1.conv.conv.weight"]
        said = f"missing {name} and 2 more"
    elif fault == "unexpected":
        changed["blocks.18.conv1.conv.conv.weight"] = torch.zeros(3)
        said = "unexpected blocks.18.conv1.conv.conv.weight"
    elif fault == "mismatched":
        changed[name] = torch.zeros(64)
    else:
        changed[name] = torch.zeros(88, dtype=torch.int64)
        said = f"mismatched {name}"
    if layout == "single" and fault != "unexpected":
        changed = {single(name): tensor for name, tensor in changed.items()}
    file = write(tmp_path / "bad.pth", changed)
    message = f"the checkpoint {file} does not fit the Once-for-All ResNet-50 supernet: {said}"
    assert refusal(CheckpointError, file) == message


def test_a_tensor_under_both_names_is_refused(small: dict[str, Tensor], tmp_path: Path) -> None:
    name = "blocks.0.conv1.conv.conv.weight"
    file = write(tmp_path / "both.pth", dict(small) | {single(name): small[name]})
    assert f"holds {name} twice" in refusal(CheckpointError, file)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_a_file_cut_short_is_refused(suffix: str, share: float, small: dict[str, Tensor], tmp_path: Path) -> None:
    file = tmp_path / f"cut{suffix}"
    if suffix == ".pth":
        write(file, small)
    else:
        save_file({name: tensor.contiguous() for name, tensor in small.items() if tensor.dim() == 1}, file)
    file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
    said = refusal(CheckpointError, file)
    assert f"{file} cannot be read: it is damaged, cut short or holds more than tensors; fetch it again (" in said


def test_a_changed_byte_is_noticed(small: dict[str, Tensor], tmp_path: Path) -> None:
    """torch.load reads over it."""
    file = write(tmp_path / "flipped.pth", dict(small) | {"input_stem.0.conv.conv.weight": torch.ones(32, 3, 3, 3)})
    content = bytearray(file.read_bytes())
    content[content.index(struct.pack("<8f", *[1.0] * 8))] ^= 1
    file.write_bytes(content)
    said = refusal(CheckpointError, file)
    assert re.search(r"fetch it again \(.*/data/\d+ does not match its checksum\)", said)


@pytest.mark.parametrize("content", [None, 3, [torch.zeros(1)], {"state_dict": 3}, {"epoch": 3}, {"a": [1]}])
def test_a_file_of_something_else_is_refused(content: object, tmp_path: Path) -> None:
    file = tmp_path / "other.pth"
    torch.save(content, file)
    said = 'holds no tensors by name, at its top or under "state_dict"'
    assert said in refusal(CheckpointError, file)


def test_a_file_that_would_run_code_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "code.pth"
    torch.save({"state_dict": {"a": Path("b")}}, file)
    assert "holds more than tensors" in refusal(CheckpointError, file)

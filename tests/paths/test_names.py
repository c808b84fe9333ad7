"""Models by one word, and from files: what a name stands for, what a bundle carries of it, what is refused."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import SwinConfig, SwinForImageClassification, ViTConfig, ViTForImageClassification

from gearshift.errors import CheckpointError, ModelError
from gearshift.paths.build import family_of
from gearshift.paths.models import LoadedModel, describe, described_models, load_model, make_timm, weights_hash
from gearshift.paths.models.loaded import inside

TIMM = "resnet10t"


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    torch.manual_seed(9)
    module = make_timm(TIMM)
    with torch.no_grad():
        module.fc.bias.normal_()
    save_file(module.state_dict(), tmp_path / "weights.safetensors")
    return tmp_path / "weights.safetensors"


def reloaded(model: LoadedModel, folder: Path) -> LoadedModel:
    """What a bundle that carries the model would load."""
    model.save(folder / "checkpoint")
    return load_model(inside(folder, model.reference_inside), random_init=not model.trained)


@pytest.mark.parametrize("word", ["segformer-b0", "deit-tiny", "ofa-resnet50"])
def test_one_word_is_a_described_model(word: str) -> None:
    loaded = load_model(word, random_init=True)
    assert not loaded.trained
    assert family_of(loaded.module).name in ("segformer", "vit", "ofa")


def test_one_word_is_an_architecture_of_timm() -> None:
    loaded = load_model(TIMM, random_init=True)
    assert (loaded.reference, loaded.trained, loaded.image_size) == (f"timm:{TIMM}", False, (176, 176))


def test_every_described_model_says_where_trained_weights_are() -> None:
    """All but the one whose weights ship with the package."""
    without = {name for name in described_models() if describe(name).checkpoint is None}
    assert without == {"segformer-street"}


def test_weights_of_a_file_are_loaded_with_what_the_model_expects(weights: Path, tmp_path: Path) -> None:
    loaded = load_model(f"timm:{TIMM}={weights}")
    assert loaded.trained
    assert torch.equal(loaded.module.fc.bias, load_file(weights)["fc.bias"])
    assert loaded.preprocessing.crop == loaded.image_size
    again = reloaded(loaded, tmp_path / "bundle")
    assert weights_hash(again.module) == weights_hash(loaded.module)
    assert again.preprocessing == loaded.preprocessing


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("missing", "does not hold timm's resnet10t: missing fc.bias"),
        ("unexpected", "unexpected another"),
        ("mismatched", "mismatched fc.bias"),
        ("cut", "is damaged or no safetensors file"),
        ("gone", "is no file here"),
    ],
)
def test_weights_that_do_not_fit_are_refused(fault: str, said: str, weights: Path) -> None:
    tensors = load_file(weights)
    if fault == "missing":
        del tensors["fc.bias"]
    elif fault == "unexpected":
        tensors["another"] = torch.zeros(1)
    elif fault == "mismatched":
        tensors["fc.bias"] = torch.zeros(3)
    save_file(tensors, weights)
    if fault == "cut":
        weights.write_bytes(weights.read_bytes()[:-1000])
    elif fault == "gone":
        weights.unlink()
    with pytest.raises(CheckpointError) as caught:
        load_model(f"timm:{TIMM}={weights}")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "name", [f"timm:{TIMM}=", "timm:vit_tiny_patch16_224,head=x", "timm:resnet10t=a,head=b", "ofa:resnet50="]
)
def test_a_file_that_is_not_named_is_asked_for(name: str) -> None:
    with pytest.raises(ModelError):
        load_model(name)


@pytest.mark.parametrize("kind", ["vit", "swin"])
def test_any_image_model_of_transformers_is_loaded_with_its_processor(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = (
        ViTForImageClassification(
            ViTConfig(
                image_size=32, patch_size=8, hidden_size=16, num_attention_heads=2, num_hidden_layers=1, num_labels=3
            )
        )
        if kind == "vit"
        else SwinForImageClassification(
            SwinConfig(image_size=64, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=4, num_labels=3)
        )
    )
    module.save_pretrained(tmp_path / "saved")
    (tmp_path / "saved" / "preprocessor_config.json").write_text(
        '{"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.2, 0.2], "resample": 3, '
        '"size": {"height": 48, "width": 40}}'
    )
    loaded = load_model(f"hf:{tmp_path / 'saved'}")
    assert type(loaded.module) is type(module)
    assert family_of(loaded.module).name == kind
    assert loaded.preprocessing.mean == (0.5, 0.4, 0.3)
    assert (loaded.preprocessing.size, loaded.preprocessing.interpolation) == ((48, 40), "bicubic")
    again = reloaded(loaded, tmp_path / "bundle")
    assert weights_hash(again.module) == weights_hash(module)


def test_a_supernet_is_carried_by_a_bundle(tmp_path: Path) -> None:
    loaded = load_model("ofa:resnet50", random_init=True)
    assert weights_hash(reloaded(loaded, tmp_path).module) == weights_hash(loaded.module)

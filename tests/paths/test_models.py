"""Models by name: descriptions, checkpoints in either key layout, and what each fault says."""

import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import SegformerForImageClassification, SegformerForSemanticSegmentation
from transformers.utils import logging as transformers_logging

from gearshift.errors import CheckpointError, ConfigError, GearshiftError, ModelError, OutputError
from gearshift.paths.models import (
    TransformersDescription,
    build_described,
    describe,
    described_models,
    load_model,
    save_checkpoint,
    weights_hash,
)

MakeStock = Callable[..., Any]

# From the names of transformers 5 to those of 4, in which most published checkpoints are written.
OLDER_NAMES = [
    (r"segformer\.stages\.(\d+)\.patch_embeddings\.", r"segformer.encoder.patch_embeddings.\1."),
    (r"segformer\.stages\.(\d+)\.blocks\.", r"segformer.encoder.block.\1."),
    (r"segformer\.stages\.(\d+)\.layer_norm", r"segformer.encoder.layer_norm.\1"),
    (r"attention\.q_proj", "attention.self.query"),
    (r"attention\.k_proj", "attention.self.key"),
    (r"attention\.v_proj", "attention.self.value"),
    (r"attention\.sequence_reduction\.sequence_reduction", "attention.self.sr"),
    (r"attention\.sequence_reduction\.layer_norm", "attention.self.layer_norm"),
    (r"attention\.o_proj", "attention.output.dense"),
    (r"mlp\.fc1", "mlp.dense1"),
    (r"mlp\.fc2", "mlp.dense2"),
    (r"layernorm_before", "layer_norm_1"),
    (r"layernorm_after", "layer_norm_2"),
    (r"decode_head\.linear_projections", "decode_head.linear_c"),
]


def older_name(name: str) -> str:
    for pattern, replacement in OLDER_NAMES:
        name = re.sub(pattern, replacement, name)
    return name


def write(folder: Path, model: Any, weights: dict[str, Tensor], **description: Any) -> Path:
    """Write a checkpoint folder by hand: no loader's or saver's opinion is in it."""
    folder.mkdir(exist_ok=True)
    save_file(
        {name: value.contiguous() for name, value in weights.items()},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    (folder / "config.json").write_text(json.dumps(model.config.to_dict() | description))
    return folder


@pytest.fixture
def checkpoint(stock: Any, tmp_path: Path) -> Path:
    """A whole checkpoint in the layout of transformers 5."""
    return write(tmp_path / "checkpoint", stock, stock.state_dict())


def refusal(kind: type[GearshiftError], reference: str) -> str:
    """Return the one line with which a model is refused."""
    with pytest.raises(kind) as caught:
        load_model(reference)
    assert type(caught.value) is kind
    message = str(caught.value)
    assert "\n" not in message
    return message


# Descriptions


def test_every_description_can_be_read() -> None:
    assert {"segformer-b0", "segformer-b2", "segformer-b5", "segformer-street"} <= set(described_models())
    families = {name: describe(name).family for name in described_models()}
    assert {family for name, family in families.items() if name.startswith("segformer")} == {"segformer"}
    assert set(families.values()) == {"segformer", "ofa", "transformers"}


def test_a_described_model_is_as_described() -> None:
    loaded = load_model("config:segformer-street")
    assert (loaded.reference, loaded.trained) == ("config:segformer-street", False)
    assert type(loaded.module) is SegformerForSemanticSegmentation
    assert not any(part.training for part in loaded.module.modules())
    assert loaded.module.config.depths == [2, 2, 2, 2]
    assert loaded.module.config.id2label[3] == "road"
    assert loaded.module.decode_head.classifier.out_channels == 11


def test_random_weights_are_the_same_each_time_and_touch_no_one_elses_chance() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second = (weights_hash(load_model("config:segformer-street").module) for _ in range(2))
    assert first == second
    assert torch.equal(torch.get_rng_state(), before)


def test_b2_has_its_published_size() -> None:
    """27.4 M parameters with 150 classes (SegFormer, table 1: 27.5 M)."""
    model = build_described("segformer-b2")
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6, 1) == 27.5


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("config:segformer-b9", 'no model description "segformer-b9"; did you mean "segformer-b'),
        ("config:segformr-street", 'did you mean "segformer-street"?'),
        ("config:xyz", 'no model description "xyz"; known: convnext-tiny-upernet, deformable-detr-resnet-50'),
        ("segformr-b2", "it is no folder here, no architecture of timm, and none of"),
        ("segformr-b2", 'did you mean "segformer-b'),
        ("onnx:model", 'unknown model "onnx:model"; write hf:NAME_OR_DIR'),
        ("config:", "or one word: convnext-tiny-upernet"),
        ("timm:vit_tny_patch16_224", 'timm has no architecture "vit_tny_patch16_224"; did you mean "vit_t'),
        ("timm:", "timm:NAME"),
        ("hf:", "config:NAME"),
        ("", "config:NAME"),
    ],
)
def test_an_unknown_name_is_refused_with_what_is_known(reference: str, said: str) -> None:
    assert said in refusal(ModelError, reference)


# Checkpoints


def test_both_key_layouts_give_the_same_weights(stock: Any, checkpoint: Path, tmp_path: Path) -> None:
    renamed = {older_name(name): value for name, value in stock.state_dict().items()}
    assert "segformer.encoder.block.0.0.attention.self.query.weight" in renamed
    assert "decode_head.linear_c.0.proj.weight" in renamed
    older = write(tmp_path / "older", stock, renamed)
    for folder in (checkpoint, older):
        loaded = load_model(f"hf:{folder}")
        assert (loaded.reference, loaded.trained) == (f"hf:{folder}", True)
        assert not any(part.training for part in loaded.module.modules())
        assert weights_hash(loaded.module) == weights_hash(stock)


def test_what_save_pretrained_writes_is_read(stock: Any, tmp_path: Path) -> None:
    stock.save_pretrained(tmp_path / "saved")
    assert weights_hash(load_model(f"hf:{tmp_path / 'saved'}").module) == weights_hash(stock)


def test_what_save_checkpoint_writes_is_read(make_stock: MakeStock, tmp_path: Path) -> None:
    model = make_stock().to(memory_format=torch.channels_last)
    save_checkpoint(model, tmp_path / "saved")
    loaded = load_model(f"hf:{tmp_path / 'saved'}").module
    assert weights_hash(loaded) == weights_hash(model)
    assert loaded.config.id2label == model.config.id2label
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == ["config.json", "model.safetensors"]


def test_a_checkpoint_that_cannot_be_written_is_refused(stock: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(OutputError, match="cannot write"):
        save_checkpoint(stock, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "kept"


def test_a_folder_needs_no_prefix(stock: Any, checkpoint: Path) -> None:
    loaded = load_model(str(checkpoint))
    assert loaded.reference == f"hf:{checkpoint}"
    assert weights_hash(loaded.module) == weights_hash(stock)


def test_half_precision_weights_are_loaded_in_single(stock: Any, tmp_path: Path) -> None:
    halves = {name: value.half() if value.is_floating_point() else value for name, value in stock.state_dict().items()}
    module = load_model(f"hf:{write(tmp_path / 'half', stock, halves, dtype='float16')}").module
    assert module.dtype == torch.float32
    assert all(value.dtype != torch.float16 for value in module.state_dict().values())


def test_loading_prints_nothing_and_leaves_the_loggers_alone(
    checkpoint: Path, stock: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    weights = stock.state_dict()
    del weights["decode_head.batch_norm.running_var"]
    levels = [logging.getLogger(name).level for name in ("transformers", "huggingface_hub")]
    bars = transformers_logging.is_progress_bar_enabled()
    load_model(f"hf:{checkpoint}")
    refusal(CheckpointError, f"hf:{write(tmp_path / 'bad', stock, weights)}")
    assert capfd.readouterr() == ("", "")
    assert [logging.getLogger(name).level for name in ("transformers", "huggingface_hub")] == levels
    assert transformers_logging.is_progress_bar_enabled() == bars


# Models that no family knows


def test_a_model_of_any_library_is_made_with_the_size_that_it_is_meant_for() -> None:
    described, listed = (
        load_model("config:vit-base"),
        load_model("timm:vit_tiny_patch16_224.augreg_in21k_ft_in1k", random_init=True),
    )
    assert (described.image_size, listed.image_size) == ((224, 224), (224, 224))
    assert not described.trained
    assert not listed.trained
    with torch.no_grad():
        assert listed.module(torch.zeros(1, 3, 224, 224)).shape == (1, 1000)


@pytest.mark.parametrize(
    ("architecture", "config", "said"),
    [
        ("ViTForEverything", {}, 'transformers has no architecture "ViTForEverything"'),
        ("ViTForImageClassification", {"hidden_size": "wide"}, "ViTForImageClassification cannot be made"),
    ],
)
def test_a_description_that_makes_no_model_is_refused(architecture: str, config: dict[str, int], said: str) -> None:
    description = TransformersDescription(
        family="transformers", architecture=architecture, model_type="vit", image_size=(224, 224), config=config
    )
    with pytest.raises(ConfigError, match=said):
        description.build()


# Faults


def damage(weights: dict[str, Tensor], kind: str) -> dict[str, Tensor]:
    changed = dict(weights)
    if kind == "missing":
        del changed["decode_head.linear_fuse.weight"]
    if kind == "several missing":
        del changed["decode_head.classifier.bias"], changed["decode_head.classifier.weight"]
    if kind == "unexpected":
        changed["decode_head.second_classifier.weight"] = torch.zeros(3)
    if kind == "mismatched":
        changed["decode_head.classifier.weight"] = torch.zeros(5, 256, 1, 1)
    return changed


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("missing", "does not fit SegformerForSemanticSegmentation: missing decode_head.linear_fuse.weight"),
        ("several missing", "missing decode_head.classifier.bias and 1 more"),
        ("unexpected", "unexpected decode_head.second_classifier.weight"),
        ("mismatched", "mismatched decode_head.classifier.weight"),
    ],
)
@pytest.mark.parametrize("layout", ["newer", "older"])
def test_weights_that_do_not_fit_are_named(layout: str, kind: str, said: str, stock: Any, tmp_path: Path) -> None:
    weights = damage(stock.state_dict(), kind)
    if layout == "older":
        weights = {older_name(name): value for name, value in weights.items()}
    assert said in refusal(CheckpointError, f"hf:{write(tmp_path / 'bad', stock, weights)}")


def test_an_encoder_without_a_decoder_is_refused(stock: Any, tmp_path: Path) -> None:
    model = SegformerForImageClassification(stock.config)
    said = refusal(CheckpointError, f"hf:{write(tmp_path / 'encoder', model, model.state_dict())}")
    assert "missing decode_head." in said


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_a_file_cut_short_is_refused(share: float, checkpoint: Path) -> None:
    file = checkpoint / "model.safetensors"
    file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
    said = refusal(CheckpointError, f"hf:{checkpoint}")
    assert "damaged or cut short" in said
    assert "fetch them again" in said


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999, 1.0])
def test_weights_in_pickled_form_are_read_whole_or_refused(share: float, stock: Any, checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    file = checkpoint / "pytorch_model.bin"
    torch.save(dict(stock.state_dict()), file)
    file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
    if share == 1:
        assert weights_hash(load_model(f"hf:{checkpoint}").module) == weights_hash(stock)
    else:
        assert f"the checkpoint {checkpoint} cannot be" in refusal(CheckpointError, f"hf:{checkpoint}")


def test_a_folder_without_weights_is_refused(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    assert f"the checkpoint {checkpoint} cannot be read" in refusal(CheckpointError, f"hf:{checkpoint}")


def test_a_folder_without_a_description_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "config.json").unlink()
    for folder in (checkpoint, tmp_path / "empty"):
        folder.mkdir(exist_ok=True)
        said = refusal(CheckpointError, f"hf:{folder}")
        assert said == f"{folder} holds no config.json; give the folder that save_pretrained wrote"


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '"segformer"', "\xff"])
def test_a_description_that_is_no_object_is_refused(text: str, checkpoint: Path) -> None:
    (checkpoint / "config.json").write_bytes(text.encode("latin-1"))
    assert "config.json is not a JSON object; fetch the checkpoint again" in refusal(
        CheckpointError, f"hf:{checkpoint}"
    )


@pytest.mark.parametrize("kind", ["bert", None])
def test_another_kind_of_model_is_refused(kind: str | None, checkpoint: Path) -> None:
    (checkpoint / "config.json").write_text(json.dumps({"model_type": kind}))
    said = refusal(ModelError, f"hf:{checkpoint}")
    assert f'{checkpoint} holds a model of type "{kind}", which neither segments, detects nor classifies' in said


@pytest.mark.parametrize("change", [{"hidden_sizes": "wide"}, {"hidden_act": "sparkle"}, {"depths": [2, 1]}])
def test_a_description_that_makes_no_sense_is_refused(change: dict[str, Any], checkpoint: Path) -> None:
    file = checkpoint / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    assert f"the checkpoint {checkpoint} cannot be loaded: " in refusal(CheckpointError, f"hf:{checkpoint}")


def test_a_file_in_place_of_a_folder_is_refused(checkpoint: Path) -> None:
    file = checkpoint / "model.safetensors"
    assert refusal(CheckpointError, f"hf:{file}") == (
        f"{file} is a file; give the folder that holds it and config.json"
    )


@pytest.mark.parametrize("name", ["/no/such/folder", "./no/such", "~/nothing here", "nobody/no-such-model"])
def test_what_is_neither_here_nor_on_the_hub_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    original = SegformerForSemanticSegmentation.from_pretrained

    def offline(name: str, **arguments: Any) -> Any:
        asked.append(name)
        return original(name, local_files_only=True, **arguments)

    monkeypatch.setattr(SegformerForSemanticSegmentation, "from_pretrained", offline)
    said = refusal(ModelError, f"hf:{name}")
    assert said == (
        f"{name} is no folder here and could not be fetched from the hub; check the name, or give a local folder"
    )


# Hashes


def test_one_changed_value_changes_the_hash(make_stock: MakeStock) -> None:
    model = make_stock()
    before = weights_hash(model)
    assert before == weights_hash(make_stock())
    assert before != weights_hash(make_stock(seed=1))
    value = model.decode_head.batch_norm.running_var[3]
    kept = value.clone()
    value += 1e-3
    assert weights_hash(model) != before
    value.copy_(kept)
    assert weights_hash(model) == before


def test_shape_type_and_name_are_part_of_the_hash() -> None:
    class Holding(torch.nn.Module):
        def __init__(self, **tensors: Tensor) -> None:
            super().__init__()
            for name, tensor in tensors.items():
                self.register_buffer(name, tensor)

    modules = [
        Holding(a=torch.zeros(4)),
        Holding(b=torch.zeros(4)),
        Holding(a=torch.zeros(2, 2)),
        Holding(a=torch.zeros(4, dtype=torch.int32)),
        Holding(a=torch.zeros(8, dtype=torch.bfloat16)),
        Holding(a=torch.tensor(0.0)),
        Holding(),
    ]
    assert len({weights_hash(module) for module in modules}) == len(modules)


def test_layout_in_memory_is_no_part_of_the_hash(make_stock: MakeStock) -> None:
    model = make_stock()
    assert weights_hash(model) == weights_hash(make_stock().to(memory_format=torch.channels_last))

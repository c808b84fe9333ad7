"""DETR and Deformable DETR beyond what holds for every path: masks of padded frames, sizes, what is refused."""

from typing import Any

import pytest
import torch
from torch import Tensor

from gearshift.errors import InputError, PathRefusedError
from gearshift.paths.build import PathFactory
from gearshift.paths.spec import PathSpec
from tests.paths.specimens.detr import small_deformable_detr, small_detr
from tests.paths.specimens.specimen import everything

MAKES = {
    "detr": small_detr,
    "learned positions": lambda: small_detr(position_embedding_type="learned"),
    "deformable": small_deformable_detr,
    "refined": lambda: small_deformable_detr(with_box_refine=True),
}


def padded(height: int = 61, width: int = 99) -> tuple[Tensor, Tensor]:
    """Two frames, of which the second is padded at the right and below."""
    mask = torch.ones(2, height, width, dtype=torch.long)
    mask[1, :, 70:] = 0
    mask[1, 40:] = 0
    return torch.randn(2, 3, height, width, dtype=torch.float64), mask


@pytest.mark.parametrize("name", MAKES)
def test_a_lossless_path_is_exact_for_padded_frames(name: str) -> None:
    model: Any = MAKES[name]().double()
    path = PathFactory(model).build(PathSpec.parse("lossless+norms"))
    frames, mask = padded()
    with torch.inference_mode():
        got, expected = everything(path(frames, pixel_mask=mask)), everything(model(frames, pixel_mask=mask))
        unpadded = everything(model(frames))
    for key, value in expected.items():
        torch.testing.assert_close(got[key], value, rtol=1e-9, atol=1e-9)
    assert not torch.allclose(expected["logits"], unpadded["logits"])


@pytest.mark.parametrize("name", ["detr", "deformable"])
def test_a_mask_follows_its_frames_to_another_size(name: str) -> None:
    model: Any = MAKES[name]().double()
    path = PathFactory(model).build(PathSpec.parse("size=50%"))
    frames, mask = padded(64, 128)
    small = torch.nn.functional.interpolate(frames, size=(32, 64), mode="bilinear")
    with torch.inference_mode():
        got = path(frames, pixel_mask=mask)
        expected = model(small, pixel_mask=mask[:, ::2, ::2])
    torch.testing.assert_close(got.pred_boxes, expected.pred_boxes)


def test_two_stages_are_refused_and_the_stock_form_is_offered() -> None:
    model = small_deformable_detr(with_box_refine=True, two_stage=True, two_stage_num_proposals=4)
    factory = PathFactory(model)
    with pytest.raises(PathRefusedError, match="two_stage"):
        factory.build(PathSpec.parse("lossless"))
    assert factory.family.base(model) == [PathSpec()]


def test_norms_alone_and_what_a_lossless_path_does_not_know_are_refused() -> None:
    factory = PathFactory(small_detr())
    with pytest.raises(PathRefusedError, match=r"lossless\+norms"):
        factory.build(PathSpec.parse("norms"))
    path = factory.build(PathSpec.parse("lossless"))
    with pytest.raises(InputError, match="output_attentions"):
        path(torch.zeros(1, 3, 64, 64), output_attentions=True)

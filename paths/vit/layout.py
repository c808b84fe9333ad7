"""Names inside the stock classes: which classes the family knows, and where their parts are.

Classes are told by their full names, so that neither library is imported to look at a module of another.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import nn

from gearshift.paths.anatomy import Anatomy, AttentionSite, MlpSite


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where the parts of one stock class are.

    Attributes:
        library: Whose modules they are.
        trunk: The module with embeddings, blocks and norm; "" is the model itself.
        blocks, norm: Inside the trunk.
        block: The class of a block.
        norms: Of a block: before the attention, before the MLP.
        attention: Of a block.
        attention_class: Its class.
        projections, output: Inside the attention, as in `AttentionSite`.
        attributes: Of the attention, as in `AttentionSite`.
        heads: Linear maps to the classes, one for each token that is read.
    """

    library: Literal["timm", "transformers"]
    trunk: str
    blocks: str
    norm: str
    block: str
    norms: tuple[str, str]
    attention: str
    attention_class: str
    projections: Mapping[str, int]
    output: str
    attributes: Mapping[str, Literal["heads", "channels"]]
    heads: tuple[str, ...]

    def inside(self, name: str) -> str:
        """The full name of a part of the trunk."""
        return f"{self.trunk}.{name}" if self.trunk else name

    def trunk_of(self, model: nn.Module) -> Any:
        """The trunk of a model."""
        return model.get_submodule(self.trunk)

    def blocks_of(self, model: nn.Module) -> Iterator[tuple[str, Any]]:
        """Full names and modules of all blocks."""
        for index, block in enumerate(getattr(self.trunk_of(model), self.blocks)):
            yield self.inside(f"{self.blocks}.{index}"), block


_TIMM = Layout(
    library="timm",
    trunk="",
    blocks="blocks",
    norm="norm",
    block="timm.models.vision_transformer.Block",
    norms=("norm1", "norm2"),
    attention="attn",
    attention_class="timm.layers.attention.Attention",
    projections={"qkv": 3},
    output="proj",
    attributes={"num_heads": "heads", "attn_dim": "channels"},
    heads=("head",),
)
_VIT = Layout(
    library="transformers",
    trunk="vit",
    blocks="layers",
    norm="layernorm",
    block="transformers.models.vit.modeling_vit.ViTLayer",
    norms=("layernorm_before", "layernorm_after"),
    attention="attention",
    attention_class="transformers.models.vit.modeling_vit.ViTAttention",
    projections={"q_proj": 1, "k_proj": 1, "v_proj": 1},
    output="o_proj",
    attributes={"num_attention_heads": "heads"},
    heads=("classifier",),
)
_DEIT = replace(
    _VIT,
    trunk="deit",
    block="transformers.models.deit.modeling_deit.DeiTLayer",
    attention_class="transformers.models.deit.modeling_deit.DeiTAttention",
)
TIMM = "timm.models.vision_transformer.VisionTransformer"
DISTILLED = "timm.models.deit.VisionTransformerDistilled"
VIT = "transformers.models.vit.modeling_vit.ViTForImageClassification"
DEIT = "transformers.models.deit.modeling_deit.DeiTForImageClassification"
TEACHER = "transformers.models.deit.modeling_deit.DeiTForImageClassificationWithTeacher"
SEGMENTER = "gearshift.paths.vit.segmenter.VitSegmenter"
LAYOUTS: Mapping[str, Layout] = {
    TIMM: _TIMM,
    DISTILLED: replace(_TIMM, heads=("head", "head_dist")),
    SEGMENTER: replace(_TIMM, trunk="backbone", heads=("classifier",)),
    VIT: _VIT,
    DEIT: _DEIT,
    TEACHER: replace(_DEIT, heads=("cls_classifier", "distillation_classifier")),
}


def class_of(module: object) -> str:
    """The full name of an object's class."""
    return f"{type(module).__module__}.{type(module).__qualname__}"


def layout_of(model: nn.Module) -> Layout:
    """Where the parts of a model of this family are."""
    return LAYOUTS[class_of(model)]


def anatomy_of(model: Any) -> Anatomy:
    """All blocks as one stage; attentions whose heads can be cut, MLPs whose hidden channels can be."""
    layout = layout_of(model)
    names, attentions, mlps, linears = [], [], [], []
    for name, block in layout.blocks_of(model):
        names.append(name)
        attention = getattr(block, layout.attention, None)
        if class_of(attention) == layout.attention_class and not _spans_heads(attention):
            attentions.append(site := _attention_site(layout, f"{name}.{layout.attention}", attention))
            linears += [*site.projections, site.output]
        if _is_plain_mlp(mlp := getattr(block, "mlp", None)):
            mlps.append(MlpSite(expand=f"{name}.mlp.fc1", reduce=f"{name}.mlp.fc2"))
            linears += [f"{name}.mlp.{part}" for part in ("fc1", "fc2") if type(getattr(mlp, part)) is nn.Linear]
    return Anatomy(
        stages=(tuple(names),),
        attentions=tuple(attentions),
        mlps=tuple(mlps),
        linears=tuple(linears),
        fixed=layout.heads,
        example_shape=(_channels(model), *frame_size(model)),
    )


def frame_size(model: Any) -> tuple[int, int]:
    """Height and width of the frames that a model was made for."""
    layout = layout_of(model)
    height, width = _patches(model).img_size if layout.library == "timm" else _patches(model).image_size
    return int(height), int(width)


def patch_size(model: Any) -> tuple[int, int]:
    """Height and width of a patch."""
    height, width = _patches(model).patch_size
    return int(height), int(width)


def _patches(model: Any) -> Any:
    layout = layout_of(model)
    trunk = layout.trunk_of(model)
    return trunk.patch_embed if layout.library == "timm" else trunk.embeddings.patch_embeddings


def _channels(model: Any) -> int:
    return int(next(_patches(model).parameters()).shape[1])


def _attention_site(layout: Layout, name: str, attention: Any) -> AttentionSite:
    outputs = getattr(attention, layout.output).in_features
    return AttentionSite(
        name=name,
        heads=outputs // attention.head_dim,
        head_dim=attention.head_dim,
        projections={f"{name}.{part}": parts for part, parts in layout.projections.items()},
        output=f"{name}.{layout.output}",
        attributes=dict(layout.attributes),
    )


def _spans_heads(attention: Any) -> bool:
    """Whether something besides the projections works on the channels of all heads at once."""
    return getattr(attention, "gate", None) is not None or not isinstance(
        getattr(attention, "norm", nn.Identity()), nn.Identity
    )


def _is_plain_mlp(mlp: Any) -> bool:
    """Whether only an activation stands between its two linear maps."""
    return class_of(mlp) in (
        "timm.layers.mlp.Mlp",
        "transformers.models.vit.modeling_vit.ViTMLP",
        "transformers.models.deit.modeling_deit.DeiTMLP",
    ) and isinstance(getattr(mlp, "norm", nn.Identity()), nn.Identity)

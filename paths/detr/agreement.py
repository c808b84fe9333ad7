"""How far two models find the same objects, where nobody has labelled any: F1 of their detections.

A detection of either side agrees with one of the other of the same class whose box overlaps it by an IoU of at least
0.5, one to one; as many pairs are made as can be, so that neither side is the judge. Over frames the counts add up:
`matched / total` is F1, `2 * pairs / (ours + theirs)`. A frame in which neither finds anything adds nothing to either
count: it says nothing about the objects found.

Which detections count is one decision for a whole judged set, made from the stock model alone (`judged_threshold`):
those that score 0.5 or more; all queries, each with its best class, where the stock model finds nothing at 0.5 in any
frame, as with random weights.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching
from torch import Tensor
from torchvision.ops import box_convert, box_iou

CONFIDENT = 0.5
OVERLAP = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Detections:
    """What a model finds in one frame, best first.

    Attributes:
        classes: `(D,)`.
        scores: `(D,)`, between 0 and 1.
        boxes: `(D, 4)`, left, top, right, bottom, as shares of the frame.
    """

    classes: Tensor
    scores: Tensor
    boxes: Tensor


def detections(logits: Tensor, boxes: Tensor, classes: int, threshold: float = CONFIDENT) -> Detections:
    """Each query's best class, where it scores at least `threshold`.

    Args:
        logits: `(Q, K)` scored by themselves (sigmoid), or `(Q, K + 1)` with "no object" last (softmax).
        boxes: `(Q, 4)`, centre, width and height, as shares of the frame.
        classes: The number of classes `K`, which tells the two apart.
        threshold: 0 keeps every query.
    """
    shares = logits.float().softmax(-1)[:, :classes] if logits.shape[-1] > classes else logits.float().sigmoid()
    scores, best = shares.max(-1)
    order = scores.argsort(descending=True, stable=True)
    order = order[scores[order] >= threshold]
    corners = box_convert(boxes.float(), "cxcywh", "xyxy")
    return Detections(classes=best[order], scores=scores[order], boxes=corners[order])


def agreement(ours: Detections, theirs: Detections, overlap: float = OVERLAP) -> tuple[int, int]:
    """Detections of both sides that agree, and all of them: two counts that add up over frames.

    Args:
        ours: Of one model.
        theirs: Of the other, for the same frame.
        overlap: Least intersection over union of two boxes that agree.
    """
    total = len(ours.classes) + len(theirs.classes)
    if not len(ours.classes) or not len(theirs.classes):
        return 0, total
    alike = (box_iou(ours.boxes, theirs.boxes) >= overlap) & (ours.classes[:, None] == theirs.classes[None])
    partners = maximum_bipartite_matching(csr_array(alike.cpu().numpy()), perm_type="column")
    return 2 * int((partners >= 0).sum()), total


def judged_threshold(best_scores: Iterable[float]) -> float:
    """The threshold for a judged set, from the stock model's best score in each of its frames."""
    return CONFIDENT if any(score >= CONFIDENT for score in best_scores) else 0.0

"""What models are for and how their answers are judged: one file per job.

segmentation      class of each pixel: mean IoU            classification    class of the frame: top-1
    detection         boxes and their classes: agreement with the stock model alone
"""

from gearshift.paths.family import TaskName
from gearshift.paths.tasks.classification import Classification
from gearshift.paths.tasks.detection import Detection
from gearshift.paths.tasks.segmentation import Segmentation
from gearshift.paths.tasks.task import Task


def task_of(name: TaskName, classes: int) -> Task:
    """How a model for this job, of so many classes, is judged."""
    if name == "segmentation":
        return Segmentation(classes)
    return Classification() if name == "classification" else Detection(classes)


__all__ = ["Classification", "Detection", "Segmentation", "Task", "task_of"]

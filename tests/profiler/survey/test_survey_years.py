"""Years from what a library's documentation cites."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.profiler.survey.timm_library import TimmLibrary
from gearshift.profiler.survey.years import FIRST, ONLY, OWN, TITLE, year_of

ONE_YEAR = "Papers:\n* `Net` - https://arxiv.org/abs/2101.08692\n* `Net, again` - https://arxiv.org/pdf/2112.06171v2"
SEVERAL = """
  * `Deep Nets` - https://arxiv.org/abs/1512.03385
  * `EVA: Limits` - https://arxiv.org/abs/2211.07636
  * `EVA-02: A Representation` - https://arxiv.org/abs/2303.11331
  * `A: Too short to name anything` - https://arxiv.org/abs/1001.00001
  journal={arXiv preprint arXiv:2401.00001}
"""


@pytest.mark.parametrize(
    ("name", "own", "file", "year", "found_in"),
    [
        ("net", "As in arXiv:2006.14090 and https://arxiv.org/abs/1909.00001", ONE_YEAR, 2019, OWN),
        ("eva02_base", "no paper", SEVERAL, 2023, TITLE),
        ("eva_giant", None, SEVERAL, 2022, TITLE),
        ("eva_giant", "arXiv:2006.14090", SEVERAL, 2020, OWN),
        ("deepnet", None, SEVERAL, 2010, FIRST),
        ("evav2_base", None, SEVERAL, 2010, FIRST),
        ("a_net", None, SEVERAL, 2010, FIRST),
        ("net", None, ONE_YEAR, 2021, TITLE),
        ("other", "", ONE_YEAR, 2021, ONLY),
        ("vgg", None, "https://arxiv.org/abs/1409.1556", 2014, ONLY),
    ],
)
def test_the_nearest_paper_counts(name: str, own: str | None, file: str, year: int, found_in: str) -> None:
    found = year_of(name, own, file)
    assert found is not None
    assert (found.year, found.found_in) == (year, found_in)


@given(name=st.text(), own=st.none() | st.text(), file=st.none() | st.text())
def test_text_without_an_identifier_gives_no_year(name: str, own: str | None, file: str | None) -> None:
    if "arxiv" not in f"{own} {file}".lower():
        assert year_of(name, own, file) is None


@pytest.mark.parametrize(
    ("name", "year"),
    [
        ("vgg16", 2014),
        ("resnet50", 2015),
        ("densenet121", 2016),
        ("mobilenetv2_100", 2018),
        ("efficientnet_b0", 2019),
        ("vit_base_patch16_224", 2020),
        ("swin_tiny_patch4_window7_224", 2021),
        ("tf_efficientnetv2_s", 2021),
        ("convnext_tiny", 2022),
        ("convnextv2_tiny", 2023),
        ("mobilevit_s", 2021),
        ("ghostnetv2_100", 2022),
        ("eva02_tiny_patch14_224", 2023),
        ("csatv2", None),
    ],
)
def test_years_of_well_known_architectures(name: str, year: int | None) -> None:
    assert TimmLibrary().facts(name).year == year

"""Where calls go while a path fails."""

from hypothesis import given
from hypothesis import strategies as st

from gearshift.runtime.quarantine import QUARANTINE_FRAMES, Quarantine

ORDER, OTHERS = ["a", "b", "c", "d"], ["a", "b", "c", "d", "stock"]


def test_the_next_cheaper_path_steps_in_then_dearer_ones_then_references() -> None:
    quarantine = Quarantine(ORDER, OTHERS)
    assert quarantine.put_aside(["c"], 0) == "b"
    assert quarantine.put_aside(["c", "b"], 0) == "a"
    assert quarantine.put_aside(["c", "b", "a"], 0) == "d"
    assert quarantine.put_aside(["c", "b", "a", "d"], 0) == "stock"
    assert quarantine.put_aside(["c", "b", "a", "d", "stock"], 0) is None


def test_it_comes_back_after_a_while() -> None:
    quarantine = Quarantine(ORDER, OTHERS)
    quarantine.put_aside(["c"], 10)
    assert quarantine.route("c", 11) == "b"
    assert quarantine.route("d", 11) == "d"
    assert quarantine.route("c", 10 + QUARANTINE_FRAMES) == "c"


def test_with_all_put_aside_the_chosen_path_is_tried_again() -> None:
    quarantine = Quarantine(["a"], ["a"])
    assert quarantine.put_aside(["a"], 0) is None
    assert quarantine.route("a", 1) == "a"


def test_a_reference_that_fails_gives_way_to_the_dearest_choice() -> None:
    assert Quarantine(ORDER, OTHERS).put_aside(["stock"], 0) == "d"


@given(failing=st.sets(st.sampled_from(OTHERS)), chosen=st.sampled_from(OTHERS))
def test_every_call_finds_a_path_that_works_if_there_is_one(failing: set[str], chosen: str) -> None:
    quarantine, failed, path = Quarantine(ORDER, OTHERS), [], chosen
    while path in failing:
        failed.append(path)
        following = quarantine.put_aside(failed, 0)
        if following is None:
            break
        path = following
    assert (path in failing) == (failing == set(OTHERS))
    assert len(set(failed)) == len(failed)
    if failing != set(OTHERS):
        assert quarantine.route(chosen, 1) not in failing

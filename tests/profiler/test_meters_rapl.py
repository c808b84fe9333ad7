"""RAPL over a temporary powercap tree: permissions, nesting, mirrors, wraps."""

import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.errors import MeterUnavailableError
from gearshift.profiler.meters import RaplMeter
from gearshift.profiler.meters.rapl import poll_period_s
from gearshift.profiler.meters.rapl_domains import scan
from tests.support import Clock

SPAN_UJ = 262_143_328_850


@dataclass
class Tree:
    """A powercap tree; `denied` files raise PermissionError whoever runs the test."""

    root: Path
    denied: set[Path] = field(default_factory=set)

    def add(self, zone: str, name: str, energy_uj: int = 1_000_000, **files: object) -> Path:
        folder = self.root / zone
        folder.mkdir(parents=True, exist_ok=True)
        values = {"name": name, "energy_uj": energy_uj, "max_energy_range_uj": SPAN_UJ, **files}
        for file, value in values.items():
            if value is not None:
                (folder / file).write_text(f"{value}\n")
        return folder / "energy_uj"

    def spend(self, energy: Path, joules: float, span_uj: int = SPAN_UJ) -> None:
        energy.write_text(f"{(int(energy.read_text()) + round(joules * 1e6)) % span_uj}\n")

    def read_text(self, path: Path) -> str:
        if path in self.denied:
            raise PermissionError(13, "Permission denied", str(path))
        return path.read_text()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "powercap")


@pytest.fixture
def clock() -> Clock:
    return Clock()


def meter_of(tree: Tree, clock: Clock, **options: bool) -> RaplMeter:
    return RaplMeter(tree.root, clock=clock, read_text=tree.read_text, background=False, **options)


def test_microjoules_become_joules(tree: Tree, clock: Clock) -> None:
    package = tree.add("intel-rapl:0", "package-0")
    with meter_of(tree, clock).window() as w:
        clock.now_s += 2.0
        tree.spend(package, 5.0)
    assert (w.energy_j, w.power_w, w.seconds) == (5.0, 2.5, 2.0)
    assert (w.source, w.reason, w.warnings) == ("measured:rapl", None, ())


class TestWhatAddsUp:
    def test_parts_of_a_package_and_its_platform_are_not_added(self, tree: Tree, clock: Clock) -> None:
        # psys 9.61 W holds package 3.78 W (offered twice), which holds core 0.84 W and uncore 0.21 W
        watts = {
            tree.add("intel-rapl:0", "package-0"): 3.78,
            tree.add("intel-rapl:0:0", "core"): 0.84,
            tree.add("intel-rapl:0:1", "uncore"): 0.21,
            tree.add("intel-rapl:1", "psys"): 9.61,
            tree.add("intel-rapl-mmio:0", "package-0", 7_000_000): 3.78,
        }
        with meter_of(tree, clock).window() as w:
            clock.now_s += 1.0
            for energy, power_w in watts.items():
                tree.spend(energy, power_w)
        assert w.power_w == pytest.approx(3.78)
        assert dict(w.parts) == pytest.approx({"package-0": 3.78, "psys": 9.61})

    @pytest.mark.parametrize("layout", ["flat", "nested", "both"])
    @pytest.mark.parametrize("sockets", [1, 2])
    def test_every_layout_and_socket_counts_once(self, tree: Tree, clock: Clock, layout: str, sockets: int) -> None:
        energies = []
        for socket in range(sockets):
            zone = f"intel-rapl:{socket}"
            folder = zone if layout == "flat" else f"intel-rapl/{zone}"
            memory = f"{zone}:0" if layout == "flat" else f"{folder}/{zone}:0"
            energies += [tree.add(folder, f"package-{socket}"), tree.add(memory, "dram")]
        if layout == "both":  # as in sysfs, where the class folder links to the nested one
            for inner in [path for path in tree.root.rglob("intel-rapl:*") if path.is_dir()]:
                (tree.root / inner.name).symlink_to(inner)
        with meter_of(tree, clock).window() as w:
            clock.now_s += 1.0
            for energy in energies:
                tree.spend(energy, 3.0)
        assert w.energy_j == 3.0 * 2 * sockets
        assert set(w.parts) == {f"package-{n}{end}" for n in range(sockets) for end in ("", "/dram")}

    @pytest.mark.parametrize(("include_dram", "total_j"), [(True, 120.0), (False, 100.0)])
    def test_memory_is_added_when_asked_for(self, tree: Tree, clock: Clock, include_dram: bool, total_j: float) -> None:
        package, memory = tree.add("intel-rapl:0", "package-0"), tree.add("intel-rapl:0:2", "dram")
        meter = meter_of(tree, clock, include_dram=include_dram)
        with meter.window() as w:
            clock.now_s += 1.0
            tree.spend(package, 100.0)
            tree.spend(memory, 20.0)
        assert w.energy_j == total_j
        assert w.parts["package-0/dram"] == 20.0
        assert ("package-0/dram" in meter.boundary) == include_dram

    def test_a_machine_without_a_memory_domain_says_so(self, tree: Tree, clock: Clock) -> None:
        tree.add("intel-rapl:0", "package-0")
        meter = meter_of(tree, clock)
        assert meter.notes == ("this machine announces no dram domain: memory is not included",)
        assert "excluded: memory" in meter.boundary

    def test_a_die_that_mirrors_its_package_is_taken_once(self, tree: Tree, clock: Clock) -> None:
        mirrored = [
            tree.add("intel-rapl:0", "package-0-die-0", 5_000_000_000),
            tree.add("intel-rapl:1", "package-0-die-1", 5_000_000_010),
        ]
        with meter_of(tree, clock).window() as w:
            clock.now_s += 1.0
            for energy in mirrored:
                tree.spend(energy, 30.0)
        assert w.energy_j == 30.0

    def test_dies_with_counters_of_their_own_add_up(self, tree: Tree, clock: Clock) -> None:
        dies = [tree.add(f"intel-rapl:{n}", f"package-0-die-{n}", 5_000_000_000 * (n + 1)) for n in range(2)]
        with meter_of(tree, clock).window() as w:
            clock.now_s += 1.0
            for energy in dies:
                tree.spend(energy, 30.0)
        assert w.energy_j == 60.0


class TestPermissions:
    def test_a_denied_counter_names_the_path_and_the_command(self, tree: Tree, clock: Clock) -> None:
        energy = tree.add("intel-rapl:0", "package-0")
        tree.denied.add(energy)
        with pytest.raises(MeterUnavailableError) as caught:
            meter_of(tree, clock)
        assert f"permission denied on {energy}" in str(caught.value)
        assert f"`sudo chmod a+r {energy}`" in str(caught.value)

    def test_the_command_names_every_denied_counter(self, tree: Tree, clock: Clock) -> None:
        tree.denied |= {tree.add(f"intel-rapl:{n}", f"package-{n}") for n in range(2)}
        with pytest.raises(MeterUnavailableError) as caught:
            meter_of(tree, clock)
        assert f"chmod a+r {' '.join(sorted(str(path) for path in tree.denied))}`" in str(caught.value)

    @pytest.mark.parametrize("denied", ["intel-rapl:0", "intel-rapl-mmio:0", "intel-rapl-tpmi:0"])
    def test_one_denied_provider_does_not_disable_the_others(self, tree: Tree, clock: Clock, denied: str) -> None:
        energies = {
            zone: tree.add(zone, "package-0") for zone in ("intel-rapl:0", "intel-rapl-mmio:0", "intel-rapl-tpmi:0")
        }
        tree.denied.add(energies[denied])
        meter = meter_of(tree, clock)
        with meter.window() as w:
            clock.now_s += 1.0
            for energy in energies.values():
                tree.spend(energy, 4.0)
        assert w.energy_j == 4.0
        assert [note for note in meter.notes if "permission denied" in note] == [
            f"{energies[denied]} (package-0): permission denied"
        ]

    def test_a_socket_that_cannot_be_read_makes_the_figure_partial(self, tree: Tree, clock: Clock) -> None:
        tree.add("intel-rapl:0", "package-0")
        second = tree.add("intel-rapl:1", "package-1")
        tree.denied.add(second)
        meter = meter_of(tree, clock)
        assert f"partial: grant the rest with `sudo chmod a+r {second}`" in meter.notes
        assert "package-1" not in meter.boundary

    def test_rights_lost_during_a_window_are_its_reason(self, tree: Tree, clock: Clock) -> None:
        energy = tree.add("intel-rapl:0", "package-0")
        meter = meter_of(tree, clock)
        with meter.window() as lost:
            clock.now_s += 1.0
            tree.denied.add(energy)
        tree.denied.clear()
        with meter.window() as found:
            clock.now_s += 1.0
            tree.spend(energy, 2.0)
        assert lost.energy_j is None
        assert lost.reason is not None
        assert str(energy) in lost.reason
        assert found.energy_j == 2.0

    def test_a_platform_counter_that_fails_does_not_spoil_the_package(self, tree: Tree, clock: Clock) -> None:
        package, platform = tree.add("intel-rapl:0", "package-0"), tree.add("intel-rapl:1", "psys")
        with meter_of(tree, clock).window() as w:
            clock.now_s += 1.0
            tree.spend(package, 2.0)
            tree.denied.add(platform)
        assert w.energy_j == 2.0
        assert w.parts["psys"] is None


class TestNothingThere:
    @pytest.mark.parametrize("exists", [True, False])
    def test_an_empty_or_missing_tree_is_a_plain_message(self, tree: Tree, clock: Clock, exists: bool) -> None:
        if exists:
            tree.root.mkdir()
        with pytest.raises(MeterUnavailableError, match=f"no RAPL domains under {tree.root}"):
            meter_of(tree, clock)

    @pytest.mark.parametrize("content", ["", "no data", "12.5"])
    def test_a_counter_that_is_no_number_is_not_used(self, tree: Tree, clock: Clock, content: str) -> None:
        tree.add("intel-rapl:0", "package-0").write_text(content)
        with pytest.raises(MeterUnavailableError, match="no number"):
            meter_of(tree, clock)

    @pytest.mark.parametrize("names", [("core",), ("battery",), ("core", "uncore")])
    def test_without_a_package_there_is_no_meter(self, tree: Tree, clock: Clock, names: tuple[str]) -> None:
        for number, name in enumerate(names):
            tree.add(f"intel-rapl:{number}", name)
        with pytest.raises(MeterUnavailableError, match="no RAPL domains"):
            meter_of(tree, clock)

    @pytest.mark.parametrize("may_be_read", [True, False])
    @pytest.mark.parametrize(
        ("names", "said"),
        [
            (("psys",), "only psys (the whole platform),"),
            (("dram",), "only dram (memory),"),
            (("psys", "dram"), "psys (the whole platform)"),
        ],
    )
    def test_what_is_there_instead_of_a_package_is_named_and_no_permission_is_asked_for_it(
        self, tree: Tree, clock: Clock, names: tuple[str, ...], said: str, may_be_read: bool
    ) -> None:
        energies = [tree.add(f"intel-rapl:{number}", name) for number, name in enumerate(names)]
        tree.denied |= set() if may_be_read else set(energies)
        with pytest.raises(MeterUnavailableError, match="no RAPL package") as caught:
            meter_of(tree, clock)
        message = str(caught.value)
        assert said in message
        assert all(name in message for name in names)
        assert str(tree.root) in message
        assert "modprobe intel_rapl_msr" in message
        assert "chmod" not in message
        assert "no RAPL domains" not in message

    def test_a_package_that_may_not_be_read_beside_the_platform_is_asked_for(self, tree: Tree, clock: Clock) -> None:
        tree.add("intel-rapl:1", "psys")
        package = tree.add("intel-rapl:0", "package-0")
        tree.denied.add(package)
        with pytest.raises(MeterUnavailableError, match=f"permission denied on {package}: .*chmod a.r {package}`"):
            meter_of(tree, clock)

    def test_other_zones_and_files_are_left_alone(self, tree: Tree) -> None:
        tree.add("intel-rapl:0", "package-0")
        tree.add("dtpm:0", "package-9")
        (tree.root / "intel-rapl:7").write_text("a file")
        assert [domain.label for domain in scan(tree.root).domains] == ["package-0"]


class TestWraps:
    def test_a_wrap_is_exact(self, tree: Tree, clock: Clock) -> None:
        energy = tree.add("intel-rapl:0", "package-0", 262_143_000_000)
        with meter_of(tree, clock).window() as w:
            clock.now_s += 1.0
            energy.write_text("500000\n")
        assert w.energy_j == pytest.approx(0.82885)

    @settings(deadline=None)
    @given(
        powers_w=st.lists(st.floats(1.0, 900.0), min_size=1, max_size=15),
        start_uj=st.integers(0, SPAN_UJ - 1),
    )
    def test_any_number_of_wraps_with_the_poller_is_exact(
        self, tmp_path_factory: pytest.TempPathFactory, powers_w: list[float], start_uj: int
    ) -> None:
        tree, clock = Tree(tmp_path_factory.mktemp("powercap")), Clock()
        energy = tree.add("intel-rapl:0", "package-0", start_uj)
        meter = meter_of(tree, clock)
        expected_j = 0.0
        with meter.window() as w:
            for power_w in powers_w:
                pause_s = 8 * meter.period_s  # later than the thread would be, yet within one wrap
                clock.now_s += pause_s
                tree.spend(energy, power_w * pause_s)
                expected_j += round(power_w * pause_s * 1e6) / 1e6
                meter.sample()
        assert w.energy_j == pytest.approx(expected_j, abs=1e-6)

    def test_the_thread_follows_three_wraps_in_one_window(self, tree: Tree, clock: Clock) -> None:
        """The counter advances only once the thread has read it, so no timing decides."""
        span_uj = 10_000_000
        energy = tree.add("intel-rapl:0", "package-0", 9_000_000, max_energy_range_uj=span_uj)
        changed, seen = threading.Condition(), [""]
        main = threading.get_ident()

        def read_text(path: Path) -> str:
            text = path.read_text()
            if path == energy and threading.get_ident() != main:
                with changed:
                    seen[0] = text
                    changed.notify()
            return text

        meter = RaplMeter(tree.root, clock=clock, read_text=read_text)
        with meter.window() as w:
            for value in (7_000_000, 5_000_000, 3_000_000, 1_000_000):  # 8 J each time
                fresh = tree.root / "fresh"
                fresh.write_text(str(value))
                fresh.replace(energy)  # at once: the thread never sees half a number
                with changed:
                    assert changed.wait_for(lambda: seen[0] == str(value), timeout=30.0)  # noqa: B023
        meter.close()
        assert w.energy_j == 32.0

    @pytest.mark.parametrize("tdp_w", [15, 125, 350, 500, 2000])
    @pytest.mark.parametrize("span_uj", [10_000_000_000, 65_532_610_987, SPAN_UJ])
    def test_the_poller_is_faster_than_half_a_wrap_at_full_power(
        self, tree: Tree, clock: Clock, tdp_w: int, span_uj: int
    ) -> None:
        files = {"max_energy_range_uj": span_uj, "constraint_0_max_power_uw": tdp_w * 1_000_000}
        tree.add("intel-rapl:0", "package-0", **files)
        assert meter_of(tree, clock).period_s < span_uj / 1e6 / (2 * tdp_w)

    def test_the_tightest_domain_sets_the_period(self, tree: Tree) -> None:
        tree.add("intel-rapl:0", "package-0")
        alone_s = poll_period_s(scan(tree.root).domains)
        tree.add("intel-rapl:0:2", "dram", max_energy_range_uj=1_000_000_000)
        assert poll_period_s(scan(tree.root).domains) < alone_s

    def test_a_counter_without_a_range_that_goes_back_spoils_one_window(self, tree: Tree, clock: Clock) -> None:
        energy = tree.add("intel-rapl:0", "package-0", 9_000_000, max_energy_range_uj=None)
        meter = meter_of(tree, clock)
        with meter.window() as spoilt:
            clock.now_s += 1.0
            energy.write_text("1\n")
        with meter.window() as good:
            clock.now_s += 1.0
            tree.spend(energy, 1.0)
        assert spoilt.reason is not None
        assert spoilt.reason.startswith("counter_reset")
        assert good.energy_j == pytest.approx(1.0)

    def test_a_pause_without_a_window_is_a_new_epoch(self, tree: Tree, clock: Clock) -> None:
        energy = tree.add("intel-rapl:0", "package-0")
        meter = meter_of(tree, clock)
        before = meter.read()
        clock.now_s += 10_000.0
        tree.spend(energy, 3.0)
        after = meter.read()
        assert (before.epoch, after.epoch) == (0, 1)
        with meter.window() as w:
            clock.now_s += 1.0
            tree.spend(energy, 3.0)
        assert w.energy_j == pytest.approx(3.0)


def test_the_contract_of_the_design_document(tree: Tree) -> None:
    energy = tree.add("intel-rapl:0", "package-0")
    with RaplMeter(root=tree.root).window() as w:
        tree.spend(energy, 1.5)
    assert w.energy_j == 1.5
    assert w.seconds is not None
    assert w.seconds > 0
    assert w.uncertainty_j is not None
    assert w.uncertainty_j > 0
